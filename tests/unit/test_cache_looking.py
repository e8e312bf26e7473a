"""What a cache answers, what it keeps and what it gives up."""

import pytest

from radixkv import Namespace
from radixkv.errors import (
    InvalidArgumentError,
)
from tests.support.caches import admit, in_pages, picture, store

ENDINGS = ("finish", "abort", "retract")


# ---- looking ----


def test_match_prefix_gives_length_and_slots(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    slots = store(cache, in_pages([1, 2, 3], page_size))
    match = cache.match_prefix(in_pages([1, 2, 9], page_size))
    assert match.length == 2 * page_size
    assert match.slots.tolist() == slots[: 2 * page_size]


def test_match_prefix_may_match_everything_and_takes_nothing(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    assert cache.match_prefix([1, 2, 3]).length == 3
    assert cache.evict(3) == 3


def test_match_prefix_is_recent_use_and_probe_is_none(new_cache):
    cache = new_cache()
    store(cache, [1, 2])
    store(cache, [3, 4])
    cache.match_prefix([1, 2])
    cache.probe([3, 4])
    cache.probe_batch([[3, 4]])
    cache.evict(2)
    assert cache.probe_batch([[1, 2], [3, 4]]) == [2, 0]


def test_probe_changes_nothing(new_cache):
    cache = new_cache()
    store(cache, [5, 9, 9, 6], content=[(1, 2, b"x")])
    before, nodes = picture(cache), list(map(repr, cache.tree.walk()))
    for content in ((), [(1, 2, b"x")], [(1, 2, b"y")], [(0, 3, b"x")]):
        cache.probe([5, 9, 9, 6], content=content)
    cache.probe_batch([[5, 9], [], [5]])
    assert picture(cache) == before
    assert list(map(repr, cache.tree.walk())) == nodes


@pytest.mark.parametrize("content", [(), [(1, 2, b"x")]])
def test_other_weights_see_nothing(new_cache, content):
    cache = new_cache()
    cache.set_weight_version(2)
    store(cache, [1, 2, 3], content=content)
    for version, seen in ((0, 3), (1, 0), (2, 3), (3, 0)):
        space = Namespace(weight_version=version)
        assert cache.probe([1, 2, 3], space, content=content) == seen
        assert cache.match_prefix([1, 2, 3], space, content=content).length == seen
        if not content:
            assert cache.probe_batch([[1, 2, 3]], space) == [seen]


# ---- what the tree keeps ----


def test_a_bounded_tree_keeps_the_beginning_of_a_longer_prompt(new_cache, page_size):
    cache = new_cache(16 * page_size, page_size=page_size, max_cached_tokens=4 * page_size)
    store(cache, in_pages([1, 2, 3, 4, 5, 6, 7], page_size))
    assert cache.tree.total_size == 4 * page_size
    assert cache.probe(in_pages([1, 2, 3, 4, 5], page_size)) == 4 * page_size


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_bounded_tree_is_bound_as_soon_as_locks_allow(new_cache, ending):
    cache = new_cache(max_cached_tokens=3)
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(request, 5)
    assert cache.tree.total_size == 5
    getattr(cache, ending)(request)
    assert cache.tree.total_size == 3


def test_a_bounded_tree_is_bound_after_a_fork_and_a_rollback(new_cache):
    cache = new_cache(max_cached_tokens=3)
    store(cache, [7, 8, 9])
    request = admit(cache, [1, 2])
    fork = cache.fork(request, 1).requests[0]
    assert cache.tree.total_size == 3
    for each in (request, fork):
        cache.extend(each, [3, 4])
        cache.publish(each, 4)
    assert cache.tree.total_size == 4
    cache.rollback(request, 1)
    assert cache.tree.total_size == 4
    cache.rollback(fork, 1)
    assert cache.tree.total_size == 3


def test_a_tree_bounded_to_nothing_keeps_what_is_in_use_only(new_cache):
    cache = new_cache(max_cached_tokens=0)
    request = admit(cache, [1, 2, 3])
    cache.publish(request, 3)
    assert admit(cache, [1, 2, 3, 4]).cached_len == 3
    cache.finish(request, up_to=request.length)
    assert cache.probe([1, 2, 3]) == 3
    cache.finish(cache.live_requests[0], up_to=cache.live_requests[0].length)
    assert cache.tree.total_size == 0


def test_priority_decides_who_stays(new_cache):
    cache = new_cache(policy="priority")
    store(cache, [1, 2], priority=5)
    store(cache, [3, 4], priority=-1)
    store(cache, [5, 6])
    assert cache.evict(2) == 2
    assert cache.probe_batch([[1, 2], [3, 4], [5, 6]]) == [2, 0, 2]
    assert cache.evict(2) == 2
    assert cache.probe_batch([[1, 2], [3, 4], [5, 6]]) == [2, 0, 0]


@pytest.mark.parametrize(("n", "evicted"), [(0, 0), (1, 4), (4, 4), (5, 8), (99, 12)])
def test_evict_gives_up_whole_pages(new_cache, n, evicted):
    cache = new_cache(page_size=4)
    store(cache, list(range(12)))
    assert cache.evict(n) == evicted
    assert cache.free_size == 4 + evicted


@pytest.mark.parametrize("n", [-1, 1.5, "1", None])
def test_evict_takes_a_number(new_cache, n):
    with pytest.raises(InvalidArgumentError):
        new_cache().evict(n)


# ---- sizes ----


def test_sizes_sum_to_the_pool(new_cache, page_size):
    cache = new_cache(8 * page_size, page_size=page_size)
    store(cache, in_pages([1, 2], page_size))
    request = admit(cache, in_pages([1, 2, 3], page_size))
    cache.reset(force=True)
    store(cache, in_pages([7], page_size))
    other = admit(cache, in_pages([8, 9], page_size))
    cache.publish(other, page_size)
    stats = cache.stats()
    parts = (stats.free, stats.allocated, stats.evictable, stats.protected, stats.waiting)
    assert parts == tuple(n * page_size for n in (2, 2, 1, 1, 2))
    assert stats.num_slots == sum(parts)
    assert stats.live_requests == 2
    cache.abort(request)
    assert cache.stats().waiting == 0


@pytest.mark.parametrize("ask", ["match_batch", "match_lengths"])
def test_prompts_of_a_batch_are_counted_as_looked_up(new_cache, ask):
    cache = new_cache()
    cache.finish(done := cache.admit([1, 2, 3]), up_to=done.length)
    before = cache.stats()
    getattr(cache, ask)([[1, 2, 9], [7]])
    after = cache.stats()
    assert after.lookup_tokens - before.lookup_tokens == 4
    assert after.hit_tokens - before.hit_tokens == 2
