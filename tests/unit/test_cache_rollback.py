"""Going back: the tail is given back, what others may read is never written into."""

import numpy as np
import pytest

from radixkv.errors import InvalidArgumentError
from tests.support.caches import Memory, admit, in_pages, picture, store


def test_rollback_gives_back_the_tail(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    slots = request.slots.tolist()
    copies = cache.rollback(request, 2)
    assert (len(copies.source), len(copies.target)) == (0, 0)
    assert request.token_ids.tolist() == [1, 2]
    assert request.slots.tolist() == slots[:2]
    assert cache.free_size == 14


def test_rollback_gives_back_what_was_reserved(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2])
    cache.reserve(request, 5)
    cache.rollback(request, 2)
    assert cache.free_size == 14


def test_other_tokens_may_follow(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4])
    cache.rollback(request, 2)
    cache.extend(request, [8, 9])
    cache.finish(request, up_to=request.length)
    assert cache.probe_batch([[1, 2, 8, 9], [1, 2, 3]]) == [4, 2]


def test_what_was_published_stays_cached_and_is_unlocked(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(request, 4)
    cache.rollback(request, 2)
    assert (cache.tree.protected_size, cache.tree.evictable_size) == (2, 2)
    assert cache.probe([1, 2, 3, 4, 5]) == 4
    assert (request.shared, request.cached_len) == (2, 0)
    assert cache.evict(99) == 2


def test_the_lock_of_another_is_not_touched(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3, 4])
    one, two = admit(cache, [1, 2, 3, 4, 5]), admit(cache, [1, 2, 3, 4, 6])
    cache.rollback(one, 1)
    assert cache.evict(99) == 0
    cache.rollback(two, 3)
    assert cache.evict(99) == 1
    cache.finish(one, up_to=one.length)
    assert cache.evict(99) == 0


def test_cached_len_is_never_more_than_length(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3, 4])
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.rollback(request, 2)
    assert (request.cached_len, request.length) == (2, 2)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 9, 10])
def test_a_page_that_others_may_read_becomes_a_copy(new_cache, length):
    memory = Memory(36)
    cache = new_cache(32, page_size=4, kv=memory)
    request = admit(cache, list(range(10)))
    memory.values[request.slots] = request.token_ids
    cache.publish(request, 10)
    before = request.slots.tolist()
    cache.rollback(request, length)
    assert memory.values[request.slots].tolist() == list(range(length))
    whole = length // 4 * 4
    assert request.slots[:whole].tolist() == before[:whole]
    if whole < length < 8:
        assert set(request.slots[whole:].tolist()).isdisjoint(before)
    slots = cache.extend(request, [77])
    assert not set(slots.tolist()) & set(before[:8])
    memory.values[slots] = 77
    cached = cache.match_prefix(list(range(10)))
    assert memory.values[cached.slots].tolist() == list(range(8))


def test_the_copy_is_left_to_the_caller_without_a_pool(new_cache):
    cache = new_cache(32, page_size=4)
    request = admit(cache, list(range(8)))
    cache.publish(request, 8)
    old = request.slots[4:6].tolist()
    copies = cache.rollback(request, 6)
    assert copies.source.tolist() == old
    assert copies.target.tolist() == request.slots[4:].tolist()
    assert (copies.source.dtype, copies.target.dtype) == (np.int32, np.int32)


def test_a_page_of_ones_own_is_not_copied(new_cache):
    cache = new_cache(32, page_size=4)
    request = admit(cache, list(range(10)))
    before = request.slots.tolist()
    copies = cache.rollback(request, 6)
    assert len(copies.source) == 0
    assert request.slots.tolist() == before[:6]
    assert cache.free_size == 24


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("length", range(1, 10))
def test_what_forks_share_outside_the_tree_is_not_written_into(new_cache, page_size, length):
    memory = Memory(64 + page_size)
    cache = new_cache(64, page_size=page_size, kv=memory)
    request = admit(cache, list(range(10)), store=False)
    memory.values[request.slots] = request.token_ids
    fork = cache.fork(request, 1).requests[0]
    for each, token in ((request, 77), (fork, 88)):
        cache.rollback(each, length)
        memory.values[cache.extend(each, [token])] = token
    for each, token in ((request, 77), (fork, 88)):
        assert memory.values[each.slots].tolist() == [*range(length), token]


def test_the_last_of_them_writes_into_its_own(new_cache):
    cache = new_cache(32, page_size=4)
    request = admit(cache, list(range(8)), store=False)
    fork = cache.fork(request, 1).requests[0]
    cache.abort(request)
    assert len(cache.rollback(fork, 6).source) == 0


def test_rollback_without_room_for_the_copy_is_refused_and_takes_nothing(new_cache):
    cache = new_cache(8, page_size=4)
    request = admit(cache, list(range(8)))
    cache.publish(request, 8)
    before = picture(cache)
    assert cache.rollback(request, 6) is None
    assert picture(cache) == before
    assert cache.rollback(request, 4) is not None
    assert request.length == 4


def test_rollback_evicts_for_the_copy(new_cache):
    cache = new_cache(12, page_size=4)
    store(cache, [7, 8, 9, 9])
    request = admit(cache, list(range(8)))
    cache.publish(request, 8)
    assert cache.rollback(request, 6) is not None
    assert cache.probe([7, 8, 9, 9]) == 0


def test_rollback_to_nothing_and_to_all(new_cache, page_size):
    cache = new_cache(8 * page_size, page_size=page_size)
    request = admit(cache, in_pages([1, 2], page_size))
    cache.publish(request, 2 * page_size)
    before = picture(cache)
    cache.rollback(request, 2 * page_size)
    assert picture(cache) == before
    cache.rollback(request, 0)
    assert (request.length, cache.tree.protected_size) == (0, 0)
    assert len(cache.extend(request, [3])) == 1
    cache.finish(request, up_to=request.length)


def test_rollback_is_idempotent(new_cache):
    cache = new_cache(32, page_size=4)
    request = admit(cache, list(range(8)))
    cache.publish(request, 8)
    cache.rollback(request, 6)
    before = picture(cache)
    assert len(cache.rollback(request, 6).source) == 0
    assert picture(cache) == before


def test_rollback_after_a_forced_reset(new_cache):
    cache = new_cache(32, page_size=4)
    request = admit(cache, list(range(10)))
    cache.publish(request, 8)
    cache.reset(force=True)
    assert len(cache.rollback(request, 6).source) == 0
    assert cache.free_size == 24
    cache.rollback(request, 0)
    assert cache.free_size == 32


def test_rollback_into_content_forgets_the_rest_of_it(new_cache):
    cache = new_cache()
    request = admit(cache, [5, 9, 9, 9, 6], content=[(1, 3, b"x")])
    cache.rollback(request, 2)
    cache.extend(request, [9, 6])
    cache.finish(request, up_to=request.length)
    assert cache.probe([5, 9, 9, 6], content=[(1, 1, b"x")]) == 4
    assert cache.probe([5, 9, 9, 6], content=[(1, 2, b"x")]) == 2


@pytest.mark.parametrize("length", [-1, 4, 1.0, "1", None])
def test_rollback_refuses_a_length_that_is_not_there(new_cache, length):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    with pytest.raises(InvalidArgumentError):
        cache.rollback(request, length)
    assert request.length == 3


def test_a_rollback_whose_copy_raises_changes_nothing(new_cache):
    cache = new_cache(32, page_size=4, kv=BrokenPool())
    request = admit(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    cache.publish(request, 8)
    slots = request.slots.tolist()
    with pytest.raises(RuntimeError, match="device"):
        cache.rollback(request, 6)
    assert request.slots.tolist() == slots
    assert (request.length, request.shared, cache.free_size) == (8, 8, 24)


class BrokenPool:
    def copy(self, source, target):
        raise RuntimeError("the device is gone")
