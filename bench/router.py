"""The router's index and its decisions, against Dynamo's RadixTree on the same fleet, in one run.

python -m bench.router [--workers 64] [--tokens 1000000] [--rounds 5] [--no-peer]

64 workers hold 1,000,000 tokens each: 20 prompts of 2,000 that all share, sessions of their own,
and sessions that three have in common. Prompts of 4,000 tokens follow one of the sessions held.
Times are medians over all rounds in microseconds; both sides are asked in turn, in processes of
their own. The peers are brought into `.peers/` at the first run (3 GB).
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.peers import setup
from bench.peers.contender import resident
from bench.peers.fleet import Fleet
from bench.report import kept_at, save
from radixkv import DEFAULT
from radixkv.cache.events import Event, Update
from radixkv.router import Router
from radixkv.tree import Stored, Trimmed

ROOT = Path(__file__).parents[1]
EPOCH = 1
# The peer counts whole blocks: the size at which it finds them soonest.
PEER_BLOCKS = (16, 64)

Figures = dict[str, float]


def worker_update(fleet: Fleet, worker: int) -> Update:
    """All that a worker stored, as its watch reports it."""
    events = [
        Event(at + 1, Stored(s.run, s.parent_run, s.parent_offset, s.ids, DEFAULT))
        for at, s in enumerate(fleet.stored(worker))
    ]
    return Update(EPOCH, len(events), tuple(events))


def build(fleet: Fleet, router: Router) -> Figures:
    """Feed all workers: tokens a second, and resident bytes a token and worker."""
    before, spent = resident(), 0.0
    for worker in range(fleet.workers):
        router.add_worker(str(worker))
        update = worker_update(fleet, worker)
        since = time.perf_counter()
        router.apply(str(worker), update)
        spent += time.perf_counter() - since
        del update
    tokens = fleet.workers * fleet.num_tokens
    assert sum(status.view.num_tokens for status in router.workers()) == tokens
    return {
        "apply": tokens / spent,
        "bytes": (resident() - before) / tokens,
        "tokens": tokens,
        "distinct tokens": router.index.total_size,
        "nodes": router.index.num_nodes,
    }


def churn(router: Router) -> Figures:
    """Trims and stores of one worker among all: what a second of eviction and refill costs."""
    worker, view = "0", router.index.view("0")
    runs = router.index.runs(worker)
    parents = {run.parent_run for run in runs.values()}
    leaves = [(number, run) for number, run in runs.items() if number not in parents][:200]
    revision, trims, stores = view.revision, [], []
    for number, run in leaves:
        for keep in range(len(run.codes) - 1, -1, -1):
            revision += 1
            trims.append(Event(revision, Trimmed(number, keep)))
    for number, run in leaves:
        revision += 1
        again = Stored(number + 10**6, run.parent_run, run.parent_offset, run.codes, DEFAULT)
        stores.append(Event(revision, again))
    figures = {}
    for name, events in (("trims of one token", trims), ("stores", stores)):
        since = time.perf_counter()
        router.apply(worker, Update(EPOCH, events[-1].revision, tuple(events)))
        figures[f"{name}, a second"] = len(events) / (time.perf_counter() - since)
    assert router.index.view(worker).state == "current"
    return figures


def timed(
    call: Callable[[Any], Any],
    prompts: list[Any],
    prepare: Callable[[Any], Any] = lambda ids: ids,
    keep: Callable[[Any], Any] = lambda answer: None,
) -> list[int]:
    """Nanoseconds of each call; what comes before and after it is not counted."""
    taken = []
    for ids in prompts:
        asked = prepare(ids)
        since = time.perf_counter_ns()
        answer = call(asked)
        taken.append(time.perf_counter_ns() - since)
        keep(answer)
    return taken


class Asked:
    """A router and what it is asked."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.router = fleet, Router()
        self.built = build(fleet, self.router)

    def look(self, seed: int, count: int) -> dict[str, list[int]]:
        """Nanoseconds of each way to ask, prompt by prompt."""
        prompts, index = self.fleet.prompts(count, seed), self.router.index
        picks: list[Any] = []
        taken = {
            "decision from array": timed(self.router.pick, prompts, keep=picks.append),
            "look-up from array": timed(index.lengths, prompts),
            "look-up from list": timed(index.lengths, prompts, lambda ids: ids.tolist()),
            "look-up of 1,000 tokens": timed(index.lengths, [ids[:1_000] for ids in prompts]),
            "floor: compare in place": timed(
                lambda both: both[0] == both[1], prompts, lambda ids: (ids.tobytes(), ids.tobytes())
            ),
        }
        for pick in picks:
            self.router.finish(pick)
        return taken


@contextmanager
def peer(fleet: Fleet) -> Iterator[Callable[[dict[str, int]], Figures]]:
    """Dynamo's process: a function that asks it."""
    process = subprocess.Popen(
        [setup.python(), "-m", "bench.peers.dynamo_router", str(fleet.workers),
         str(fleet.num_tokens)],
        cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    def ask(request: dict[str, int]) -> Figures:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer: Figures = json.loads(process.stdout.readline())
        return answer

    try:
        yield ask
    finally:
        process.kill()
        process.wait()


def race(fleet: Fleet, args: argparse.Namespace) -> dict[str, Any]:
    many = Asked(fleet)
    one = Asked(Fleet(1, fleet.workers * fleet.num_tokens))
    rounds: dict[str, list[dict[str, list[int]]]] = {"radixkv": [], "radixkv, one worker": []}
    theirs: dict[int, list[Figures]] = {}
    built: dict[int, Figures] = {}
    for block in (0,) if args.no_peer else PEER_BLOCKS:
        with peer(fleet) if block else no_peer() as ask:
            built[block] = ask({"build": block})
            for turn in range(args.rounds):
                seed = block * 1_000 + turn
                theirs.setdefault(block, []).append(ask({"prompts": seed, "count": args.prompts}))
                rounds["radixkv"].append(many.look(seed, args.prompts))
                rounds["radixkv, one worker"].append(one.look(seed, args.prompts))
    return {
        "fleet": {"workers": fleet.workers, "tokens each": fleet.num_tokens},
        "built": many.built,
        "churn": churn(many.router),
        "median": {name: summed(taken, 50) for name, taken in rounds.items()},
        "p99": {name: summed(taken, 99) for name, taken in rounds.items()},
        "dynamo": {block: _middle(taken) for block, taken in theirs.items() if block},
        "dynamo built": {block: one for block, one in built.items() if block},
    }


@contextmanager
def no_peer() -> Iterator[Callable[[dict[str, int]], Figures]]:
    yield lambda _: {}


def summed(rounds: list[dict[str, list[int]]], percent: float) -> Figures:
    """A percentile over all rounds, in microseconds."""
    return {
        name: float(np.percentile([t for one in rounds for t in one[name]], percent)) / 1e3
        for name in rounds[0]
    }


def _middle(rounds: list[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def judged(figures: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """What is required, what was reached, and whether that is enough."""
    ours, built = figures["median"]["radixkv"], figures["built"]
    alone = figures["median"]["radixkv, one worker"]
    rows = [
        _at_most("decision, 4,000 tokens from an array (us)", 20, ours["decision from array"]),
        _at_least("events applied, M tokens/s", 5, built["apply"] / 1e6),
        _at_most("look-up with all workers / with one that holds as much", 1.5,
                 ours["look-up from array"] / alone["look-up from array"]),
    ]  # fmt: skip
    if figures["dynamo"]:
        best = min(figures["dynamo"].values(), key=lambda one: one["from list"])
        rows += [
            _at_least(f"look-up from {kind}: times as fast as Dynamo", 8,
                      best[f"from {kind}"] / ours[f"look-up from {kind}"])
            for kind in ("array", "list")
        ]  # fmt: skip
        rows.append(
            _at_least("decision from array: times as fast as Dynamo's look-up from a list", 8,
                      best["from list"] / ours["decision from array"])
        )  # fmt: skip
    return rows


def _at_most(what: str, wanted: float, reached: float) -> tuple[str, str, str, bool]:
    return what, f"<= {wanted:g}", f"{reached:.2f}", reached <= wanted


def _at_least(what: str, wanted: float, reached: float) -> tuple[str, str, str, bool]:
    return what, f">= {wanted:g}", f"{reached:.2f}", reached >= wanted


def show(figures: dict[str, Any], rows: list[tuple[str, str, str, bool]]) -> str:
    """Print the tables; returns what was printed."""
    times = Table(title="microseconds", title_justify="left")
    for column in ("", "median", "p99"):
        times.add_column(column, justify="right" if column else "left")
    for who, one in figures["median"].items():
        for name, value in one.items():
            times.add_row(f"{who}: {name}", f"{value:.2f}", f"{figures['p99'][who][name]:.2f}")
    for block, one in figures["dynamo"].items():
        for name, value in one.items():
            times.add_row(f"dynamo, blocks of {block}: {name}", f"{value:.2f}", "")
    wanted = Table("", "required", "reached", "", title="required", title_justify="left")
    for what, required, reached, is_enough in rows:
        wanted.add_row(what, required, reached, "" if is_enough else "short")
    console = Console(width=110, record=True)
    console.print(times, wanted, sep="\n")
    built = figures["built"]
    console.print(
        f"{built['tokens']:,.0f} tokens by worker, {built['distinct tokens']:,.0f} distinct, "
        f"{built['nodes']:,.0f} nodes: {built['bytes']:.2f} bytes a token and worker"
    )
    console.print({**figures["churn"], "dynamo built": figures["dynamo built"]})
    return console.export_text()


def main() -> None:
    parser = argparse.ArgumentParser(description="the router's index and its decisions")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="of each worker")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=400, help="of a round")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not args.no_peer:
        setup.prepare()
    figures = race(Fleet(args.workers, args.tokens), args)
    rows = judged(figures)
    report = [dict(zip(("what", "required", "reached", "enough"), r, strict=True)) for r in rows]
    out = kept_at("router", parser, args, "workers", "tokens", "prompts", "no_peer")
    path = save("router", {"required": report, **figures}, out)
    path.with_suffix(".txt").write_text(show(figures, rows))


if __name__ == "__main__":
    main()
