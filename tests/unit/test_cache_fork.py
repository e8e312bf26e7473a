"""Forks share everything computed so far, and from there on nothing."""

import pytest

from radixkv.errors import InvalidArgumentError, ReentrantCallError
from tests.support.caches import Memory, admit, in_pages, picture, resident, store


def test_a_fork_has_the_same_tokens_in_the_same_slots(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    forks, source, target = cache.fork(request, 2)
    for fork in forks:
        assert fork.token_ids.tolist() == [1, 2, 3]
        assert fork.slots.tolist() == request.slots.tolist()
        assert (fork.state, fork.length, fork.cached_len) == ("running", 3, 3)
    assert len({request.row, *(fork.row for fork in forks)}) == 3
    assert len({request.id, *(fork.id for fork in forks)}) == 3
    assert (len(source), len(target)) == (0, 0)
    assert cache.free_size == 13


def test_a_fork_publishes_first(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    cache.fork(request, 1)
    assert cache.probe([1, 2, 3]) == 3
    assert request.shared == 3


def test_a_fork_remaps_the_row_to_what_others_published(new_cache):
    cache = new_cache()
    late = admit(cache, [1, 2, 3])
    early = store(cache, [1, 2, 3])
    fork = cache.fork(late, 1).requests[0]
    assert late.slots.tolist() == fork.slots.tolist() == early
    assert cache.free_size == 13


@pytest.mark.parametrize("store", [True, False])
def test_forking_copies_the_part_filled_page_and_no_other(new_cache, store):
    cache = new_cache(32, page_size=4)
    request = admit(cache, list(range(10)), store=store)
    (fork,), source, target = cache.fork(request, 1)
    assert source.tolist() == request.slots[8:].tolist()
    assert target.tolist() == fork.slots[8:].tolist()
    assert fork.slots[:8].tolist() == request.slots[:8].tolist()
    assert set(target.tolist()).isdisjoint(request.table[:12].tolist())
    assert cache.free_size == 32 - 16


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("store", [True, False])
def test_forks_extend_alone_and_see_nothing_of_each_other(new_cache, page_size, store):
    memory = Memory(64 + page_size)
    cache = new_cache(64, page_size=page_size, kv=memory)
    request = admit(cache, list(range(10)), store=store)
    memory.values[request.slots] = request.token_ids
    forked = cache.fork(request, 2)
    assert (len(forked.source), len(forked.target)) == (0, 0)
    everyone = [request, *forked.requests]
    for number, each in enumerate(everyone, 1):
        memory.values[cache.extend(each, [100 * number] * 3)] = 100 * number
    for number, each in enumerate(everyone, 1):
        tokens = [*range(10), *[100 * number] * 3]
        assert each.token_ids.tolist() == memory.values[each.slots].tolist() == tokens


def test_a_fork_may_do_all_that_a_request_may(new_cache, page_size):
    cache = new_cache(16 * page_size, page_size=page_size)
    request = admit(cache, in_pages([1, 2], page_size))
    fork = cache.fork(request, 1).requests[0]
    twin = cache.fork(fork, 1).requests[0]
    cache.finish(request, up_to=request.length)
    cache.extend(fork, in_pages([3], page_size))
    cache.publish(fork, 3 * page_size)
    cache.rollback(twin, page_size)
    cache.extend(twin, in_pages([4], page_size))
    cache.retract(twin)
    assert admit(cache, in_pages([1, 4], page_size), resume=twin).cached_len == page_size
    cache.finish(twin, up_to=twin.length)
    cache.abort(fork)
    assert cache.probe(in_pages([1, 2, 3], page_size)) == 3 * page_size
    assert cache.probe(in_pages([1, 4], page_size)) == 2 * page_size
    assert cache.stats().allocated == cache.stats().protected == 0


def test_forks_of_one_that_may_not_publish_share_its_slots_until_the_last_ends(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3], store=False)
    forks = cache.fork(request, 2).requests
    assert (resident(cache), cache.stats().allocated) == ({}, 3)
    for each in (forks[0], request):
        cache.finish(each, up_to=each.length)
        assert cache.free_size == 13
    cache.finish(forks[1], up_to=forks[1].length)
    assert cache.free_size == 16


def test_a_fork_after_a_forced_reset_shares_what_is_retired(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4])
    cache.publish(request, 2)
    cache.reset(force=True)
    fork = cache.fork(request, 1).requests[0]
    assert fork.slots.tolist() == request.slots.tolist()
    cache.finish(request, up_to=request.length)
    cache.extend(fork, [5])
    cache.finish(fork, up_to=fork.length)
    assert (resident(cache), cache.free_size) == ({}, 16)


def test_reserved_slots_stay_with_the_one_that_reserved(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2])
    reserved = cache.reserve(request, 3).tolist()
    fork = cache.fork(request, 1).requests[0]
    assert cache.free_size == 11
    assert fork.capacity == 2
    assert cache.reserve(request, 3).tolist() == reserved


def test_a_fork_keeps_content_and_namespace(new_cache):
    cache = new_cache()
    request = admit(cache, [5, 9, 9], content=[(1, 2, b"x")])
    fork = cache.fork(request, 1).requests[0]
    cache.extend(fork, [6])
    cache.finish(fork, up_to=fork.length)
    assert cache.probe([5, 9, 9, 6], content=[(1, 2, b"x")]) == 4
    assert cache.probe([5, 9, 9, 6], content=[(1, 2, b"y")]) == 1


def test_a_request_without_tokens_forks(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    request = admit(cache, [1, 2])
    cache.rollback(request, 0)
    fork = cache.fork(request, 1).requests[0]
    assert (fork.length, cache.free_size) == (0, 64)
    cache.extend(fork, [3])
    assert fork.token_ids.tolist() == [3]


def test_a_fork_without_a_row_is_refused_and_takes_nothing(new_cache):
    cache = new_cache(max_requests=3)
    request = admit(cache, [1, 2])
    before = picture(cache)
    assert cache.fork(request, 3) is None
    assert picture(cache) == before
    assert len(cache.fork(request, 2).requests) == 2


def test_a_fork_without_room_is_refused_and_takes_nothing(new_cache):
    """Not even published: a refusal that shows in the tree would not be one."""
    cache = new_cache(16, page_size=4)
    request = admit(cache, [1, 2, 3, 4, 5])
    before = picture(cache)
    assert cache.fork(request, 3) is None
    assert picture(cache) == before
    assert len(cache.fork(request, 2).requests) == 2


def test_a_fork_evicts_for_its_pages(new_cache):
    cache = new_cache(16, page_size=4)
    store(cache, [7, 8, 9, 9])
    request = admit(cache, [1, 2, 3, 4, 5])
    assert len(cache.fork(request, 2).requests) == 2
    assert cache.probe([7, 8, 9, 9]) == 0


@pytest.mark.parametrize("n", [0, -1, 1.0, "1", None, True])
def test_fork_takes_a_number_of_forks(new_cache, n):
    cache = new_cache()
    request = admit(cache, [1])
    with pytest.raises(InvalidArgumentError):
        cache.fork(request, n)


def test_a_fork_whose_copy_raises_leaves_nothing_behind(new_cache):
    cache = new_cache(32, page_size=4, kv=BrokenPool())
    request = admit(cache, [1, 2, 3, 4, 5, 6])
    with pytest.raises(RuntimeError, match="device"):
        cache.fork(request, 2)
    assert cache.live_requests == [request]
    assert cache.free_size == 24


class BrokenPool:
    def copy(self, source, target):
        raise RuntimeError("the device is gone")


class CallingPool:
    """Calls the cache while that waits for its copies."""

    call = staticmethod(lambda: None)

    def copy(self, source, target):
        self.call()


@pytest.mark.parametrize("verb", ["fork", "rollback"])
def test_a_pool_that_calls_the_cache_is_refused_and_nothing_changes(new_cache, verb):
    pool = CallingPool()
    cache = new_cache(64, page_size=4, kv=pool)
    request = admit(cache, range(1, 7))
    cache.publish(request, 6)
    pool.call = lambda: cache.admit([1])
    before = cache.stats()
    with pytest.raises(ReentrantCallError, match="in the middle"):
        cache.fork(request, 1) if verb == "fork" else cache.rollback(request, 3)
    assert cache.stats() == before
    assert cache.check_integrity() == []


@pytest.mark.parametrize("verb", ["fork", "rollback"])
def test_what_a_pool_ends_is_ended_once_the_call_is_over(new_cache, verb):
    pool = CallingPool()
    cache = new_cache(64, page_size=4, kv=pool)
    request = admit(cache, range(1, 7))
    cache.publish(request, 6)
    pool.call = lambda: cache.abort(request)
    forked = cache.fork(request, 1) if verb == "fork" else cache.rollback(request, 3)
    assert forked is not None
    assert request.state == "aborted"
    assert cache.check_integrity() == []
