"""`admit` and `publish` answer alike in both cores: one call there, the single calls here."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixkv import Namespace, new_tree
from radixkv.cache.factory import new_ledger
from radixkv.errors import InvalidArgumentError, NotLockedError, StaleHandleError
from radixkv.memory import new_allocator
from radixkv.tree import as_token_ids
from radixkv.tree.content import check_content
from tests.differential.pair import outcome, plain, seen
from tests.support.oracle import Fence

pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")

SLOTS, ROW = 24, 40
PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=16)
SPAN = st.tuples(st.integers(0, 4), st.integers(1, 5), st.sampled_from((b"x", b"y")))
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "ids": PROMPTS,
            "extra": st.integers(0, 6),
            "max_cached": st.one_of(st.none(), st.integers(0, 20)),
            "content": st.lists(SPAN, max_size=1),
            "space": st.sampled_from((Namespace(), Namespace("a"))),
            "stays": st.booleans(),
            "fence": st.sampled_from((None, None, None, "done", "open")),
        }
    ),
    max_size=25,
)


class Cache:
    """A tree, its slots and one row."""

    def __init__(self, page_size, core):
        self.tree = new_tree(page_size, core=core)
        self.ledger = new_ledger(new_allocator(SLOTS, page_size, core))
        self.row = np.zeros(ROW, np.int32)
        self.fences = []

    def admit(self, ids, *args, content=(), **how):
        key, spans = checked(ids, content)
        return self.tree.admit(key, self.ledger, self.row, *args, content=spans, **how)

    def publish(self, ids, *args, content=(), **how):
        key, spans = checked(ids, content)
        return self.tree.publish(key, self.ledger, self.row, *args, content=spans, **how)

    def fence(self, kind):
        if kind:
            self.fences.append(Fence())
            self.fences[-1].done = kind == "done"
        return self.fences[-1] if kind else None

    def picture(self):
        ledger = self.ledger
        deferred = [slots.tolist() for _, slots in ledger.deferred]
        free = plain(ledger.allocator.free_slots())
        return seen(self.tree), free, deferred, ledger.free_size


def checked(ids, content):
    """What a caller of the two hands in."""
    key = as_token_ids(ids)
    return key, check_content(content, len(key))


def run(cache, calls):
    """What can be seen after each request; some stay locked to the end."""
    shown = []
    for call in calls:
        shown.append(request(cache, **call))
        shown.append(cache.picture())
        assert cache.tree.check_integrity() == []
    for fence in cache.fences:
        fence.done = True
    return [*shown, cache.picture()]


def request(cache, ids, extra, max_cached, content, space, stays, fence):
    admitted = outcome(cache.admit, ids, space, content=content, max_cached=max_cached, extra=extra)
    if isinstance(admitted, Exception):
        return plain(admitted)
    if admitted.handle is None:
        return admitted
    whole, page, fence = [*ids, *([2] * extra)], cache.tree.page_size, cache.fence(fence)
    published = cache.publish(
        whole, space, content=content, priority=extra, chunked=stays, held=admitted.handle,
        fence=fence,
    )  # fmt: skip
    kept = len(whole) - len(whole) % page
    row = cache.row[:kept].tolist()
    cache.ledger.give_back(cache.row[kept : -(-len(whole) // page) * page].copy(), fence)
    if not stays:
        cache.tree.dec_lock_ref(published.handle)
    return admitted.length, admitted.evicted, published.prefix_length, published.handle.length, row


@settings(max_examples=300, deadline=None)
@given(page_size=st.sampled_from((1, 2)), calls=CALLS)
def test_both_cores_answer_alike(page_size, calls):
    assert run(Cache(page_size, "native"), calls) == run(Cache(page_size, "python"), calls)


@pytest.fixture
def cache(core):
    return Cache(1, core)


@pytest.fixture
def held(cache):
    """Locks [1 2 3], cached before and in the row."""
    cache.tree.insert([1, 2, 3], cache.ledger.allocator.allocate(3))
    admitted = cache.admit([1, 2, 3, 4])
    assert admitted.length == 3
    return admitted.handle


def read_only(row):
    row.flags.writeable = False
    return row


@pytest.mark.parametrize(
    ("row", "got"),
    [
        (np.zeros(2, np.int32), "int32 of shape (2,)"),
        (np.zeros(ROW, np.int64), f"int64 of shape ({ROW},)"),
        (read_only(np.zeros(3, np.int32)), "int32 of shape (3,), read-only"),
        ([0] * ROW, "list"),
    ],
    ids=["short", "int64", "read_only", "list"],
)
def test_a_row_that_cannot_be_written_is_refused(cache, row, got):
    message = f"row must be a writable int32 array of at least 3 slots; got {got}"
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(message)}$"):
        cache.tree.admit(as_token_ids([1, 2, 3]), cache.ledger, row)
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(message)}$"):
        cache.tree.publish(as_token_ids([1, 2, 3]), cache.ledger, row)
    assert cache.ledger.free_size == SLOTS
    assert cache.tree.total_size == 0
    assert cache.tree.check_integrity() == []


@pytest.mark.parametrize("name", ["max_cached", "extra"])
@pytest.mark.parametrize("value", [-1, 1.5, "a"])
def test_counts_are_whole_numbers(cache, name, value):
    with pytest.raises(
        InvalidArgumentError, match=rf"{name} must be an int of at least 0; got {value!r}"
    ):
        cache.admit([1, 2, 3], **{name: value})
    assert cache.ledger.free_size == SLOTS


def test_slots_of_another_pool_are_refused_before_anything_changes(cache):
    cache.row[:3] = [1, 2, SLOTS + 1]
    with pytest.raises(ValueError, match=f"slots must be from 1 to {SLOTS}; got {SLOTS + 1}"):
        cache.publish([1, 2, 3])
    assert cache.tree.total_size == 0


def test_what_a_handle_stands_for_is_not_given_again(cache, held):
    """Its slots are left out, and what is behind it is still compared."""
    cache.tree.insert([1, 2, 3, 4], [1, 2, 3, 9])
    result = cache.tree.insert([1, 2, 3, 4, 5], [10, 11], after=held)
    assert (result.prefix_length, result.slots.tolist(), result.handle.length) == (4, [9], 5)
    assert cache.tree.match_prefix([1, 2, 3, 4, 5]).slots.tolist() == [1, 2, 3, 9, 11]


def test_a_lock_of_nothing_vouches_for_nothing(cache):
    nothing = cache.tree.match_prefix([]).handle
    cache.tree.inc_lock_ref(nothing)
    assert cache.tree.insert([1, 2], [1, 2], after=nothing).prefix_length == 0
    assert cache.tree.probe([1, 2]) == 2


def test_a_handle_that_proves_nothing_is_refused(cache, held):
    unlocked, other = cache.tree.match_prefix([1, 2]).handle, new_tree().match_prefix([1]).handle
    refusals = [
        ({"after": unlocked}, NotLockedError, "after is not locked"),
        ({"after": other}, StaleHandleError, "after must be a Handle of this tree"),
        ({"after": held, "namespace": Namespace("b")}, InvalidArgumentError, "another namespace"),
    ]
    for how, error, message in refusals:
        with pytest.raises(error, match=message):
            cache.tree.insert([1, 2, 3, 4], [8], **how)
    with pytest.raises(
        InvalidArgumentError, match="after must be no longer than the 2 token_ids; got 3"
    ):
        cache.tree.insert([1, 2], [], after=held)
    with pytest.raises(ValueError, match="slots must be one for each of 1 token_ids; got 4"):
        cache.tree.insert([1, 2, 3, 4], [5, 6, 7, 8], after=held)
    assert cache.tree.total_size == 3
    assert cache.tree.check_integrity() == []


def test_a_refusal_forgets_content_that_came_with_it(cache, held):
    with pytest.raises(InvalidArgumentError):
        cache.publish([1, 2], content=[(0, 1, b"picture")], held=held)
    assert cache.tree.check_integrity() == []


def test_a_fence_that_raises_leaves_nothing_taken(cache):
    class Broken:
        def query(self):
            raise RuntimeError("the device is gone")

    cache.ledger.deferred.append((Broken(), cache.ledger.allocator.allocate(1)))
    with pytest.raises(RuntimeError, match="device"):
        cache.admit([1, 2])
    assert cache.tree.protected_size == 0
    assert cache.tree.check_integrity() == []
