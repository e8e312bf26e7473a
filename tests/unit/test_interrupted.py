"""Calls and exceptions at every place in a call where the interpreter runs signal handlers."""

import contextlib
import dis
import gc
import os
import sys
import threading
from functools import partial

import pytest

import radixkv.cache
from radixkv import PrefixCache, errors
from radixkv.cache.loans import Insert
from radixkv.tree import NO_CHANGES

ROOM = os.path.dirname(radixkv.cache.__file__)


# Where the interpreter looks for signals: behind these.
LOOKS = {dis.opmap[name] for name in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME")}


class Interruption:
    """Runs `act` at some of the places in the cache's code where a signal may come.

    at: the number of one, or a set of them.

    num_places: those that a `with` of it came to.
    """

    def __init__(self, at, act):
        self.at = at if isinstance(at, set) else {at}
        self.act, self.num_places = act, 0
        self._last = {}

    def __enter__(self):
        self._before = sys.gettrace()  # that of coverage
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _on_call(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._on_opcode

    def _on_opcode(self, frame, event, arg):
        if event == "opcode":
            before = self._last.get(frame)
            self._last[frame] = now = frame.f_code.co_code[frame.f_lasti]
            # The end of `with lock: return f()` begins with SWAP; a signal is still f()'s there.
            if before in LOOKS and now != dis.opmap["SWAP"]:
                self._count()
        return self._on_opcode

    def _count(self):
        self.num_places += 1
        if self.num_places in self.at:
            self.act()


class Engine:
    """A small full cache and one of everything that a verb may need."""

    def __init__(self, core):
        self.cache = cache = PrefixCache(24, page_size=2, core=core)
        cache.finish(cache.admit([7] * 8), up_to=8)
        cache.finish(cache.admit([1, 2, 3, 4, 5, 6]), up_to=6)
        self.running = cache.admit([1, 2, 3, 9, 9, 9])
        self.retracted = cache.admit([8, 8])
        cache.retract(self.retracted)
        self.pin = cache.loans.pin([1, 2, 3, 4])
        self.borrower = cache.loans.new_borrower()
        self.slots, _ = cache.loans.allocate(self.borrower, 2)


def serve(engine):
    request = engine.cache.admit([1, 2, 3, 4, 9, 9, 9, 9])
    engine.cache.extend(request, [4, 4])
    engine.cache.publish(request, 6)
    engine.cache.finish(request, up_to=10)


def branch(engine):
    forked = engine.cache.fork(engine.running, 1)
    engine.cache.rollback(engine.running, 3)
    engine.cache.abort(forked.requests[0])


def lend(engine):
    loans = engine.cache.loans
    loans.store(engine.borrower, [Insert([5, 5], engine.slots)])
    loans.unpin(engine.pin)


def forget(engine):
    engine.cache.abort(engine.cache.admit([8, 8], resume=engine.retracted))
    engine.cache.evict(2)
    engine.cache.reset(force=True)


SCENES = [serve, branch, lend, forget]

LATE = {
    "finish": lambda engine: engine.cache.finish(engine.running, up_to=engine.running.shared),
    "abort": lambda engine: engine.cache.abort(engine.running),
    "retract": lambda engine: engine.cache.retract(engine.running),
    "unpin": lambda engine: engine.cache.loans.unpin(engine.pin),
    "evict": lambda engine: engine.cache.evict(2),
}
REFUSED = {
    "admit": lambda engine: engine.cache.admit([1, 2, 5]),
    "extend": lambda engine: engine.cache.extend(engine.running, [3]),
    "publish": lambda engine: engine.cache.publish(engine.running, 6),
    "reset": lambda engine: engine.cache.reset(force=True),
    "allocate": lambda engine: engine.cache.loans.allocate(engine.borrower, 2),
    "match": lambda engine: engine.cache.match_prefix([1, 2, 3, 4]),
}


def num_places(core, scene):
    engine = Engine(core)
    with Interruption(0, lambda: None) as whole:
        scene(engine)
    return whole.num_places


def is_unlocked(cache):
    """Whether another thread can come in."""
    got = []

    def come_in():
        got.append(cache.lock.acquire(timeout=5))
        if got == [True]:
            cache.lock.release()

    other = threading.Thread(target=come_in)
    other.start()
    other.join()
    return got == [True]


def interrupted(core, scene, act, allowed, first=1, step=1):
    """The engine after `scene` with `act` at each `step`-th of those places."""
    for at in range(first, num_places(core, scene) + 1, step):
        engine = Engine(core)
        meddling = Interruption(at, lambda engine=engine: act(engine))
        with contextlib.suppress(allowed), meddling:
            scene(engine)
        yield at, engine


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("verb", [*LATE, *REFUSED])
def test_a_call_in_the_middle_of_another_is_whole_or_refused(core, scene, verb):
    calls = {**LATE, **REFUSED}
    call, first = calls[verb], 1 + list(calls).index(verb) % 3
    refusals = []

    def act(engine):
        try:
            call(engine)
        except errors.ReentrantCallError as error:
            refusals.append(error)
        except (errors.RequestEndedError, errors.PromptTooLongError, errors.LiveRequestsError):
            pass

    # What the handler did may be what the scene needs.
    allowed = (errors.RadixKVError, AttributeError)
    for at, engine in interrupted(core, scene, act, allowed, first, step=3):
        assert engine.cache.check_integrity() == [], f"at place {at}"
        assert engine.cache.violations == (), f"at place {at}"
    assert bool(refusals) == (verb in REFUSED)


def end_and_raise(engine, error):
    """What waits is cut short, or nothing is."""
    engine.cache.finish(engine.running, up_to=engine.running.shared)
    raise error


def look_elsewhere(engine, error):
    """An error of this package, from a call of another cache."""
    other = PrefixCache(4, core=engine.cache.core)
    other.extend(other.admit([1, 2]), [1] * 9)


def fail(engine, error):
    raise error


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("act", [end_and_raise, look_elsewhere])
def test_whatever_comes_from_outside_leaves_no_broken_cache_that_serves(core, scene, act):
    allowed = (KeyboardInterrupt, errors.RadixKVError, AttributeError)
    for at, engine in interrupted(core, scene, lambda e: act(e, KeyboardInterrupt), allowed):
        assert_sound_or_refusing(engine.cache, f"at place {at}")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("first", [end_and_raise, fail])
@pytest.mark.parametrize("later", [1, 2, 7, 20, 33])
def test_two_exceptions_from_outside_leave_no_broken_cache_that_serves(core, scene, first, later):
    """The second comes while the first is seen to; where that ended nothing, the next call does."""
    step = 1 if core == "native" else 4
    for at in range(1, num_places(core, scene) + 1, step):
        engine = Engine(core)
        acts = iter([partial(first, engine), partial(fail, engine)])
        meddling = Interruption({at, at + later}, lambda acts=acts: next(acts)(KeyboardInterrupt))
        with contextlib.suppress(KeyboardInterrupt, errors.CacheCorruptedError), meddling:
            scene(engine)
        assert_sound_or_refusing(engine.cache, f"at places {at} and {later} later")


def assert_sound_or_refusing(cache, where):
    if cache.violations:
        with pytest.raises(errors.CacheCorruptedError):
            cache.evict(1)
        return
    try:
        cache.evict(0)
    except errors.CacheCorruptedError:
        return
    assert cache.check_integrity() == [], where
    assert is_unlocked(cache), where
    assert gc.isenabled(), where
    for request in cache.live_requests:
        cache.abort(request)
    cache.evict(24)
    cache.match_prefix([1, 2])
    assert cache.check_integrity() == [], where


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_an_exception_from_outside_leaves_a_sound_cache_or_one_that_refuses(core, scene, error):
    allowed = (error, errors.CacheCorruptedError)
    for at, engine in interrupted(core, scene, lambda e: fail(e, error), allowed):
        assert_sound_or_refusing(engine.cache, f"at place {at}")


def test_an_ending_that_is_cut_short_as_a_doubt_is_settled_leaves_another(core):
    cache = Engine(core).cache
    transactions, errors_to_come = cache.transactions, iter([KeyboardInterrupt])

    def ending():
        for error in errors_to_come:
            raise error

    transactions.late.append(ending)
    transactions.doubt = KeyboardInterrupt(), NO_CHANGES
    transactions.is_closed = transactions.is_broken = True
    with pytest.raises(KeyboardInterrupt):
        cache.match_prefix([1, 2])
    assert cache.match_prefix([1, 2]).length == 2
    assert transactions.late == []
    assert_sound_or_refusing(cache, "after both")
