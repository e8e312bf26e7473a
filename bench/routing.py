"""What routing policies are worth: recorded sessions on 8 workers with bounded caches of their own.

python -m bench.routing [--workers 8] [--traces NAME ...] [--policies NAME ...]

A simulation with real parts: each worker is a `PrefixCache` that evicts, the `Router` knows of them
what their event logs tell, and each policy places the same requests. Some sessions are at work at
once; the next turn of one comes some time after the last is answered, and when a session ends the
next one of the trace begins. A worker serves one request at a time, and takes a unit of time for
each prompt token that it computes and for each token that it answers; with every hit that there is
to have, it would work 70 % of the time. Waiting and running requests are the load that the router
goes by.

hit rate: tokens from the cache over prompt tokens. imbalance: the most that a worker had to compute
and answer, over the mean. one cache: the same requests, sessions taking turns, through one cache of
the same total size. ideal: through one that forgets nothing.
"""

import argparse
import heapq
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.report import save
from bench.traces import find_traces
from radixkv import PrefixCache
from radixkv.lab.reading import Reading, read_log
from radixkv.lab.replay import Setting, replay
from radixkv.lab.requests import ListedLog, Request, RequestLog, in_order
from radixkv.router import POLICIES, Pick, Router
from radixkv.tree.tokens import EMPTY

TOKENIZER = "tokenizer_smollm2.json.xz"
PAGE_BYTES = 1 << 20


class Case(NamedTuple):
    """A trace, how many of its sessions are at work at once, and the slots of each worker.

    is_sessions: each prompt extends the one before in its session.
    """

    trace: str
    at_once: int
    slots: int
    is_sessions: bool


CASES = (
    Case("taubench_airline", 48, 24_576, True),
    Case("hotpot_react", 48, 12_288, True),
    Case("mtbench101", 64, 4_096, True),
    Case("lmcache_magagent", 16, 24_576, False),
    Case("bbh_cot3", 14, 8_192, False),
    Case("tot_game24", 32, 2_048, False),
)
UTILIZATION = 0.7
LEAST_GAIN, MOST_BEHIND, MOST_IMBALANCE = 2.0, 0.03, 1.3


class Waiting(NamedTuple):
    """A request at a worker, the turns of its session after it, and the pick that brought it."""

    request: Request
    turns: deque[Request]
    pick: Pick


@dataclass(slots=True)
class Worker:
    """A cache, who waits for it, and what the router was told of it."""

    name: str
    cache: PrefixCache
    waiting: deque[Waiting] = field(default_factory=deque)
    is_busy: bool = False
    work: int = 0
    told: tuple[int, int] = (0, 0)

    def tell(self, router: Router) -> None:
        """What became cached and was evicted since the last time."""
        log = self.cache.events
        while self.told != log.position():
            update = log.read(*self.told, PAGE_BYTES)
            router.apply(self.name, update)
            self.told = update.epoch, update.revision


class Simulation:
    """One policy at one case."""

    def __init__(
        self, log: RequestLog, case: Case, policy: str, workers: int, pause: float
    ) -> None:
        self.now = 0
        # The same for all policies: how long after each request the next of its session comes.
        self._pauses = np.random.default_rng(1).exponential(pause, len(log)).astype(int).tolist()
        self.router = Router(policy, clock=lambda: 0.0, load_window_s=float("inf"))
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

    def _next_turn(self, turns: deque[Request]) -> None:
        if turns:
            time = self.now + self._pauses[turns[0].id]
            self._at(time, lambda: self._arrive(turns.popleft(), turns))
        else:
            self._begin_session()

    def _arrive(self, request: Request, turns: deque[Request]) -> None:
        pick = self.router.pick(request.token_ids, request.namespace, key=request.session)
        worker = self.workers[pick.worker]
        worker.waiting.append(Waiting(request, turns, pick))
        self._serve(worker)

    def _serve(self, worker: Worker) -> None:
        if worker.is_busy or not worker.waiting:
            return
        request, turns, pick = worker.waiting.popleft()
        running = worker.cache.admit(request.token_ids, request.namespace)
        assert running is not None, "one request at a time always has room"
        output = request.outputs[0] if request.outputs else EMPTY
        took = request.length - running.cached_len + len(output)
        self.prompt_tokens += request.length
        self.cached_tokens += running.cached_len
        worker.work += took
        worker.is_busy = True
        worker.tell(self.router)

        def end() -> None:
            worker.cache.extend(running, output)
            worker.cache.finish(running)
            worker.tell(self.router)
            worker.is_busy = False
            self.router.finish(pick)
            self._next_turn(turns)
            self._serve(worker)

        self._at(self.now + took, end)


def _by_session(log: RequestLog) -> Iterator[deque[Request]]:
    sessions: dict[str, deque[Request]] = {}
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


def measure(case: Case, folder: Path, workers: int, policies: list[str]) -> dict[str, Any]:
    log = load(folder, case)
    in_turn = in_order(log, f"interleave-{case.at_once}")
    single = replay(in_turn, Setting(capacity=case.slots * workers, outputs=True))
    ideal = replay(in_turn, Setting(outputs=True))
    service = (log.lengths.mean() * (1 - ideal.hit_rate)) + log.output_lengths.mean()
    pause = service * max(case.at_once / (UTILIZATION * workers) - 1, 0)
    found: dict[str, Any] = {}
    for policy in policies:
        simulation = Simulation(log, case, policy, workers, pause).run()
        found[policy] = {"hit_rate": simulation.hit_rate, "imbalance": simulation.imbalance}
        print(case.trace, policy, found[policy], file=sys.stderr, flush=True)
    return {
        **case._asdict(),
        "requests": len(log),
        "prompt tokens": int(log.lengths.sum()),
        "one cache": single.hit_rate,
        "ideal": ideal.hit_rate,
        "policies": found,
    }


def judged(one: dict[str, Any]) -> dict[str, bool]:
    """What is required of cache-aware routing, and whether it is so."""
    ours, turns = one["policies"]["cache-aware"], one["policies"]["round-robin"]
    reached = {"imbalance": ours["imbalance"] <= MOST_IMBALANCE}
    if one["ideal"] >= LEAST_GAIN * turns["hit_rate"]:
        reached["twice round robin"] = ours["hit_rate"] >= LEAST_GAIN * turns["hit_rate"]
    if one["is_sessions"]:
        reached["near one cache"] = ours["hit_rate"] >= one["one cache"] - MOST_BEHIND
    return reached


def table(cases: list[dict[str, Any]]) -> Table:
    shown = Table("trace", title="hit rate / imbalance", title_justify="left")
    for column in ("slots", *cases[0]["policies"], "one cache", "ideal", "required"):
        shown.add_column(column, justify="right")
    for one in cases:
        rates = (f"{p['hit_rate']:.1%} / {p['imbalance']:.2f}" for p in one["policies"].values())
        short = [what for what, is_so in one["required"].items() if not is_so]
        shown.add_row(
            one["trace"], f"{one['slots']:,}", *rates, f"{one['one cache']:.1%}",
            f"{one['ideal']:.1%}", f"short: {', '.join(short)}" if short else "reached",
        )  # fmt: skip
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="what routing policies are worth")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--traces", nargs="*", default=[case.trace for case in CASES])
    parser.add_argument("--policies", nargs="*", default=sorted(POLICIES), choices=POLICIES)
    parser.add_argument("--folder", type=Path, default=find_traces())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not args.folder.is_dir():
        sys.exit(f"no request traces in {args.folder}: name their folder by RADIXKV_TRACES")
    cases = []
    for case in (case for case in CASES if case.trace in args.traces):
        one = measure(case, args.folder, args.workers, args.policies)
        cases.append({**one, "required": judged(one)})
    path = save("routing", {"workers": args.workers, "cases": cases}, args.out)
    console = Console(width=140, record=True)
    console.print(table(cases))
    path.with_suffix(".txt").write_text(console.export_text())


if __name__ == "__main__":
    main()
