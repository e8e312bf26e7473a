"""The router: picks, loads, trust, and threads that feed it from streams that break."""

import threading
from typing import Any

import numpy as np
import pytest

from radixkv import Namespace
from radixkv.cache.events import Update
from radixkv.errors import (
    HistoryLostError,
    InvalidArgumentError,
    InvalidTokensError,
    NoWorkersError,
    ServiceUnavailableError,
)
from radixkv.router import PickInput, Router, RoutingChoice
from tests.support.followers import Worker, catch_up, check_mirrors, is_current
from tests.support.waiting import run_threads, wait_until


@pytest.fixture
def router(core, clock):
    with Router(core=core, clock=clock, silent_after_s=10, gone_after_s=30) as router:
        yield router


@pytest.fixture
def workers(router):
    workers = Worker("a"), Worker("b"), Worker("c")
    for worker in workers:
        router.add_worker(worker.name)
    return workers


def follow(router, *workers):
    for worker in workers:
        catch_up(router.index, worker)


def test_a_pick_names_the_worker_and_what_it_holds(router, workers):
    a, b, _ = workers
    a.hold([1, 2])
    b.hold([1, 2, 3, 4])
    follow(router, *workers)
    pick = router.pick([1, 2, 3, 9])
    assert (pick.worker, pick.matched_length, pick.best_length) == ("b", 3, 3)
    assert pick.reason == "longest match"


def test_an_array_and_bytes_are_prompts_too(router, workers):
    workers[1].hold([1, 2, 3, 4])
    follow(router, *workers)
    ids = np.array([1, 2, 3], np.int32)
    assert [router.pick(p).worker for p in (ids, ids.tobytes(), (1, 2, 3))] == ["b"] * 3


@pytest.mark.parametrize("bad", [[], b"", np.array([], np.int32), [-1], "ab", 5, None, [1.5]])
def test_what_is_no_prompt_is_refused_and_counts_nothing(router, workers, bad):
    with pytest.raises(InvalidTokensError):
        router.pick(bad)
    assert [status.load for status in router.workers()] == [0, 0, 0]


def test_no_worker_to_pick(router):
    with pytest.raises(NoWorkersError, match="no worker") as caught:
        router.pick([1])
    assert caught.value.details == {"workers": 0}
    router.add_worker("a")
    with pytest.raises(NoWorkersError):
        router.pick([1], loads={})
    router.remove_worker("a")
    with pytest.raises(NoWorkersError):
        router.pick([1])


def loads(router):
    return {status.view.worker: status.load for status in router.workers()}


def test_a_pick_is_load_until_it_is_finished(router, workers):
    picks = [router.pick([1, 2]), router.pick([1, 2], load_weight=2.5)]
    assert sum(loads(router).values()) == 3.5
    router.finish(picks[1])
    router.finish(picks[1])
    router.finish(picks[0])
    assert loads(router) == {"a": 0, "b": 0, "c": 0}


def test_misses_go_round_while_all_are_idle(router, workers):
    picked = []
    for n in range(6):
        pick = router.pick([100 + n])
        picked.append(pick.worker)
        router.finish(pick)
    assert picked == ["a", "b", "c"] * 2


def test_a_pick_that_is_never_finished_ends_by_itself(router, workers, clock):
    router.pick([1])
    clock.now += 59
    late = router.pick([1])
    assert sum(loads(router).values()) == 2
    clock.now += 2
    assert sum(loads(router).values()) == 1
    router.finish(late)
    assert sum(loads(router).values()) == 0


def test_the_load_of_a_worker_that_goes_is_forgotten(router, workers):
    picks = [router.pick([n]) for n in range(4)]
    router.remove_worker("b")
    assert loads(router) == {"a": 2, "c": 1}
    router.add_worker("b")
    for pick in picks:
        router.finish(pick)
    assert loads(router) == {"a": 0, "b": 0, "c": 0}


def work(router):
    return {status.view.worker: status.recent_load for status in router.workers()}


def tell(router, worker):
    """What became cached since, as the worker's watch has it."""
    for update in worker.updates(router.index.position(worker.name)):
        router.apply(worker.name, update)


def test_work_is_what_picks_leave_to_compute_then_what_the_worker_reports(router, workers):
    a = workers[0]
    for worker in workers:
        tell(router, worker)
    a.hold([1, 2])
    tell(router, a)
    assert work(router) == {"a": 2, "b": 0, "c": 0}
    pick = router.pick([1, 2, 3, 4, 5], loads={"a": 0})
    assert (pick.to_compute, work(router)["a"]) == (3, 5)
    a.hold([1, 2, 3, 4, 5, 6, 7])
    router.finish(pick)
    assert work(router)["a"] == 2, "until it tells"
    tell(router, a)
    assert work(router)["a"] == 7, "two of them answers"


def test_a_snapshot_is_no_work(router, workers):
    workers[0].hold([1, 2, 3])
    for update in workers[0].snapshot(pieces=2):
        router.apply("a", update)
    assert router.index.lookup([1, 2, 3]) == {"a": 3}
    assert work(router)["a"] == 0


def test_work_fades_and_with_it_what_open_picks_added(core, clock):
    router = Router(core=core, clock=clock, load_window_s=1e9, recent_half_life_s=64)
    router.add_worker("a")
    a = Worker("a")
    tell(router, a)
    a.hold(range(8))
    tell(router, a)
    pick = router.pick(range(100, 116))
    assert work(router) == {"a": 24}
    clock.now += 64
    assert work(router) == {"a": pytest.approx(12)}
    assert loads(router) == {"a": 1}
    router.finish(pick)
    assert work(router) == {"a": pytest.approx(4)}
    clock.now += 128
    assert work(router) == {"a": pytest.approx(1)}


def test_who_comes_is_taken_to_have_worked_as_the_others(router, workers):
    for worker, size in zip(workers, (3, 6, 9), strict=True):
        tell(router, worker)
        worker.hold(range(size))
        tell(router, worker)
    router.add_worker("d")
    assert work(router) == {"a": 3, "b": 6, "c": 9, "d": 6}
    router.remove_worker("c")
    router.add_worker("c")
    assert work(router) == {"a": 3, "b": 6, "c": 5, "d": 6}


@pytest.mark.parametrize("num_workers", [2, 3, 8])
def test_few_long_sessions_are_shared_out(router, num_workers, rng):
    """One more than workers: no queue shows that one worker has two."""
    workers = {str(at): Worker(str(at), num_slots=1 << 15) for at in range(num_workers)}
    for name in workers:
        router.add_worker(name)
        tell(router, workers[name])
    done = dict.fromkeys(workers, 0)
    num_prompts = 120 * num_workers
    for number in range(num_prompts):
        session = 1_000 * int(rng.integers(num_workers + 1))
        own = 100_000 + 20 * number
        ids = [*range(session, session + 40), *range(own, own + 20)]
        pick = router.pick(ids)
        done[pick.worker] += pick.to_compute
        workers[pick.worker].hold(ids)
        tell(router, workers[pick.worker])
        router.finish(pick)
    assert max(done.values()) < 1.3 * sum(done.values()) / num_workers
    beginnings = 40 * num_workers * (num_workers + 1)
    assert sum(done.values()) <= 20 * num_prompts + beginnings, "each once a worker, at most"


def test_callers_may_bring_the_loads(router, workers):
    a, b, _ = workers
    a.hold([1, 2, 3])
    b.hold([1, 2])
    follow(router, *workers)
    assert router.pick([1, 2, 3], loads={"b": 5, "c": 5}).worker == "b"
    pick = router.pick([1, 2, 3], loads={"a": 100, "b": 0, "c": 0})
    assert (pick.worker, pick.best_length) == ("b", 3)
    assert router.pick([1, 2, 3], loads={"c": 3}).best_length == 0
    for bad in ({"z": 1}, {"a": -1}, {"a": float("nan")}, {"a": float("inf")}):
        with pytest.raises(InvalidArgumentError, match=f"{next(iter(bad))!r}"):
            router.pick([1], loads=bad)


def test_namespaces_are_kept_apart(router, workers):
    workers[2].hold([1, 2, 3], Namespace(salt="x"))
    follow(router, *workers)
    assert router.pick([1, 2, 3], Namespace(salt="x")).worker == "c"
    assert router.pick([1, 2, 3]).best_length == 0


def test_a_policy_of_ones_own(core):
    class Last:
        name = "last"

        def choose(self, asked: PickInput) -> RoutingChoice:
            self.key = asked.key()
            return RoutingChoice(len(asked.workers) - 1, "it came last")

    policy = Last()
    router = Router(policy, core=core)
    for name in "xyz":
        router.add_worker(name)
    pick = router.pick([1, 2], key="session 7")
    assert (pick.worker, pick.reason, policy.key) == ("z", "it came last", b"session 7")
    router.pick(list(range(100)))
    assert policy.key == np.arange(64, dtype="<i4").tobytes()
    assert router.pick([1], loads={"x": 1, "y": 0}).worker == "y"


def test_prompts_that_engines_know_counts_no_cache_miss(router, workers):
    for n in range(40):
        pick = router.pick([n, 71, 72])
        workers["abc".index(pick.worker)].hold([n, 71, 72])
        follow(router, *workers)
        router.finish(pick)
    assert (router.cache_misses.num_checks, router.cache_misses.num_misses) == (3, 0)


def test_a_pick_that_is_not_finished_in_time_counts_no_cache_miss(core, clock):
    """Its prompt may be long and not published yet."""
    with Router(core=core, clock=clock, load_window_s=10) as router:
        router.add_worker("a")
        picks = [router.pick([n, 71, 72]) for n in range(40)]
        clock.now += 11
        assert router.workers()[0].load == 0
        for pick in picks:
            router.finish(pick)
        assert router.cache_misses.num_checks == 0


# ---- trust ----


def test_the_silent_count_less_and_less(router, workers, clock):
    a, b, _ = workers
    a.hold([1, 2, 3, 4])
    b.hold([1, 2])
    follow(router, *workers)
    clock.now += 25
    router.apply("b", Update(b.cache.events.epoch, b.cache.events.revision))
    trust = {status.view.worker: status.staleness_weight for status in router.workers()}
    assert trust["b"] == 1
    assert 0 < trust["a"] < 0.5
    pick = router.pick([1, 2, 3, 4])
    assert (pick.worker, pick.best_length) == ("b", 4)


def test_the_gone_are_not_picked_while_others_are_here(router, workers, clock):
    a, b, c = workers
    a.hold([1, 2, 3, 4])
    follow(router, *workers)
    clock.now += 31
    router.apply("b", Update(b.cache.events.epoch, b.cache.events.revision))
    assert {router.pick([1, 2, 3, 4]).worker for _ in range(5)} == {"b"}
    assert [status.is_here for status in router.workers()] == [False, True, False]
    clock.now += 31
    picked = {router.pick([n]).worker for n in range(4)}
    assert picked == {"a", "c"}, "all are gone, so any may live; b has more to do"
    follow(router, a, c)
    router.apply("a", Update(a.cache.events.epoch, a.cache.events.revision))
    assert router.pick([1, 2, 3, 4]).worker == "a"


def test_who_is_behind_or_lags_far_counts_half(router, workers):
    a, b, _ = workers
    a.hold([1, 2, 3, 4])
    b.hold([1, 2, 3])
    follow(router, *workers)
    router.index.lose("a")
    assert router.pick([1, 2, 3, 4]).worker == "b"
    follow(router, a)
    assert router.pick([1, 2, 3, 4]).worker == "a"
    log = a.cache.events
    router.index.note_revision("a", log.epoch, log.revision + 1)
    assert router.pick([1, 2, 3, 4]).worker == "a"
    router.index.note_revision("a", log.epoch, log.revision + 1_000)
    assert router.pick([1, 2, 3, 4]).worker == "b"


# ---- feeding ----


class Wire:
    """What brings a worker's updates: it can be cut, and refuse."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.asked: list[Any] = []
        self.refusal: Exception | None = None
        self._open: list[Tap] = []

    def __call__(self, position):
        self.asked.append(position)
        if self.refusal is not None:
            raise self.refusal
        stream = Tap(self.worker, position)
        self._open.append(stream)
        return stream

    def cut(self):
        for stream in self._open:
            stream.close()


class Tap:
    """Tells what there is, then what comes, until it is closed."""

    def __init__(self, worker, position) -> None:
        self._worker, self._position = worker, position
        self._news = threading.Event()
        self.is_closed = False
        worker.cache.events.listen(self._news.set)

    def __iter__(self):
        while not self.is_closed:
            self._news.clear()
            with self._worker.cache.lock:
                updates = list(self._worker.updates(self._position))
            for update in updates:
                self._position = update.epoch, update.revision
                yield update
            self._news.wait(10)

    def close(self):
        self.is_closed = True
        self._news.set()


def test_threads_follow_the_workers(core):
    worker = Worker("a")
    worker.hold([1, 2, 3])
    threads = threading.active_count()
    with Router(core=core) as router:
        wire = Wire(worker)
        router.add_worker("a", wire, address="here")
        wait_until(lambda: is_current(router, worker))
        worker.hold([1, 2, 4])
        wait_until(lambda: is_current(router, worker))
        check_mirrors(router.index, worker)
        assert router.workers()[0].address == "here"
        for _ in range(5):
            wire.cut()
            worker.hold([1, 2, len(wire.asked) + 5])
            worker.cache.evict(1)
            wait_until(lambda: is_current(router, worker))
            check_mirrors(router.index, worker)
        wire.cut()
        worker.cache.reset()
        worker.hold([9])
        wait_until(lambda: is_current(router, worker))
        check_mirrors(router.index, worker)
    assert wire.asked[0] is None
    assert None not in wire.asked[1:], "a cut watch resumes"
    wait_until(lambda: threading.active_count() <= threads)
    router.close()


def test_lost_history_is_replaced_and_what_refuses_is_tried_again(core):
    worker = Worker("a")
    worker.hold([1, 2, 3])
    with Router(core=core) as router:
        wire = Wire(worker)
        router.add_worker("a", wire)
        router.add_worker("b")
        wait_until(lambda: is_current(router, worker))
        wire.refusal = ServiceUnavailableError("no server there")
        wire.cut()
        wait_until(lambda: not router.workers()[0].is_here)
        assert router.workers()[0].last_error == "no server there"
        assert router.pick([1, 2, 3]).worker == "b"
        assert wire.asked[-1] is not None
        wire.refusal = HistoryLostError("gone")
        wait_until(lambda: wire.asked[-1] is None)
        wire.refusal = None
        wait_until(lambda: is_current(router, worker))
        check_mirrors(router.index, worker)
        wait_until(lambda: router.workers()[0].is_here)
        assert router.workers()[0].last_error is None
        router.remove_worker("a")
        assert router.index.workers == ("b",)


def test_a_source_with_a_bug_is_logged_and_tried_again(core, caplog):
    worker = Worker("a")
    worker.hold([1, 2, 3])
    with Router(core=core) as router:
        wire = Wire(worker)
        wire.refusal = RuntimeError("a bug")
        router.add_worker("a", wire)
        wait_until(lambda: router.workers()[0].last_error == "a bug")
        wait_until(lambda: "RuntimeError: a bug" in caplog.text)
        wire.refusal = None
        wait_until(lambda: is_current(router, worker))
        check_mirrors(router.index, worker)


def test_picks_while_workers_change(core):
    """Every pick is of a worker that was there, and lengths are never more than the prompt's."""
    workers = [Worker(name) for name in "abc"]
    wrong, done = [], threading.Event()
    with Router(core=core) as router:
        for worker in workers:
            router.add_worker(worker.name, Wire(worker))

        def work():
            for n in range(150):
                for worker in workers:
                    worker.hold([1, 2, n % 5, n])
                    worker.cache.evict(2)
                if n % 50 == 49:
                    workers[0].cache.reset()
            done.set()

        def ask():
            while not done.is_set():
                pick = router.pick([1, 2, 3, 4])
                if pick.worker not in "abc" or not 0 <= pick.matched_length <= pick.best_length < 5:
                    wrong.append(pick)
                router.finish(pick)

        run_threads(work, ask, ask)
        for worker in workers:
            wait_until(lambda worker=worker: is_current(router, worker))
        check_mirrors(router.index, *workers)
    assert wrong == []
