"""Recorded sessions on workers with bounded caches, placed by a router: a simulation of real parts.

Each worker is a `PrefixCache` that evicts, and the `Router` knows of them what their event logs
say. Some sessions are at work at once; the next turn of one comes some time after the last is
answered, and when a session ends the next one of the trace begins. A worker serves one request at a
time, TOKENS_PER_S of the prompt tokens that it computes and of those that it answers.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radixkv import PrefixCache
from radixkv.arrays import EMPTY
from radixkv.lab.logs.reading import Reading, read_log
from radixkv.lab.logs.requests import ListedLog, LoggedRequest, RequestLog
from radixkv.router import Pick, Router, RoutingPolicy

TOKENIZER = "tokenizer_smollm2.json.xz"
TOKENS_PER_S = 2_000
PAGE_BYTES = 1 << 20


class Case(NamedTuple):
    """A trace, how many of its sessions are at work at once, and the slots of each worker.

    is_sessions: each prompt extends the one before in its session.
    """

    trace: str
    at_once: int
    slots: int
    is_sessions: bool


class Waiting(NamedTuple):
    """A request at a worker, the turns of its session after it, the pick that brought it, when."""

    request: LoggedRequest
    turns: deque[LoggedRequest]
    pick: Pick
    since: int


@dataclass(slots=True)
class Worker:
    """A cache, the requests that wait for it, and up to where the router followed its log."""

    name: str
    cache: PrefixCache
    waiting: deque[Waiting] = field(default_factory=deque)
    is_busy: bool = False
    work: int = 0
    position: tuple[int, int] = (0, 0)

    def report(self, router: Router) -> None:
        """What became cached and was evicted since the last time."""
        log = self.cache.events
        while self.position != log.position():
            update = log.read(*self.position, PAGE_BYTES)
            router.apply(self.name, update)
            self.position = update.epoch, update.revision


class Simulation:
    """One policy at one case.

    pause: mean time from an answer to the next request of its session, in tokens; the same for all
    policies with one `seed`. load_of: what a request adds to its worker's load. how: for `Router`.
    first_tokens: of each request the time from its arrival to its first token, in tokens.
    """

    def __init__(
        self,
        log: RequestLog,
        case: Case,
        policy: str | RoutingPolicy,
        workers: int,
        pause: float,
        seed: int = 1,
        load_of: Callable[[LoggedRequest], float] = lambda _: 1.0,
        **how: Any,
    ) -> None:
        self.now = 0
        self._load_of = load_of
        self.first_tokens: list[int] = []
        rng = np.random.default_rng(seed)
        self._pauses = rng.exponential(pause, len(log)).astype(int).tolist()
        # Every request is finished here, and no worker dies.
        how = {**how, "load_window_s": inf, "silent_after_s": inf, "gone_after_s": inf}
        self.router = Router(policy, clock=lambda: self.now / TOKENS_PER_S, **how)
        self.workers = {}
        for at in range(workers):
            self.workers[str(at)] = Worker(str(at), PrefixCache(case.slots))
            self.router.add_worker(str(at))
        self._sessions = _by_session(log)
        self._at_once = case.at_once
        self._events: list[tuple[int, int, Any]] = []
        self._order = count()
        self.prompt_tokens = self.cached_tokens = 0

    def run(self) -> "Simulation":
        for _ in range(self._at_once):
            self._begin_session()
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()
        assert all(not worker.cache.check_integrity() for worker in self.workers.values())
        return self

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    def first_token_s(self) -> dict[str, float]:
        """Mean and 95th percentile of the seconds to the first token."""
        waits = np.array(self.first_tokens) / TOKENS_PER_S
        return {"mean": float(waits.mean()), "p95": float(np.quantile(waits, 0.95))}

    @property
    def imbalance(self) -> float:
        work = [worker.work for worker in self.workers.values()]
        return max(work) / (sum(work) / len(work))

    def _at(self, time: int, act: Any) -> None:
        heapq.heappush(self._events, (time, next(self._order), act))

    def _begin_session(self) -> None:
        turns = next(self._sessions, None)
        if turns is not None:
            self._next_turn(turns)

    def _next_turn(self, turns: deque[LoggedRequest]) -> None:
        if turns:
            time = self.now + self._pauses[turns[0].id]
            self._at(time, lambda: self._arrive(turns.popleft(), turns))
        else:
            self._begin_session()

    def _arrive(self, request: LoggedRequest, turns: deque[LoggedRequest]) -> None:
        pick = self.router.pick(
            request.token_ids,
            request.namespace,
            key=request.session,
            load_weight=self._load_of(request),
        )
        worker = self.workers[pick.worker]
        worker.waiting.append(Waiting(request, turns, pick, self.now))
        self._serve(worker)

    def _serve(self, worker: Worker) -> None:
        if worker.is_busy or not worker.waiting:
            return
        request, turns, pick, since = worker.waiting.popleft()
        running = worker.cache.admit(request.token_ids, request.namespace)
        assert running is not None, "one request at a time always has room"
        output = request.outputs[0] if request.outputs else EMPTY
        computed = request.length - running.cached_len
        self.first_tokens.append(self.now - since + computed)
        took = computed + len(output)
        self.prompt_tokens += request.length
        self.cached_tokens += running.cached_len
        worker.work += took
        worker.is_busy = True
        worker.report(self.router)

        def end() -> None:
            worker.cache.extend(running, output)
            worker.cache.finish(running, up_to=running.length)
            worker.report(self.router)
            worker.is_busy = False
            self.router.finish(pick)
            self._next_turn(turns)
            self._serve(worker)

        self._at(self.now + took, end)


def _by_session(log: RequestLog) -> Iterator[deque[LoggedRequest]]:
    sessions: dict[str, deque[LoggedRequest]] = {}
    for request in log:
        sessions.setdefault(request.session, deque()).append(request)
    return iter(sessions.values())


def load(folder: Path, case: Case) -> RequestLog:
    """The requests of a trace that fit into a worker's cache."""
    log = read_log(folder / f"{case.trace}.jsonl.xz", Reading(tokenizer=folder / TOKENIZER))
    fitting = (
        request
        for request in log
        if request.length + sum(map(len, request.outputs[:1])) <= case.slots
    )
    return ListedLog(replace(request, id=at) for at, request in enumerate(fitting))
