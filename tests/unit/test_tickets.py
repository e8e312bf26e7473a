"""Tickets: in rows where one is free, none twice, all or nothing."""

import numpy as np
import pytest

from radixkv.errors import InvalidArgumentError, InvalidSlotsError, SlotNotAllocatedError
from radixkv.tree.factory import new_tickets
from radixkv.tree.tickets import Tickets


@pytest.fixture
def tickets(core):
    """Ten of them."""
    return new_tickets(10, core)


def test_rows_follow_one_another(tickets):
    taken = [tickets.take(n).tolist() for n in (3, 0, 4)]
    assert taken == [[0, 1, 2], [], [3, 4, 5, 6]]
    assert tickets.take(1).dtype == np.int32
    assert (tickets.num_tickets, tickets.free_size) == (10, 2)


def test_the_search_goes_on_behind_the_last_row_and_begins_again(tickets):
    tickets.free(tickets.take(6))
    assert tickets.take(3).tolist() == [6, 7, 8]
    assert tickets.take(3).tolist() == [0, 1, 2]


def test_a_row_is_found_between_what_is_taken(tickets):
    tickets.take(10)
    tickets.free([1, 4, 5, 7, 8, 9])
    assert tickets.take(2).tolist() == [4, 5]
    assert tickets.take(3).tolist() == [7, 8, 9]


def test_without_a_row_the_next_that_are_free_come(tickets):
    tickets.take(10)
    tickets.free([8, 6, 1, 3])
    assert tickets.take(1).tolist() == [1]
    assert tickets.take(3).tolist() == [3, 6, 8]


def test_the_next_that_are_free_go_round_the_end(tickets):
    tickets.take(6)
    tickets.take(4)
    tickets.free([0, 2, 5, 7])
    assert tickets.take(1).tolist() == [0]
    tickets.free([0])
    tickets.take(2)
    assert tickets.take(2) is not None
    assert tickets.free_size == 0


def test_where_fewer_are_free_none_is_taken(tickets):
    tickets.take(8)
    assert tickets.take(3) is None
    assert tickets.free_size == 2


@pytest.mark.parametrize("bad", [[0, 0], [0, 9], [0, 10], [0, 2**31 - 1]])
def test_what_is_not_taken_is_refused_and_none_comes_back(tickets, bad):
    tickets.take(3)
    with pytest.raises(SlotNotAllocatedError, match=rf"distinct and taken; got {bad[1]}$") as error:
        tickets.free(bad)
    assert error.value.details == {"slot": bad[1]}
    assert tickets.free_size == 7
    tickets.free([0, 1, 2])
    assert tickets.free_size == 10


@pytest.mark.parametrize("bad", [[-1], ["a"], 3, [1.5]])
def test_what_are_no_tickets_is_refused(tickets, bad):
    tickets.take(3)
    with pytest.raises(InvalidSlotsError, match=r"^tickets"):
        tickets.free(bad)


def test_bad_numbers_are_refused(tickets, core):
    with pytest.raises(InvalidArgumentError, match="n must be an int of at least 0; got -1"):
        tickets.take(-1)
    with pytest.raises(InvalidArgumentError, match="num_tickets must be an int from 0 to"):
        new_tickets(-1, core)


def test_the_contract_is_no_core():
    with pytest.raises(TypeError, match="new_tickets"):
        Tickets(3)


def test_in_a_pool_that_is_full_nearly_all_come_in_rows(core, rng):
    """Twice as many as are ever taken, given back in any order, as a full pool evicts."""
    num_slots = 4_000
    tickets, held, in_rows = new_tickets(2 * num_slots, core), [], 0
    for _ in range(2_000):
        n = int(rng.integers(20, 400))
        while tickets.free_size - n < num_slots:
            tickets.free(held.pop(int(rng.integers(len(held)))))
        taken = tickets.take(n)
        in_rows += bool((np.diff(taken) == 1).all())
        cut = int(rng.integers(0, n))
        held += [part for part in (taken[:cut], taken[cut:]) if len(part)]
    assert in_rows >= 1_990
