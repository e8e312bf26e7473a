"""Numbers per request and in total: each token is counted once, and cached is never over prompt."""

from radixkv import Namespace
from tests.support.caches import admit, in_pages, store


def numbers(request):
    return (
        request.prompt_tokens,
        request.cached_tokens,
        request.resumed_tokens,
        request.published_tokens,
    )


def totals(cache, *names):
    stats = cache.stats()
    return tuple(getattr(stats, f"{name}_tokens") for name in names)


def test_a_miss_and_a_hit(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    first = admit(cache, in_pages([1, 2], page_size))
    cache.finish(first, up_to=first.length)
    second = admit(cache, in_pages([1, 2, 3], page_size))
    cache.finish(second, up_to=second.length)
    assert numbers(first) == (2 * page_size, 0, 0, 2 * page_size)
    assert numbers(second) == (3 * page_size, 2 * page_size, 0, page_size)
    assert totals(cache, "prompt", "cached", "published") == (
        5 * page_size,
        2 * page_size,
        3 * page_size,
    )


def test_chunks_count_each_token_once(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    for up_to in (1, 2, 2, 4, 5, 5):
        cache.publish(request, up_to)
    cache.finish(request, up_to=request.length)
    assert numbers(request) == (5, 0, 0, 5)
    assert totals(cache, "prompt", "published") == (5, 5)


def test_duplicates_are_not_published(new_cache):
    cache = new_cache()
    one, two = admit(cache, [1, 2, 3]), admit(cache, [1, 2, 4])
    cache.finish(one, up_to=one.length)
    cache.finish(two, up_to=two.length)
    assert numbers(two) == (3, 0, 0, 1)
    assert totals(cache, "published") == (4,)


def test_extended_tokens_are_no_prompt(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2])
    cache.extend(request, [3, 4])
    cache.finish(request, up_to=request.length)
    assert numbers(request) == (2, 0, 0, 4)


def test_what_a_resumed_request_finds_is_resumed_however_often(new_cache):
    cache = new_cache()
    store(cache, [1, 2])
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(request, 5)
    for _ in range(3):
        cache.retract(request)
        admit(cache, [1, 2, 3, 4, 5, 6], resume=request)
    cache.finish(request, up_to=request.length)
    assert numbers(request) == (5, 2, 15, 4)
    assert totals(cache, "prompt", "cached", "resumed") == (7, 2, 15)
    assert totals(cache, "lookup", "hit") == (7, 2)


def test_a_fork_has_no_prompt_and_what_it_finds_later_is_resumed(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    fork = cache.fork(request, 1).requests[0]
    assert numbers(fork) == (0, 0, 0, 0)
    cache.retract(fork)
    admit(cache, [1, 2, 3, 4], resume=fork)
    assert numbers(fork) == (0, 0, 3, 0)
    cache.finish(fork, up_to=fork.length)
    assert numbers(fork) == (0, 0, 3, 1)
    assert totals(cache, "prompt", "cached", "resumed") == (3, 0, 3)


def test_refusals_count_nothing(new_cache):
    cache = new_cache(4)
    store(cache, [1, 2])
    other = admit(cache, [7, 8])
    before = totals(cache, "prompt", "cached", "lookup", "hit", "evicted")
    assert cache.admit([1, 2, 3]) is None
    assert cache.extend(other, [1, 2]) is not None
    assert totals(cache, "prompt", "cached", "lookup", "hit") == before[:4]
    assert totals(cache, "evicted") == (before[4] + 2,)


def test_look_ups_count_and_probes_do_not(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    cache.match_prefix([1, 2, 9])
    cache.probe([1, 2, 3])
    cache.probe_batch([[1, 2, 3]])
    assert totals(cache, "lookup", "hit") == (6, 2)
    assert totals(cache, "prompt", "cached") == (3, 0)


def test_a_look_up_in_other_weights_is_a_miss(new_cache):
    cache = new_cache()
    cache.set_weight_version(2)
    cache.match_prefix([1, 2], Namespace(weight_version=1))
    assert totals(cache, "lookup", "hit") == (2, 0)


def test_evicted_tokens_are_counted_for_every_caller(new_cache):
    cache = new_cache(8, max_cached_tokens=5)
    store(cache, [1, 2, 3, 4, 5, 6])
    assert totals(cache, "evicted") == (1,)
    cache.evict(2)
    assert totals(cache, "evicted") == (3,)
    admit(cache, [7] * 7)
    assert totals(cache, "evicted") == (5,)
    cache.reset(force=True)
    assert totals(cache, "evicted") == (5,)


def test_numbers_live_through_a_reset(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    cache.publish(request, 3)
    cache.reset(force=True)
    cache.finish(request, up_to=request.length)
    assert numbers(request) == (3, 0, 0, 3)
    assert totals(cache, "prompt", "published") == (3, 3)
