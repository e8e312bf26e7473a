"""What a cache is made with, and what `admit` gives."""

from array import array

import numpy as np
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.errors import (
    InvalidArgumentError,
    InvalidContentError,
    InvalidNamespaceError,
    InvalidTokensError,
    PromptTooLongError,
    StaleWeightsError,
)
from tests.support.caches import admit, in_pages, picture, store

# ---- the cache ----


@pytest.mark.parametrize(
    "how",
    [
        {"num_slots": 0},
        {"num_slots": -4},
        {"num_slots": 2.0},
        {"num_slots": 6, "page_size": 4},
        {"page_size": 0},
        {"page_size": True},
        {"max_requests": 0},
        {"max_context_len": 0},
        {"max_context_len": "8"},
        {"max_cached_tokens": -1},
        {"max_cached_tokens": "8"},
        {"policy": "oldest"},
        {"core": "rust"},
    ],
    ids=str,
)
def test_a_cache_refuses_what_cannot_work(how):
    with pytest.raises(InvalidArgumentError):
        PrefixCache(**{"num_slots": 16, **how})


def test_a_row_is_as_long_as_the_pool_by_default(core):
    assert PrefixCache(40, core=core).max_context_len == 40
    assert PrefixCache(40, max_context_len=7, core=core).max_context_len == 7
    assert PrefixCache(200_000, max_requests=1, core=core).max_context_len == 131_072


def test_a_row_holds_the_whole_last_page_of_a_context_that_ends_inside_one(new_cache):
    cache = new_cache(page_size=4, max_context_len=6)
    request = admit(cache, [1] * 6)
    assert request.table[:8].tolist() == list(range(4, 12))
    with pytest.raises(PromptTooLongError):
        cache.extend(request, [2])
    with pytest.raises(PromptTooLongError):
        cache.commit(request, [2])


# ---- admit ----


def test_admit_gives_each_token_a_slot(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    request = admit(cache, [7, 8, 9])
    assert request.slots.tolist() == list(range(page_size, page_size + 3))
    assert request.slots.dtype == np.int32
    assert request.token_ids.tolist() == [7, 8, 9]
    assert request.state == "running"
    assert (request.length, request.cached_len) == (3, 0)
    assert cache.live_requests == [request]


def test_slots_are_a_view_of_the_row(new_cache):
    cache = new_cache()
    request = admit(cache, [7, 8, 9])
    assert np.shares_memory(request.slots, cache.req_to_token.rows[request.row])


def test_admit_begins_with_what_is_cached(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    first = store(cache, in_pages([1, 2, 3], page_size))
    request = admit(cache, in_pages([1, 2, 9], page_size))
    assert request.cached_len == 2 * page_size
    assert request.slots[: 2 * page_size].tolist() == first[: 2 * page_size]
    assert not set(request.slots[2 * page_size :].tolist()) & set(first)


def test_admit_matches_whole_pages_only(new_cache):
    cache = new_cache(page_size=4)
    store(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    assert admit(cache, [1, 2, 3, 4, 5, 6, 9]).cached_len == 4


@pytest.mark.parametrize(("max_cached", "cached"), [(0, 0), (2, 2), (5, 5), (99, 5), (None, 5)])
def test_admit_matches_at_most_max_cached(new_cache, max_cached, cached):
    cache = new_cache()
    store(cache, [1, 2, 3, 4, 5, 6])
    assert admit(cache, [1, 2, 3, 4, 5, 6], max_cached=max_cached).cached_len == cached


def test_every_request_has_an_id_of_its_own(new_cache):
    cache = new_cache(8, max_requests=2)
    ids = []
    for token in range(5):
        request = admit(cache, [token, token])
        assert cache.admit([1] * 8) is None
        ids.append(request.id)
        cache.abort(request)
    assert len(set(ids)) == 5


def test_admit_is_refused_without_a_row_and_takes_nothing(new_cache):
    cache = new_cache(max_requests=1)
    first = admit(cache, [1, 2])
    before = picture(cache)
    assert cache.admit([3]) is None
    assert picture(cache) == before
    cache.finish(first, up_to=first.length)
    assert admit(cache, [3])


def test_admit_is_refused_without_room_and_takes_nothing(new_cache, page_size):
    cache = new_cache(4 * page_size, page_size=page_size)
    admit(cache, in_pages([1, 2], page_size))
    store(cache, in_pages([5], page_size))
    before = picture(cache)
    assert cache.admit(in_pages([5, 6, 7], page_size)) is None
    assert picture(cache) == before


def test_admit_evicts_what_it_needs_and_no_more(new_cache, page_size):
    cache = new_cache(4 * page_size, page_size=page_size)
    store(cache, in_pages([1, 2, 3, 4], page_size))
    admit(cache, in_pages([7, 8], page_size))
    assert cache.probe(in_pages([1, 2, 3, 4], page_size)) == 2 * page_size
    assert cache.stats().evicted_tokens == 2 * page_size


def test_admit_evicts_nothing_that_it_is_about_to_use(new_cache):
    cache = new_cache(6)
    store(cache, [1, 2, 3])
    store(cache, [7, 8, 9])
    request = admit(cache, [1, 2, 3, 4, 5, 6])
    assert request.cached_len == 3
    assert cache.probe([7, 8, 9]) == 0


@pytest.mark.parametrize(
    ("error", "args", "how"),
    [
        (InvalidArgumentError, [[]], {}),
        (InvalidTokensError, [[1, -1]], {}),
        (InvalidTokensError, [[1, 2**31]], {}),
        (InvalidTokensError, [[1.5]], {}),
        (InvalidTokensError, ["12"], {}),
        (InvalidTokensError, [None], {}),
        (InvalidTokensError, [b"\x01\x00"], {}),
        (InvalidTokensError, [np.ones((2, 2), np.int32)], {}),
        (PromptTooLongError, [[1] * 17], {}),
        (PromptTooLongError, [[1] * 10], {}),
        (InvalidNamespaceError, [[1], None], {}),
        (InvalidNamespaceError, [[1], "tenant"], {}),
        (StaleWeightsError, [[1], Namespace(weight_version=7)], {}),
        (InvalidContentError, [[1, 2]], {"content": [(0, 3, b"x")]}),
        (InvalidContentError, [[1, 2]], {"content": [(0, 1, "x")]}),
        (InvalidContentError, [[1, 2]], {"content": [(1, 1, b"x"), (0, 1, b"x")]}),
        (InvalidArgumentError, [[1]], {"max_cached": -1}),
        (InvalidArgumentError, [[1]], {"max_cached": "1"}),
        (InvalidArgumentError, [[1]], {"priority": "high"}),
        (InvalidArgumentError, [[1]], {"priority": None}),
    ],
)
def test_admit_refuses_a_wrong_argument_and_changes_nothing(new_cache, error, args, how):
    cache = new_cache(max_context_len=9)
    store(cache, [1, 2, 3])
    before = picture(cache)
    with pytest.raises(error):
        cache.admit(*args, **how)
    assert picture(cache) == before


def test_a_prompt_too_long_names_both_lengths(new_cache):
    with pytest.raises(PromptTooLongError, match="17 tokens") as caught:
        new_cache().admit([1] * 17)
    assert caught.value.details == {"length": 17, "most": 16}


@pytest.mark.parametrize(
    "of",
    [
        list,
        tuple,
        lambda ids: array("i", ids),
        lambda ids: np.array(ids, np.int32).tobytes(),
        lambda ids: np.array(ids, np.int32),
        lambda ids: np.array(ids, np.int64),
        lambda ids: np.array(ids, np.uint16),
        lambda ids: np.array([0, *ids, 0], np.int32)[1:-1],
        lambda ids: np.repeat(np.array(ids, np.int32), 2)[::2],
    ],
    ids=["list", "tuple", "array", "bytes", "int32", "int64", "uint16", "slice", "strided"],
)
def test_every_call_takes_every_form_of_tokens(new_cache, of):
    cache = new_cache()
    request = admit(cache, of([1, 2, 3]))
    cache.extend(request, of([4, 5]))
    cache.reserve(request, 1)
    cache.commit(request, of([6]))
    cache.finish(request, up_to=request.length)
    assert cache.probe(of([1, 2, 3, 4, 5, 6])) == 6
    assert cache.match_prefix(of([1, 2, 3, 9])).length == 3
    assert cache.probe_batch([of([1, 2]), of([9])]) == [2, 0]


def test_the_callers_buffer_is_not_kept(new_cache):
    cache = new_cache()
    tokens = np.array([1, 2, 3], np.int32)
    request = admit(cache, tokens)
    cache.extend(request, tokens)
    tokens[:] = 9
    assert request.token_ids.tolist() == [1, 2, 3, 1, 2, 3]
    cache.finish(request, up_to=request.length)
    tokens[:] = 9
    assert cache.probe([1, 2, 3, 1, 2, 3]) == 6


def test_a_cache_shows_what_it_is_and_how_full(core):
    cache = PrefixCache(16, page_size=2, policy="lfu", core=core)
    cache.finish(done := cache.admit([1, 2, 3, 4]), up_to=done.length)
    cache.admit([1, 2, 5])
    assert repr(cache) == (
        f"<PrefixCache {core} slots=16 page_size=2 policy=lfu cached=4 free=10 requests=1>"
    )


@pytest.mark.parametrize("most", [2**31, 2**62])
def test_rows_that_no_memory_holds_are_refused_in_our_words(core, most):
    with pytest.raises(InvalidArgumentError, match=r"max_requests rows .* must fit in memory"):
        PrefixCache(1_000, max_requests=most, core=core)
