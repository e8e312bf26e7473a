"""Faults that users of prefix caches reported: what matches, what is counted, what is refused."""

import pytest

from radixkv import Namespace, Request
from tests.support.caches import admit, picture, resident, store

IMAGE = 9


# ---- B14: namespaces joined as plain strings ----


def test_B14_namespaces_that_read_alike_when_joined_are_apart(new_cache):
    cache = new_cache(32)
    store(cache, [1, 2, 3], Namespace(salt="ab", adapter="c"))
    for other in (
        Namespace(salt="a", adapter="bc"),
        Namespace(salt="abc"),
        Namespace(adapter="abc"),
        Namespace(salt="ab", extra_key="c"),
        Namespace(salt="ab", adapter="c", extra_key=""),
    ):
        assert admit(cache, [1, 2, 3, 4], other, store=False).cached_len == 0
        assert cache.probe([1, 2, 3], other) == cache.match_prefix([1, 2, 3], other).length == 0


@pytest.mark.parametrize("field", ["salt", "adapter", "extra_key"])
def test_B14_none_is_neither_empty_nor_a_word(new_cache, field):
    cache = new_cache(32)
    spaces = [Namespace(**{field: value}) for value in (None, "", "None", "0")]
    for space in spaces:
        assert admit(cache, [1, 2, 3], space).cached_len == 0
        store(cache, [1, 2, 3], space)
    assert [cache.probe([1, 2, 3], space) for space in spaces] == [3] * 4
    assert cache.tree.total_size == 12


# ---- B15: same placeholder ids for different images ----


def test_B15_another_image_is_no_hit_though_its_last_16_bits_agree(new_cache):
    cache = new_cache()
    x, y = bytes(30) + b"\x12\x34", b"\x01" + bytes(29) + b"\x12\x34"
    store(cache, [5, IMAGE, IMAGE, 6], content=[(1, 2, x)])
    assert admit(cache, [5, IMAGE, IMAGE, 6, 7], content=[(1, 2, y)], store=False).cached_len == 1
    assert admit(cache, [5, IMAGE, IMAGE, 6, 7], content=[(1, 2, x)], store=False).cached_len == 4
    assert admit(cache, [5, IMAGE, IMAGE, 6, 7], store=False).cached_len == 1


def test_B15_content_is_compared_through_the_whole_life(new_cache):
    cache = new_cache(64)
    for name in (b"x", b"y"):
        request = admit(cache, [5, IMAGE, IMAGE, IMAGE, 6], content=[(1, 3, name)])
        assert request.cached_len == (0 if name == b"x" else 1)
        cache.publish(request, 2)
        cache.publish(request, 3)
        fork = cache.fork(request, 1).requests[0]
        cache.rollback(fork, 4)
        cache.retract(fork)
        again = [5, IMAGE, IMAGE, IMAGE, 6]
        assert admit(cache, again, resume=fork).cached_len == 4
        cache.finish(fork, up_to=fork.length)
        cache.finish(request, up_to=request.length)
    for name in (b"x", b"y"):
        assert cache.probe([5, IMAGE, IMAGE, IMAGE, 6], content=[(1, 3, name)]) == 5


def test_B15_a_span_that_begins_elsewhere_is_other_content(new_cache):
    cache = new_cache()
    store(cache, [5, IMAGE, IMAGE, IMAGE], content=[(1, 3, b"x")])
    assert cache.probe([5, IMAGE, IMAGE, IMAGE], content=[(2, 2, b"x")]) == 1
    assert cache.probe([5, IMAGE, IMAGE, IMAGE], content=[(1, 1, b"x"), (2, 2, b"x")]) == 2


# ---- B19: cached_tokens larger than the prompt ----


def test_B19_what_a_resumed_request_finds_is_not_cached_again(new_cache):
    cache = new_cache(128)
    store(cache, list(range(10)))
    request = admit(cache, list(range(100)))
    assert request.cached_len == 10
    cache.publish(request, 50)
    cache.publish(request, 95)
    cache.retract(request)
    assert admit(cache, list(range(100)), resume=request).cached_len == 95
    cache.finish(request, up_to=request.length)
    stats = cache.stats()
    assert (request.prompt_tokens, request.cached_tokens, request.resumed_tokens) == (100, 10, 95)
    assert (stats.prompt_tokens, stats.cached_tokens, stats.resumed_tokens) == (110, 10, 95)


def test_B19_cached_is_never_more_than_prompt_however_tight_memory_is(new_cache):
    cache = new_cache(8)
    waiting = [[1, 2, 3, 4, token] for token in range(5, 11)]
    for _ in range(60):
        one = waiting.pop(0)
        resume = one if isinstance(one, Request) else None
        tokens = one if resume is None else one.token_ids.tolist()
        request = cache.admit(tokens, resume=resume)
        if request is None:
            waiting.append(one)
            for live in cache.live_requests:
                cache.retract(live)
                waiting.append(live)
        else:
            cache.publish(request, 5)
    stats = cache.stats()
    assert (stats.prompt_tokens, stats.cached_tokens <= 30) == (30, True)
    assert stats.resumed_tokens > 30


# ---- B25: weight update keeps old K/V ----


def test_B25_new_weights_match_nothing_of_the_old(new_cache):
    cache = new_cache()
    cache.set_weight_version(1)
    store(cache, [1, 2])
    cache.set_weight_version(2)
    assert cache.match_prefix([1, 2]).length == 0
    assert admit(cache, [1, 2, 3]).cached_len == 0


@pytest.mark.parametrize("versions", [(1, 2), (1, 0), (1, 2, 1)])
def test_B25_a_request_that_straddles_the_change_publishes_nothing(new_cache, versions):
    cache = new_cache()
    first, *later = versions
    cache.set_weight_version(first)
    request = admit(cache, [1, 2, 3])
    cache.publish(request, 1)
    for version in later:
        cache.set_weight_version(version)
    cache.extend(request, [4])
    cache.publish(request, 4)
    fork = cache.fork(request, 1).requests[0]
    cache.finish(fork, up_to=fork.length)
    cache.finish(request, up_to=request.length)
    assert (resident(cache), cache.free_size) == ({}, 16)


def test_B25_a_request_resumed_under_new_weights_computes_all_again(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    cache.publish(request, 3)
    cache.retract(request)
    cache.set_weight_version(2)
    assert admit(cache, [1, 2, 3], resume=request).cached_len == 0
    cache.finish(request, up_to=request.length)
    assert cache.probe([1, 2, 3], Namespace(weight_version=2)) == 3


# ---- B27: an allocation miss kills the server ----


def test_B27_no_room_now_is_an_answer_and_takes_nothing(new_cache):
    cache = new_cache(8)
    other = admit(cache, [7, 7])
    before = picture(cache)
    assert cache.admit([1] * 8) is None
    assert picture(cache) == before
    cache.finish(other, up_to=other.length)
    assert admit(cache, [1] * 8)


def test_B27_every_call_that_needs_room_answers(new_cache):
    cache = new_cache(16, page_size=4)
    request = admit(cache, list(range(10)))
    cache.publish(request, 8)
    admit(cache, [7])
    before = picture(cache)
    assert cache.admit([1]) is None
    assert cache.extend(request, [1, 2, 3]) is None
    assert cache.reserve(request, 3) is None
    assert cache.fork(request, 1) is None
    assert cache.rollback(request, 6) is None
    assert picture(cache) == before


def test_B27_the_caller_requeues_until_there_is_room(new_cache):
    cache = new_cache(8)
    queue = [[token] * 5 for token in range(6)]
    served = []
    while queue:
        request = cache.admit(queue[0])
        if request is None:
            cache.finish(cache.live_requests[0], up_to=cache.live_requests[0].length)
            continue
        served.append(queue.pop(0)[0])
    assert served == list(range(6))


# ---- B28: prompt log-probs on a hit ----


def test_B28_a_hit_is_capped_where_outputs_are_wanted(new_cache):
    cache = new_cache(32)
    store(cache, list(range(1, 9)))
    for wanted_from in range(9):
        request = admit(cache, list(range(1, 9)), max_cached=wanted_from)
        assert request.cached_len == min(wanted_from, 7)
        cache.abort(request)


def test_B28_the_boundary_has_no_value_unless_the_token_before_is_computed(new_cache):
    """Position 2's log-prob comes out of position 1: to get it, cap one token earlier."""
    cache = new_cache(32)
    store(cache, list(range(1, 9)))
    request = admit(cache, list(range(1, 9)), max_cached=1)
    computed = range(request.cached_len, request.length)
    assert 1 in computed
    assert request.cached_len == 1


def test_B28_what_is_computed_again_is_not_stored_twice(new_cache):
    cache = new_cache(32)
    slots = store(cache, list(range(1, 9)))
    request = admit(cache, list(range(1, 9)), max_cached=2)
    cache.finish(request, up_to=request.length)
    assert cache.match_prefix(list(range(1, 9))).slots.tolist() == slots
    assert cache.free_size == 24


def test_B28_the_cap_is_rounded_down_to_pages(new_cache):
    cache = new_cache(32, page_size=4)
    store(cache, list(range(12)))
    assert admit(cache, list(range(12)), max_cached=7).cached_len == 4
