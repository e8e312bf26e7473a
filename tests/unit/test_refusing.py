"""A cache in which memory ran out half-way refuses its calls and says why; others go on."""

import pytest

from radixkv import PrefixCache, errors


def fails(breaks, error):
    """In place of a request's end: it gives back its slots, or it does not, and fails."""

    def end(self, request, state, fence):
        if breaks:
            self._ledger.give_back(request.table[: request.capacity], fence)
        raise error

    return end


@pytest.fixture
def request_of(cache):
    return cache.admit([1, 2, 3])


@pytest.fixture(params=["python", "native"])
def cache(request):
    if request.param == "native":
        pytest.importorskip("radixkv.kernels._core")
    return PrefixCache(16, core=request.param)


def abort(cache, request, monkeypatch, breaks, error):
    with monkeypatch.context() as patch:
        patch.setattr("radixkv.cache.lifecycle.Lifecycle.end", fails(breaks, error))
        with pytest.raises(MemoryError):
            cache.abort(request)


def test_a_sound_cache_goes_on(cache, request_of, monkeypatch):
    abort(cache, request_of, monkeypatch, False, MemoryError("here"))
    assert cache.violations == ()
    cache.abort(request_of)
    assert cache.check_integrity() == []


def test_a_broken_cache_refuses_and_says_why(cache, request_of, monkeypatch):
    abort(cache, request_of, monkeypatch, True, MemoryError("here"))
    assert cache.violations[0] == "a call failed with MemoryError('here')"
    assert any("I1" in line for line in cache.violations)
    for call in (lambda: cache.match_prefix([1]), lambda: cache.loans.new_borrower()):
        with pytest.raises(errors.CacheCorruptedError, match="MemoryError"):
            call()
    assert cache.check_integrity() == list(cache.violations)
    assert cache.stats().num_slots == 16


def test_a_cache_that_cannot_be_checked_refuses(cache, request_of, monkeypatch):
    def no_memory(view):
        raise MemoryError

    monkeypatch.setattr("radixkv.cache.prefix_cache.check_slices", no_memory)
    abort(cache, request_of, monkeypatch, False, MemoryError())
    with pytest.raises(errors.CacheCorruptedError, match="to check the cache"):
        cache.match_prefix([1])


def test_what_the_core_undid_is_not_looked_for(cache, request_of, monkeypatch):
    def must_not(view):
        raise AssertionError("checked")

    with monkeypatch.context() as patch:
        patch.setattr("radixkv.cache.prefix_cache.check_slices", must_not)
        abort(cache, request_of, monkeypatch, False, errors.OutOfMemoryError("here"))
    assert cache.match_prefix([1]).length == 0


def test_a_change_that_is_not_logged_has_it_refuse(cache, request_of, monkeypatch):
    def no_memory(changes):
        raise MemoryError

    monkeypatch.setattr(cache.events, "append", no_memory)
    with pytest.raises(MemoryError):
        cache.publish(request_of, 3)
    with pytest.raises(errors.CacheCorruptedError, match="before a change was logged"):
        cache.finish(request_of, up_to=request_of.length)
