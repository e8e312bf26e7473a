"""A request grows and shares: extend, reserve and commit, publish."""

import numpy as np
import pytest

from radixkv.errors import (
    InvalidArgumentError,
    PromptTooLongError,
)
from tests.support.caches import admit, picture, resident, store

# ---- extend, reserve and commit ----


def test_extend_gives_the_slots_of_the_new_tokens(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    request = admit(cache, [1, 2, 3])
    slots = cache.extend(request, [4, 5, 6])
    assert slots.tolist() == request.slots[3:].tolist()
    assert slots.dtype == np.int32
    assert len(set(request.slots.tolist())) == 6
    assert request.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert cache.extend(request, []).tolist() == []


def test_extend_fills_the_last_page_before_it_takes_another(new_cache):
    cache = new_cache(page_size=4)
    request = admit(cache, [1, 2, 3])
    assert cache.extend(request, [4]).tolist() == [7]
    assert cache.free_size == 12
    assert cache.extend(request, [5]).tolist() == [8]
    assert cache.free_size == 8


def test_extend_is_refused_without_room_and_takes_nothing(new_cache):
    cache = new_cache(8)
    request = admit(cache, [1, 2, 3])
    other = admit(cache, [7, 8, 9, 9])
    before = picture(cache)
    assert cache.extend(request, [4, 5]) is None
    assert picture(cache) == before
    cache.abort(other)
    assert len(cache.extend(request, [4, 5])) == 2


def test_extend_evicts(new_cache):
    cache = new_cache(8)
    store(cache, [7, 8, 9])
    request = admit(cache, [1, 2, 3, 4])
    assert len(cache.extend(request, [5, 6])) == 2
    assert cache.probe([7, 8, 9]) == 2


def test_what_never_fits_is_an_error(new_cache):
    cache = new_cache(8, max_context_len=6)
    request = admit(cache, [1, 2, 3])
    for call in (cache.extend, cache.commit):
        with pytest.raises(PromptTooLongError):
            call(request, [1, 2, 3, 4])
    with pytest.raises(PromptTooLongError):
        cache.reserve(request, 4)
    assert request.length == 3


def test_reserving_again_names_the_same_slots_first(new_cache, page_size):
    cache = new_cache(64, page_size=page_size)
    request = admit(cache, [1, 2, 3])
    slots = cache.reserve(request, 3).tolist()
    assert cache.reserve(request, 5).tolist()[:3] == slots
    assert cache.reserve(request, 3).tolist() == slots
    assert request.length == 3
    cache.commit(request, [4, 5, 6])
    assert request.slots[3:].tolist() == slots


def test_commit_takes_no_more_than_was_reserved(new_cache):
    cache = new_cache()
    request = admit(cache, [1])
    cache.reserve(request, 2)
    cache.commit(request, [2])
    with pytest.raises(InvalidArgumentError, match="1 tokens or fewer, as reserved; got 2"):
        cache.commit(request, [3, 4])
    cache.commit(request, [3])
    assert request.token_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("n", [-1, 1.0, "1", None, True])
def test_reserve_takes_a_number(new_cache, n):
    cache = new_cache()
    request = admit(cache, [1])
    with pytest.raises(InvalidArgumentError):
        cache.reserve(request, n)


# ---- publish ----


def test_publish_shares_whole_pages(new_cache):
    cache = new_cache(page_size=4)
    request = admit(cache, [1, 2, 3, 4, 5, 6])
    cache.publish(request, 3)
    assert cache.probe([1, 2, 3, 4]) == 0
    cache.publish(request, 6)
    assert cache.probe([1, 2, 3, 4, 5, 6]) == 4
    assert (request.shared, cache.stats().allocated) == (4, 4)


def test_publish_is_idempotent(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4])
    cache.publish(request, 3)
    before = picture(cache)
    for up_to in (3, 2, 0):
        cache.publish(request, up_to)
        assert picture(cache) == before


def test_publish_shares_chunk_by_chunk(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    for up_to in range(6):
        cache.publish(request, up_to)
        assert cache.probe([1, 2, 3, 4, 5]) == up_to
        assert cache.tree.protected_size == up_to


def test_what_is_published_is_protected_until_the_end(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4])
    cache.publish(request, 4)
    assert cache.evict(4) == 0
    cache.finish(request, up_to=request.length)
    assert cache.evict(4) == 4


@pytest.mark.parametrize("up_to", [-1, 4, 2.0, "2", None])
def test_publish_refuses_more_than_there_is(new_cache, up_to):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    cache.reserve(request, 4)
    before = picture(cache)
    with pytest.raises(InvalidArgumentError):
        cache.publish(request, up_to)
    assert picture(cache) == before


def test_store_false_is_never_published(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3], store=False)
    cache.publish(request, 3)
    cache.retract(request)
    request = admit(cache, [1, 2, 3], resume=request)
    cache.finish(request, up_to=request.length)
    assert resident(cache) == {}
    assert cache.free_size == 16
    assert cache.events.revision == 0


def test_store_false_still_begins_with_what_is_cached(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    assert admit(cache, [1, 2, 3, 4], store=False).cached_len == 3


def test_slots_begin_in_the_page_that_is_begun(new_cache):
    """As many are asked for as a page has, which are not those of the next page."""
    cache = new_cache(page_size=4)
    request = admit(cache, [1, 2, 3, 4, 5])
    slots = cache.reserve(request, 4)
    assert slots.tolist() == request.table[5:9].tolist()
    assert cache.extend(request, [6, 7, 8, 9]).tolist() == slots.tolist()
