"""Faults that users of prefix caches reported: who owns which slot, and for how long."""

import pytest

from radixkv import PrefixCache, Request
from radixkv.errors import LiveRequestsError, PromptTooLongError, RequestEndedError
from tests.support.caches import Memory, admit, in_pages, picture, resident, store

ENDINGS = ("finish", "abort", "retract")


# ---- B01: duplicates freed while the request still points at them ----


def test_B01_the_row_is_remapped_before_its_duplicates_are_freed(new_cache):
    cache = new_cache(12)
    one, two = admit(cache, [1, 2, 3, 4]), admit(cache, [1, 2, 3, 4])
    assert (one.slots.tolist(), two.slots.tolist()) == ([1, 2, 3, 4], [5, 6, 7, 8])
    cache.publish(one, 4)
    cache.publish(two, 4)
    assert two.slots.tolist() == [1, 2, 3, 4]
    assert admit(cache, [7, 7, 7, 7]).slots.tolist() == [5, 6, 7, 8]
    assert (cache.free_size, cache.tree.total_size, cache.stats().allocated) == (4, 4, 4)


def test_B01_the_lock_moves_to_what_the_row_names(new_cache):
    cache = new_cache(12)
    one, two = admit(cache, [1, 2, 3, 4]), admit(cache, [1, 2, 3, 4])
    cache.publish(one, 4)
    cache.publish(two, 4)
    cache.abort(one)
    assert cache.evict(4) == 0
    cache.abort(two)
    assert cache.evict(4) == 4


def publish_whole(cache: PrefixCache, request: Request) -> None:
    cache.publish(request, request.length)


def publish_in_chunks(cache: PrefixCache, request: Request) -> None:
    for up_to in range(0, request.length + 1, 3):
        cache.publish(request, up_to)


def publish_by_a_fork(cache: PrefixCache, request: Request) -> None:
    cache.fork(request, 1)


def publish_after_a_rollback(cache: PrefixCache, request: Request) -> None:
    tail = request.token_ids[-3:].copy()
    cache.rollback(request, request.length - 3)
    cache.publish(request, request.length)
    cache.extend(request, tail)


@pytest.mark.parametrize(
    "way", [publish_whole, publish_in_chunks, publish_by_a_fork, publish_after_a_rollback]
)
@pytest.mark.parametrize("overlap", [1, 2, 3])
def test_B01_no_way_of_sharing_leaves_a_row_behind(new_cache, page_size, way, overlap):
    """Whatever is computed next in freed slots, both rows read what was computed for them."""
    memory = Memory(33 * page_size)
    cache = new_cache(32 * page_size, page_size=page_size, kv=memory)
    one, two = (admit(cache, in_pages([*[1] * overlap, *[mark] * 3], page_size)) for mark in (2, 3))
    for request in (one, two):
        memory.values[request.slots] = request.token_ids
    for request in (one, two):
        way(cache, request)
        memory.values[request.slots[request.shared :]] = request.token_ids[request.shared :]
    assert one.slots[: overlap * page_size].tolist() == two.slots[: overlap * page_size].tolist()
    rest = cache.free_size
    memory.values[admit(cache, [7] * rest).slots] = 7
    for request in cache.live_requests:
        assert memory.values[request.slots].tolist() == request.token_ids.tolist()


def test_B01_a_resumed_request_is_remapped_too(new_cache):
    cache = new_cache(12)
    request = admit(cache, [1, 2, 3, 4])
    cache.retract(request)
    admit(cache, [1, 2, 3, 4], resume=request)
    slots = store(cache, [1, 2, 3, 4])
    cache.publish(request, 4)
    assert request.slots.tolist() == slots


# ---- B04: slots published mid-prefill, then freed by an abort ----


def test_B04_an_abort_frees_what_the_request_owns_and_no_more(new_cache):
    cache = new_cache(8)
    request = admit(cache, [1, 2, 3, 4, 5, 6])
    cache.publish(request, 2)
    cache.abort(request)
    assert sorted(cache.allocator.free_slots().tolist()) == [3, 4, 5, 6, 7, 8]
    assert cache.tree.evictable_size == 2
    assert cache.match_prefix([1, 2]).slots.tolist() == [1, 2]
    assert set(admit(cache, [7] * 6).slots.tolist()).isdisjoint({1, 2})


def admitted(cache: PrefixCache, page_size: int) -> Request:
    return admit(cache, in_pages([1, 2, 3, 4, 5, 6], page_size))


def after_a_chunk(cache: PrefixCache, page_size: int) -> Request:
    request = admitted(cache, page_size)
    cache.publish(request, 2 * page_size)
    return request


def after_all_chunks(cache: PrefixCache, page_size: int) -> Request:
    request = admitted(cache, page_size)
    for pages in (2, 4, 6):
        cache.publish(request, pages * page_size)
    return request


def after_a_remap(cache: PrefixCache, page_size: int) -> Request:
    request = admitted(cache, page_size)
    store(cache, in_pages([1, 2, 3, 4], page_size))
    cache.publish(request, 5 * page_size)
    return request


def after_a_hit(cache: PrefixCache, page_size: int) -> Request:
    store(cache, in_pages([1, 2, 3], page_size))
    return admitted(cache, page_size)


def while_decoding(cache: PrefixCache, page_size: int) -> Request:
    request = after_a_chunk(cache, page_size)
    cache.extend(request, [8])
    cache.reserve(request, 2)
    return request


def fork_once(cache: PrefixCache, request: Request) -> Request:
    forked = cache.fork(request, 1)
    assert forked is not None
    return forked.requests[0]


def after_a_fork(cache: PrefixCache, page_size: int) -> Request:
    request = while_decoding(cache, page_size)
    cache.abort(fork_once(cache, request))
    return request


def as_a_fork(cache: PrefixCache, page_size: int) -> Request:
    request = while_decoding(cache, page_size)
    fork = fork_once(cache, request)
    cache.finish(request, up_to=request.length)
    return fork


def after_a_rollback(cache: PrefixCache, page_size: int) -> Request:
    request = after_all_chunks(cache, page_size)
    cache.rollback(request, 3 * page_size + 1)
    return request


def after_a_resume(cache: PrefixCache, page_size: int) -> Request:
    request = after_a_chunk(cache, page_size)
    cache.retract(request)
    return admit(cache, in_pages([1, 2, 3, 4, 5, 6], page_size), resume=request)


def after_a_forced_reset(cache: PrefixCache, page_size: int) -> Request:
    request = after_a_chunk(cache, page_size)
    cache.reset(force=True)
    return request


def after_new_weights(cache: PrefixCache, page_size: int) -> Request:
    request = after_a_chunk(cache, page_size)
    cache.set_weight_version(2)
    return request


STAGES = (
    admitted,
    after_a_chunk,
    after_all_chunks,
    after_a_remap,
    after_a_hit,
    while_decoding,
    after_a_fork,
    as_a_fork,
    after_a_rollback,
    after_a_resume,
    after_a_forced_reset,
    after_new_weights,
)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("stage", STAGES)
def test_B04_B05_every_ending_after_every_stage_frees_once(new_cache, page_size, stage, ending):
    cache = new_cache(32 * page_size, page_size=page_size)
    request = stage(cache, page_size)
    before = resident(cache)
    published = set(request.slots[: request.shared].tolist())
    getattr(cache, ending)(request)
    after = picture(cache)
    assert before.items() <= after["tree"].items(), "what was cached stays, in the same slots"
    assert published <= set(after["tree"].values())
    assert cache.free_size + cache.tree.total_size == 32 * page_size
    assert cache.check_integrity() == []
    for again in ENDINGS:
        getattr(cache, again)(request)
        assert picture(cache) == after


# ---- B05: the last decode slot is released twice ----


def test_B05_the_slot_of_a_token_never_fed_back_is_freed_once(new_cache):
    cache = new_cache(16)
    request = admit(cache, [1, 2, 3])
    assert cache.extend(request, [8]).tolist() == [4]
    assert cache.reserve(request, 1).tolist() == [5]
    cache.finish(request, up_to=request.length)
    assert cache.match_prefix([1, 2, 3, 8, 9]).slots.tolist() == [1, 2, 3, 4]
    assert sorted(cache.allocator.free_slots().tolist()) == list(range(5, 17))
    before = picture(cache)
    cache.finish(request, up_to=request.length)
    assert picture(cache) == before


def test_B05_a_token_that_was_produced_but_not_computed_is_not_stored(new_cache):
    cache = new_cache(16)
    request = admit(cache, [1, 2, 3])
    cache.extend(request, [8, 9])
    cache.finish(request, up_to=4)
    assert cache.probe([1, 2, 3, 8, 9]) == 4
    assert cache.free_size == 12


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("stage", STAGES)
def test_B05_nothing_goes_on_after_an_end(new_cache, page_size, stage, ending):
    cache = new_cache(32 * page_size, page_size=page_size)
    request = stage(cache, page_size)
    getattr(cache, ending)(request)
    before = picture(cache)
    for call in (cache.extend, cache.commit):
        with pytest.raises(RequestEndedError):
            call(request, [1])
    for call in (cache.reserve, cache.publish, cache.fork, cache.rollback):
        with pytest.raises(RequestEndedError):
            call(request, 1)
    assert picture(cache) == before


# ---- B07: admission counts the request's own prefix as evictable ----


def test_B07_a_request_does_not_count_what_it_uses_as_room(new_cache):
    cache = new_cache(14)
    other = admit(cache, [7, 7, 7, 7])
    store(cache, [1, 2, 3, 4, 5, 6])
    assert (cache.free_size, cache.tree.evictable_size) == (4, 6)
    assert cache.admit([*range(1, 15)]) is None
    assert cache.tree.protected_size == 0, "the refused request's lock is released"
    assert cache.probe([1, 2, 3, 4, 5, 6]) == 6
    cache.abort(other)
    assert admit(cache, [*range(1, 15)]).cached_len == 6


def test_B07_what_the_pool_can_never_hold_is_an_error_and_leaves_no_lock(new_cache):
    cache = new_cache(10)
    store(cache, [1, 2, 3, 4, 5, 6])
    with pytest.raises(PromptTooLongError):
        cache.admit([*range(1, 15)])
    assert cache.evict(6) == 6


def test_B07_a_growing_request_does_not_count_its_own_tokens_as_room(new_cache):
    cache = new_cache(10)
    request = admit(cache, [1, 2, 3, 4, 5, 6])
    cache.publish(request, 6)
    admit(cache, [7, 7])
    assert cache.extend(request, [8, 8, 8]) is None
    assert len(cache.extend(request, [8, 8])) == 2


def test_B07_a_fork_does_not_count_the_forked_as_room(new_cache):
    cache = new_cache(12, page_size=4)
    request = admit(cache, list(range(9)))
    assert cache.fork(request, 1) is None
    cache.rollback(request, 8)
    assert cache.fork(request, 1)


# ---- B08: a full hit leaves no token to compute ----


def test_B08_the_last_token_is_computed_again_and_not_stored_twice(new_cache):
    cache = new_cache()
    first = store(cache, [1, 2, 3, 4])
    request = admit(cache, [1, 2, 3, 4])
    assert (request.cached_len, request.length - request.cached_len) == (3, 1)
    assert request.slots[3] not in first
    cache.finish(request, up_to=request.length)
    assert (cache.tree.total_size, cache.free_size) == (4, 12)
    assert cache.match_prefix([1, 2, 3, 4]).slots.tolist() == first


def test_B08_a_question_may_be_answered_in_full(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3, 4])
    assert cache.match_prefix([1, 2, 3, 4]).length == cache.probe([1, 2, 3, 4]) == 4


def test_B08_a_prompt_of_one_token_is_computed(new_cache):
    cache = new_cache()
    store(cache, [1])
    assert admit(cache, [1]).cached_len == 0


def test_B08_with_larger_pages_the_whole_last_page_is_computed(new_cache, page_size):
    cache = new_cache(8 * page_size, page_size=page_size)
    store(cache, in_pages([1, 2], page_size))
    request = admit(cache, in_pages([1, 2], page_size))
    assert request.cached_len == (page_size if page_size > 1 else 1)
    assert admit(cache, [*in_pages([1, 2], page_size), 3]).cached_len == 2 * page_size


def test_B08_a_resumed_request_computes_its_last_token(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4])
    cache.publish(request, 4)
    cache.retract(request)
    assert admit(cache, [1, 2, 3, 4], resume=request).cached_len == 3


# ---- B09: abort between match and allocation ----


def test_B09_a_hundred_aborts_leave_no_lock(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    for _ in range(100):
        request = admit(cache, [1, 2, 3, 4])
        cache.abort(request)
        cache.abort(request)
    assert cache.evict(3) == 3


def test_B09_a_hundred_refusals_leave_no_lock_and_no_row(new_cache):
    cache = new_cache(6)
    store(cache, [1, 2, 3])
    other = admit(cache, [7, 7, 7])
    for _ in range(100):
        assert cache.admit([1, 2, 3, 4]) is None
        cache.abort(None)
    cache.abort(other)
    assert cache.evict(3) == 3
    assert cache.req_to_token.free_size == cache.req_to_token.max_requests


def test_B09_a_hundred_errors_leave_no_lock_and_no_row(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    for _ in range(100):
        with pytest.raises(ValueError, match="priority"):
            cache.admit([1, 2, 3, 4], priority="high")
        with pytest.raises(ValueError, match="content"):
            cache.admit([1, 2, 3, 4], content=[(0, 9, b"x")])
    assert cache.evict(3) == 3
    assert cache.req_to_token.free_size == cache.req_to_token.max_requests


# ---- B10: flush while a request still holds a node ----


def test_B10_a_flush_is_refused_while_a_request_lives(new_cache):
    cache = new_cache()
    store(cache, [1, 2])
    request = admit(cache, [1, 2, 3])
    with pytest.raises(LiveRequestsError, match="1 live request"):
        cache.reset()
    cache.finish(request, up_to=request.length)
    cache.reset()
    assert cache.free_size == 16


@pytest.mark.parametrize("ending", ENDINGS)
def test_B10_an_old_request_touches_nothing_of_the_new_tree(new_cache, ending):
    cache = new_cache()
    store(cache, [1, 2])
    old = admit(cache, [1, 2, 3])
    cache.reset(force=True)
    slots = store(cache, [1, 2, 3, 4])
    before = resident(cache)
    getattr(cache, ending)(old)
    assert resident(cache) == before
    assert cache.match_prefix([1, 2, 3, 4]).slots.tolist() == slots
    assert cache.evict(99) == 4
    assert cache.free_size == 16


def test_B10_whatever_an_old_request_does_stays_outside_the_new_tree(new_cache, page_size):
    cache = new_cache(32 * page_size, page_size=page_size)
    old = after_a_chunk(cache, page_size)
    cache.reset(force=True)
    new = after_a_chunk(cache, page_size)
    before = resident(cache)
    fork = cache.fork(old, 1).requests[0]
    cache.rollback(fork, page_size)
    cache.extend(fork, [7])
    cache.publish(old, old.length)
    cache.finish(fork, up_to=fork.length)
    cache.finish(old, up_to=old.length)
    assert resident(cache) == before
    cache.abort(new)
    cache.reset()
    assert cache.free_size == 32 * page_size


def test_B10_two_flushes_over_one_old_request(new_cache):
    cache = new_cache()
    old = admit(cache, [1, 2, 3])
    cache.publish(old, 3)
    cache.reset(force=True)
    young = admit(cache, [1, 2, 3])
    cache.publish(young, 3)
    cache.reset(force=True)
    cache.finish(old, up_to=old.length)
    cache.finish(young, up_to=young.length)
    assert cache.free_size == 16
