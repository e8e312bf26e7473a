"""How a request ends, and how a retracted one comes back."""

import pytest

from radixkv import DEFAULT, Namespace
from radixkv.errors import (
    InvalidArgumentError,
    InvalidContentError,
    InvalidNamespaceError,
    RequestEndedError,
)
from tests.support.caches import admit, picture

ENDINGS = ("finish", "abort", "retract")


# ---- the ends ----


def test_finish_publishes_what_is_computed(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.finish(request, up_to=3)
    assert cache.probe([1, 2, 3, 4, 5]) == 3
    assert cache.free_size == 13
    assert request.state == "finished"


def test_finish_without_up_to_caches_what_was_published_and_nothing_else(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    cache.publish(request, 4)
    cache.finish(request)
    assert admit(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]).cached_len == 4
    never = admit(cache, [8, 8, 8])
    cache.finish(never)
    assert cache.probe([8, 8, 8]) == 0
    assert cache.check_integrity() == []


def test_finish_keeps_what_was_published_whatever_up_to_says(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(request, 4)
    cache.finish(request, up_to=1)
    assert cache.probe([1, 2, 3, 4, 5]) == 4


@pytest.mark.parametrize("up_to", [-1, 4, "2"])
def test_finish_refuses_more_than_there_is(new_cache, up_to):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    with pytest.raises(InvalidArgumentError):
        cache.finish(request, up_to)
    assert request.state == "running"


@pytest.mark.parametrize("ending", ["abort", "retract"])
def test_abort_and_retract_publish_nothing_more(new_cache, ending):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(request, 2)
    getattr(cache, ending)(request)
    assert cache.probe([1, 2, 3, 4, 5]) == 2
    assert cache.free_size == 14


@pytest.mark.parametrize("again", ENDINGS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_idempotent(new_cache, ending, again):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    getattr(cache, ending)(request)
    state = request.state
    other = admit(cache, [7, 8])
    assert other.row == request.row
    before = picture(cache)
    getattr(cache, again)(request)
    assert picture(cache) == before
    assert request.state == ("aborted" if (state, again) == ("retracted", "abort") else state)


def test_abort_takes_a_request_that_never_was(new_cache):
    new_cache().abort(None)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ended_request_has_no_slots_and_keeps_its_tokens(new_cache, ending):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    getattr(cache, ending)(request)
    assert request.slots.tolist() == []
    assert request.token_ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ended_request_does_not_go_on(new_cache, ending):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    getattr(cache, ending)(request)
    before = picture(cache)
    for call in (
        lambda: cache.extend(request, [4]),
        lambda: cache.reserve(request, 1),
        lambda: cache.commit(request, [4]),
        lambda: cache.publish(request, 1),
        lambda: cache.fork(request, 1),
        lambda: cache.rollback(request, 1),
    ):
        with pytest.raises(
            RequestEndedError, match=f"got request {request.id}, which is {request.state}"
        ):
            call()
    assert picture(cache) == before


def test_a_request_of_another_cache_is_refused_and_harms_neither(new_cache):
    one, two = new_cache(), new_cache()
    request, other = admit(one, [1, 2, 3]), admit(two, [7, 8])
    before = picture(one), picture(two)
    for call in (
        lambda: two.extend(request, [4]),
        lambda: two.reserve(request, 1),
        lambda: two.commit(request, [4]),
        lambda: two.publish(request, 1),
        lambda: two.finish(request, up_to=request.length),
        lambda: two.abort(request),
        lambda: two.retract(request),
        lambda: two.fork(request, 1),
        lambda: two.rollback(request, 1),
    ):
        with pytest.raises(InvalidArgumentError, match="another cache"):
            call()
    assert (picture(one), picture(two)) == before
    one.retract(request)
    with pytest.raises(InvalidArgumentError, match="another cache"):
        two.admit([1, 2, 3], resume=request)
    with pytest.raises(InvalidArgumentError, match="another cache"):
        two.abort(request)
    assert request.state == "retracted"
    assert two.live_requests == [other]


# ---- resume ----


def test_a_retracted_request_comes_back_as_itself(new_cache):
    cache = new_cache()
    space = Namespace(salt="a")
    request = admit(cache, [1, 2, 3], space, priority=2)
    cache.extend(request, [4])
    cache.publish(request, 3)
    cache.retract(request)
    again = admit(cache, [1, 2, 3, 4], resume=request)
    assert again is request
    assert (request.state, request.cached_len, request.length) == ("running", 3, 4)
    assert (request.namespace, request.priority) == (space, 2)
    assert cache.live_requests == [request]


def test_a_request_that_cannot_come_back_now_may_later(new_cache):
    cache = new_cache(8)
    request = admit(cache, [1, 2, 3, 4])
    cache.retract(request)
    other = admit(cache, [7] * 6)
    before = picture(cache)
    assert cache.admit([1, 2, 3, 4], resume=request) is None
    assert (picture(cache), request.state) == (before, "retracted")
    cache.finish(other, up_to=other.length)
    assert admit(cache, [1, 2, 3, 4], resume=request) is request


@pytest.mark.parametrize("ending", ["finish", "abort", None])
def test_only_a_retracted_request_comes_back(new_cache, ending):
    cache = new_cache()
    request = admit(cache, [1, 2])
    if ending:
        getattr(cache, ending)(request)
    with pytest.raises(RequestEndedError):
        cache.admit([1, 2], resume=request)


def test_a_retracted_request_that_is_aborted_does_not_come_back(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2])
    cache.retract(request)
    cache.abort(request)
    assert request.state == "aborted"
    with pytest.raises(RequestEndedError):
        cache.admit([1, 2], resume=request)


def test_a_resumed_request_keeps_its_namespace(new_cache):
    cache = new_cache()
    cache.set_weight_version(3)
    space = Namespace(salt="a")
    request = admit(cache, [1, 2, 3], space)
    cache.retract(request)
    with pytest.raises(InvalidNamespaceError):
        cache.admit([1, 2, 3], Namespace(salt="b"), resume=request)
    for given in (DEFAULT, space, Namespace(salt="a", weight_version=3), request.namespace):
        assert admit(cache, [1, 2, 3], given, resume=request) is request
        cache.retract(request)


@pytest.mark.parametrize(
    "given", [{"content": [(0, 1, b"y")]}, {"store": False}, {"priority": 5}], ids=str
)
def test_a_resumed_request_takes_nothing_else_again(new_cache, given):
    cache = new_cache()
    request = admit(cache, [5, 9, 9, 6], content=[(1, 2, b"x")], priority=2)
    cache.retract(request)
    before = picture(cache)
    (name,) = given
    with pytest.raises(InvalidArgumentError, match=f"^{name} must be that of the resumed request"):
        cache.admit([5, 9, 9, 6], resume=request, **given)
    with pytest.raises(InvalidContentError):
        cache.admit([5, 9, 9, 6], resume=request, content=[(0, 9, b"x")])
    assert (picture(cache), request.state) == (before, "retracted")
    same = {"content": [(1, 2, b"x")], "store": True, "priority": 2}
    assert admit(cache, [5, 9, 9, 6], resume=request, **same) is request


def test_a_resumed_request_keeps_its_content(new_cache):
    cache = new_cache()
    request = admit(cache, [5, 9, 9, 6], content=[(1, 2, b"x")])
    cache.publish(request, 4)
    cache.retract(request)
    assert admit(cache, [5, 9, 9, 6, 7], resume=request).cached_len == 4
    cache.finish(request, up_to=request.length)
    assert cache.probe([5, 9, 9, 6, 7], content=[(1, 2, b"x")]) == 5
    assert cache.probe([5, 9, 9, 6, 7]) == 1


@pytest.mark.parametrize("call", ["finish", "retract"])
@pytest.mark.parametrize("request_", [None, "x"])
def test_what_is_no_request_is_refused(new_cache, call, request_):
    with pytest.raises(InvalidArgumentError, match="must be a Request; got"):
        getattr(new_cache(), call)(request_)
