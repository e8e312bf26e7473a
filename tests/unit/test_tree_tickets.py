"""The tree's calls for engines whose slots the host does not know."""

from array import array

import numpy as np
import pytest

from radixkv.errors import NotLockedError, OutOfSlotsError, StaleHandleError
from radixkv.tree.factory import new_tickets


@pytest.fixture
def tickets(core):
    return new_tickets(20, core)


def test_a_handle_is_matched_without_its_slots(tree, fresh):
    tree.insert([1, 2, 3], fresh(3))
    handle = tree.match_handle(array("q", [1, 2, 9]))
    assert handle.length == 2
    assert tree.path_slots(handle).tolist() == tree.match_prefix([1, 2]).slots.tolist()
    assert tree.match_handle([7]).length == 0


def test_to_match_a_handle_is_a_use_like_any_match(tree, fresh):
    tree.insert([1, 2], fresh(2))
    tree.insert([3, 4], fresh(2))
    tree.match_handle([1, 2])
    tree.evict(2)
    assert (tree.probe([1, 2]), tree.probe([3, 4])) == (2, 0)


def test_the_slots_of_a_path_are_int64_whatever_was_split(tree):
    tree.insert([1, 2, 3, 4], [10, 11, 20, 21])
    handle = tree.match_handle([1, 2, 3])
    tree.inc_lock_ref(handle)
    tree.insert([1, 7], [10, 30])
    slots = tree.path_slots(handle)
    assert (slots.dtype, slots.tolist()) == (np.int64, [10, 11, 20])
    slots[:] = 0
    assert tree.path_slots(handle).tolist() == [10, 11, 20]
    tree.dec_lock_ref(handle)


def test_a_path_comes_as_slices_of_slots_that_follow_one_another(tree):
    tree.insert([1, 2, 3], [10, 11, 20])
    tree.insert([1, 2, 3, 4, 5], [10, 11, 20, 21, 5])
    handle = tree.match_handle([1, 2, 3, 4, 5])
    assert tree.path_slices(handle, 3) == [slice(10, 12), slice(20, 22), slice(5, 6)]
    assert tree.path_slices(handle, 2) is None
    assert tree.path_slices(tree.match_handle([1, 2]), 1) == [slice(10, 12)]
    assert tree.path_slices(tree.match_handle([9]), 0) == []


def test_the_path_of_what_was_evicted_is_refused(tree, fresh):
    tree.insert([1, 2, 3], fresh(3))
    handle = tree.match_handle([1, 2, 3])
    tree.evict(1)
    for read in (tree.path_slots, lambda handle: tree.path_slices(handle, 9)):
        with pytest.raises(StaleHandleError):
            read(handle)


def test_only_new_tokens_take_tickets(tree, tickets):
    first = tree.insert_from([1, 2, 3], tickets)
    assert (first.prefix_length, first.slots.tolist(), first.taken) == (0, [], slice(0, 3))
    second = tree.insert_from(array("q", [1, 2, 5, 6]), tickets)
    assert (second.prefix_length, second.slots.tolist(), second.taken) == (2, [0, 1], slice(3, 5))
    again = tree.insert_from([1, 2, 5], tickets)
    assert (again.prefix_length, again.taken) == (3, slice(0, 0))
    assert tree.path_slots(second.handle).tolist() == [0, 1, 3, 4]
    assert tickets.free_size == 15


def test_behind_a_locked_handle_its_tokens_take_none(tree, tickets):
    held = tree.insert_from([1, 2, 3], tickets).handle
    with pytest.raises(NotLockedError):
        tree.insert_from([1, 2, 3, 4], tickets, after=held)
    tree.inc_lock_ref(held)
    stored = tree.insert_from([1, 2, 3, 4], tickets, after=held)
    assert (stored.prefix_length, stored.slots.tolist(), stored.taken) == (3, [], slice(3, 4))
    tree.dec_lock_ref(held)


def test_tickets_that_are_scattered_come_as_an_array(tree, tickets):
    tickets.take(20)
    tickets.free([3, 7, 12])
    taken = tree.insert_from([1, 2, 3], tickets).taken
    assert (taken.dtype, taken.tolist()) == (np.int64, [3, 7, 12])


def test_without_enough_tickets_nothing_changes(tree, tickets):
    tree.insert_from([1, 2], tickets)
    with pytest.raises(OutOfSlotsError, match="tickets must have 19 free; got 18") as error:
        tree.insert_from(range(1, 22), tickets)
    assert error.value.details == {"needed": 19, "free": 18}
    assert (tree.total_size, tickets.free_size) == (2, 18)


def test_what_is_evicted_goes_back_to_the_tickets(tree, tickets):
    tree.insert_from([1, 2, 3], tickets)
    tree.insert_from([7, 8], tickets)
    assert tree.evict_to(tickets, 2, most=1) == [slice(1, 3)]
    assert tickets.free_size == 17
    scattered = tree.evict_to(tickets, 9, most=1)
    assert (scattered.dtype, scattered.tolist()) == (np.int64, [0, 3, 4])
    assert tree.evict_to(tickets, 1, most=1) == []
    assert (tree.total_size, tickets.free_size) == (0, 20)
