"""`admit` and `publish` of the native core do what the calls they stand for do, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixkv import Namespace, RadixTree
from radixkv.memory import TokenToKVAllocator
from tests.differential.pair import plain, seen

core = pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")

SLOTS, ROW = 24, 40
PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=16)
CALLS = st.lists(
    st.tuples(PROMPTS, st.integers(0, 6), st.integers(0, 20), st.booleans()), max_size=25
)


class OneByOne:
    """The Python core, step by step."""

    def __init__(self, page_size):
        self.tree = RadixTree(page_size, core="python")
        self.allocator = TokenToKVAllocator(SLOTS, page_size)
        self.row = np.zeros(ROW, np.int32)

    def admit(self, ids, max_cached, extra):
        page = self.tree.page_size
        match = self.tree.match_prefix(ids[:max_cached])
        self.tree.inc_lock_ref(match.handle)
        needed = -(-(len(ids) + extra) // page) * page - match.length
        missing = needed - self.allocator.free_size
        if missing > self.tree.evictable_size:
            self.tree.dec_lock_ref(match.handle)
            return None
        evicted = self.tree.evict(max(missing, 0))
        self.allocator.free(evicted)
        slots = np.concatenate([match.slots, self.allocator.allocate(needed)])
        self.row[: len(slots)] = slots
        return match.length, match.handle, len(evicted)

    def publish(self, ids, shared, held):
        result = self.tree.insert(ids, self.row[: len(ids)])
        duplicates = self.row[shared : result.prefix_length].copy()
        self.row[shared : result.prefix_length] = result.slots[shared:]
        self.tree.inc_lock_ref(result.handle)
        self.tree.dec_lock_ref(held)
        self.allocator.free(duplicates)
        return result.prefix_length, result.handle


class Fused:
    """The native core, one call a step."""

    def __init__(self, page_size):
        self.tree = RadixTree(page_size, core="native")
        self.allocator = core.SlotAllocator(SLOTS, page_size)
        self.row = np.zeros(ROW, np.int32)

    def admit(self, ids, max_cached, extra):
        return self.tree.admit(ids, self.allocator, self.row, max_cached=max_cached, extra=extra)

    def publish(self, ids, shared, held):
        return self.tree.publish(ids, self.allocator, self.row, shared=shared, held=held)


def run(cache, calls):
    """What can be seen after each request; some stay locked to the end."""
    shown = []
    for ids, extra, max_cached, stays in calls:
        admitted = cache.admit(ids, max_cached, extra)
        shown.append(admitted and (admitted[0], admitted[2]))
        if admitted is None:
            continue
        whole = [*ids, *([2] * extra)]
        prefix, handle = cache.publish(whole, admitted[0], admitted[1])
        given = len(whole) - len(whole) % cache.tree.page_size
        tail = -(-len(whole) // cache.tree.page_size) * cache.tree.page_size
        shown.append((prefix, handle.length, cache.row[:given].tolist()))
        cache.allocator.free(cache.row[given:tail].copy())
        if not stays:
            cache.tree.dec_lock_ref(handle)
        shown.append((seen(cache.tree), plain(cache.allocator.free_slots())))
        assert cache.tree.check_integrity() == []
    return shown


@settings(max_examples=300, deadline=None)
@given(page_size=st.sampled_from((1, 2)), calls=CALLS)
def test_the_same_as_one_by_one(page_size, calls):
    assert run(Fused(page_size), calls) == run(OneByOne(page_size), calls)


def test_a_row_that_cannot_be_written_is_refused():
    cache = Fused(1)
    for row in (np.zeros(2, np.int32), np.zeros(ROW, np.int64), [0] * ROW):
        with pytest.raises(ValueError, match="row is no writeable int32 array of 3 slots"):
            cache.tree.admit([1, 2, 3], cache.allocator, row, max_cached=2)
    assert cache.allocator.free_size == SLOTS
    assert cache.tree.check_integrity() == []


def test_a_lock_of_another_namespace_says_nothing_about_the_tokens():
    cache, other = Fused(1), Namespace("other")
    cache.tree.insert([1, 2, 3], cache.allocator.allocate(3))
    shared, held, _ = cache.admit([1, 2, 3, 4], 4, 0)
    assert shared == 3
    cache.row[:4] = cache.allocator.allocate(4)
    prefix, handle = cache.tree.publish(
        [1, 2, 3, 4], cache.allocator, cache.row, other, shared=shared, held=held
    )
    assert (prefix, handle.length) == (0, 4)
    assert cache.tree.probe([1, 2, 3, 4], other) == 4
    assert cache.tree.probe([1, 2, 3, 4]) == 3
    assert cache.tree.check_integrity() == []


def test_a_lock_of_another_length_says_nothing_about_the_tokens():
    cache = Fused(1)
    cache.tree.insert([1, 2, 3], cache.allocator.allocate(3))
    _, held, _ = cache.admit([1, 2, 3, 4], 4, 0)
    cache.row[:4] = cache.allocator.allocate(4)
    prefix, _ = cache.tree.publish([1, 9, 9, 9], cache.allocator, cache.row, shared=1, held=held)
    assert prefix == 1
    assert cache.tree.probe([1, 9, 9, 9]) == 4
    assert cache.tree.check_integrity() == []
