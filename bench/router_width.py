"""The router's index at 64 to 10,000 workers: its set-up, its memory, the time of a pick.

python -m bench.router_width [--nodes 100000] [--rounds 5] [--prompts 200]

Each fleet's workers hold 20 prompts of 2,000 tokens that all have, and on them runs of 100 tokens
of their own: 100,000 nodes, whatever the number of workers. Prompts of 4,000 tokens follow one of
the runs. All fleets are asked in turn, in one process; a pick is `Router.pick`, its time the median
over all rounds, and that of a `Router.finish` is added to it in a figure of its own. Memory is what
the index reports; resident memory is next to it. Set-up is the processor's time to add workers and
what they report, for each run.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.peers.contender import resident
from bench.peers.fleet import PROMPT, SYSTEM, SYSTEMS, VOCAB, system
from bench.report import Claim, judge, kept_at, save
from radixkv import DEFAULT
from radixkv.cache.events import Event, Update
from radixkv.router import Router
from radixkv.tree import Stored

WIDTHS = (64, 256, 1_024, 4_096, 10_000)
LEFT = 64  # workers that stay when all others leave
RUN = 100
MIB = 2**20


class Asked:
    """A router with so many workers and nodes."""

    def __init__(self, workers: int, nodes: int) -> None:
        self.workers, self.runs_each = workers, max(1, (nodes - SYSTEMS) // workers)
        before, took_s = resident(), 0.0
        # What was told while the other fleets were built is still true.
        self.router = Router(silent_after_s=1e9, gone_after_s=1e9)
        systems = [system(at) for at in range(SYSTEMS)]
        shared = [Stored(at + 1, 0, 0, ids, DEFAULT) for at, ids in enumerate(systems)]
        for worker in range(workers):
            own = [
                Stored(SYSTEMS + at + 1, at % SYSTEMS + 1, SYSTEM, self.run(worker, at), DEFAULT)
                for at in range(self.runs_each)
            ]
            events = tuple(Event(at + 1, change) for at, change in enumerate(shared + own))
            took_s -= time.thread_time()
            self.router.add_worker(str(worker))
            self.router.apply(str(worker), Update(1, len(events), events))
            took_s += time.thread_time()
        index = self.router.index
        self.figures = {
            "nodes": index.num_nodes,
            "MiB": index.num_bytes / MIB,
            "resident MiB": (resident() - before) / MIB,
            "set-up us": took_s / workers / (SYSTEMS + self.runs_each) * 1e6,
        }

    def run(self, worker: int, at: int) -> Any:
        ids = np.random.default_rng((4, worker, at)).integers(0, VOCAB, RUN, dtype=np.int32)
        ids[0] = VOCAB + worker * self.runs_each + at  # no two runs begin alike
        return ids

    def prompts(self, count: int, seed: int) -> list[Any]:
        rng = np.random.default_rng((5, seed))
        pairs = zip(
            rng.integers(self.workers, size=count).tolist(),
            rng.integers(self.runs_each, size=count).tolist(),
            strict=True,
        )
        new = rng.integers(0, VOCAB, PROMPT - SYSTEM - RUN, dtype=np.int32)
        return [
            np.concatenate([system(at % SYSTEMS), self.run(worker, at), new])
            for worker, at in pairs
        ]

    def ask(self, count: int, seed: int) -> list[tuple[float, float]]:
        """Microseconds of each pick, and of its finish when all were picked."""
        taken, picks = [], []
        for ids in self.prompts(count, seed):
            since = time.perf_counter_ns()
            pick = self.router.pick(ids)
            taken.append((time.perf_counter_ns() - since) / 1e3)
            assert pick.best_length == SYSTEM + RUN
            picks.append(pick)
        finished = []
        for pick in picks:
            since = time.perf_counter_ns()
            self.router.finish(pick)
            finished.append((time.perf_counter_ns() - since) / 1e3)
        return list(zip(taken, finished, strict=True))

    def shrink(self) -> None:
        """All workers but a few leave."""
        for worker in range(LEFT, self.workers):
            self.router.remove_worker(str(worker))
        self.figures["MiB when all but 64 have left"] = self.router.index.num_bytes / MIB


def race(nodes: int, rounds: int, prompts: int) -> dict[int, dict[str, float]]:
    """The figures of each fleet, by its number of workers."""
    fleets = [Asked(workers, nodes) for workers in WIDTHS]
    taken: dict[int, list[tuple[float, float]]] = {fleet.workers: [] for fleet in fleets}
    for turn in range(rounds):
        for fleet in fleets:
            taken[fleet.workers] += fleet.ask(prompts, turn)
    for fleet in fleets:
        picks, _ = zip(*taken[fleet.workers], strict=True)
        fleet.figures["pick us"] = statistics.median(picks)
        fleet.figures["pick us, p99"] = float(np.percentile(picks, 99))
        fleet.figures["with finish us"] = statistics.median(map(sum, taken[fleet.workers]))
        fleet.shrink()
    return {fleet.workers: fleet.figures for fleet in fleets}


def claims(figures: dict[int, dict[str, float]]) -> list[Claim]:
    """What the figures must be."""
    wide, narrow, widest = figures[1_024], figures[64], figures[10_000]
    return [
        Claim("MiB at 1,024 workers", wide["MiB"], "at most", 300),
        Claim("MiB at 10,000 workers", widest["MiB"], "at most", 300),
        Claim("pick at 1,024 workers / at 64", wide["pick us"] / narrow["pick us"], "at most", 2),
        Claim(
            "pick and finish at 1,024 workers / at 64",
            wide["with finish us"] / narrow["with finish us"],
            "at most",
            2,
        ),
        Claim(
            "set-up at 10,000 workers / at 1,024, for each run of each",
            widest["set-up us"] / wide["set-up us"],
            "at most",
            2,
        ),
    ]


def show(figures: dict[int, dict[str, float]]) -> str:
    """Print the table; returns what was printed."""
    names = [*figures[WIDTHS[0]]]
    table = Table("workers", *names, title="the router's index by workers", title_justify="left")
    for workers, one in figures.items():
        table.add_row(f"{workers:,}", f"{one['nodes']:,}", *(f"{one[n]:.1f}" for n in names[1:]))
    console = Console(width=140, record=True)
    console.print(table)
    return console.export_text()


def main() -> None:
    parser = argparse.ArgumentParser(description="the router's index by number of workers")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=200, help="of a round")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    figures = race(args.nodes, args.rounds, args.prompts)
    required = claims(figures)
    out = kept_at("router_width", parser, args, "nodes", "rounds", "prompts")
    report = [claim._asdict() | {"is_met": claim.is_met} for claim in required]
    path = save("router_width", {"required": report, "workers": figures}, out)
    path.with_suffix(".txt").write_text(show(figures))
    judge(required)


if __name__ == "__main__":
    main()
