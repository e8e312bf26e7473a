"""What routing policies are worth: recorded sessions on 8 workers with bounded caches of their own.

python -m bench.routing [--workers 8] [--traces NAME ...] [--policies NAME ...] [--once]

The simulation is that of `bench/fleet_simulation.py`; with every hit that there is to have, a
worker would work 70 % of the time. Each policy places the same requests.

hit rate: tokens from the cache over prompt tokens. imbalance: the most that a worker had to compute
and answer, over the mean. one cache: the same requests, sessions taking turns, through one cache of
the same total size. ideal: through one that forgets nothing. whole sessions: an imbalance that no
policy is below which keeps each session on one worker.

Then cache-aware alone, at other pauses (seeds), loads and numbers of workers, and with other
weights: of several runs the lowest hit rate and the highest imbalance. `--once` leaves that out.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.fleet_simulation import Case, Simulation, load
from bench.report import kept_at, save
from bench.traces import find_traces
from radixkv.lab.logs.requests import RequestLog, in_order
from radixkv.lab.replay.replay import Replay, replay
from radixkv.lab.replay.setting import Setting
from radixkv.router import POLICIES, CacheAware, RoutingPolicy

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
SEEDS = (1, 2, 3)


class Way(NamedTuple):
    """One way in which cache-aware routing is tried again."""

    name: str
    workers: int = 8
    utilization: float = UTILIZATION
    seeds: tuple[int, ...] = SEEDS
    balance: float = 0.1
    half_life_s: float = 180.0


# The policy as it is, under other circumstances.
FAIRNESS = (
    Way("other pauses", seeds=(2, 3, 4, 5, 6)),
    Way("50 % busy", utilization=0.5),
    Way("90 % busy", utilization=0.9),
    Way("4 workers", workers=4),
    Way("16 workers", workers=16),
)
# The same circumstances, under other weights: what balance costs in hit rate.
FRONTIER = (
    *(Way(f"balance {at}", balance=at) for at in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)),
    *(Way(f"half-life {at:g} s", half_life_s=at) for at in (15.0, 60.0, 180.0, 600.0)),
)


class Recorded:
    """A trace, and what is known of it without any policy."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.log = case, load(folder, case)
        self._in_turn: RequestLog = in_order(self.log, f"interleave-{case.at_once}")
        self.ideal: Replay = replay(self._in_turn, Setting(outputs=True))

    def one_cache(self, workers: int) -> float:
        """The hit rate of one cache as large as those of all workers."""
        return replay(
            self._in_turn,
            Setting(capacity=self.case.slots * workers, outputs=True, capacity_of="cache"),
        ).hit_rate

    def pause(self, workers: int, utilization: float) -> float:
        """See `Simulation`: with it workers are busy so much of the time, given every hit."""
        service = self.log.lengths.mean() * (1 - self.ideal.hit_rate) + (
            self.log.output_lengths.mean()
        )
        return float(service * max(self.case.at_once / (utilization * workers) - 1, 0))

    def whole_sessions(self, workers: int) -> float:
        """With every hit: the largest session is somewhere, and of `workers` + 1 two share one."""
        work = dict.fromkeys((request.session for request in self.log), 0)
        computed = self.ideal.prompt_tokens - self.ideal.cached_tokens
        spent = dict(zip(self.ideal.ids.tolist(), computed.tolist(), strict=True))
        for request in self.log:
            work[request.session] += spent[request.id] + sum(map(len, request.outputs[:1]))
        most = [*sorted(work.values(), reverse=True), 0]
        two = most[workers - 1] + most[workers] if len(most) > workers else 0
        return max(most[0], two, sum(most) / workers) * workers / sum(most)

    def run(
        self, policy: str | RoutingPolicy, workers: int, pause: float, **how: Any
    ) -> Simulation:
        return Simulation(self.log, self.case, policy, workers, pause, **how).run()


def measure(trace: Recorded, workers: int, policies: list[str]) -> dict[str, Any]:
    pause = trace.pause(workers, UTILIZATION)
    found: dict[str, Any] = {}
    for policy in policies:
        run = trace.run(policy, workers, pause)
        found[policy] = {"hit_rate": run.hit_rate, "imbalance": run.imbalance}
        print(trace.case.trace, policy, found[policy], file=sys.stderr, flush=True)
    return {
        **trace.case._asdict(),
        "requests": len(trace.log),
        "prompt tokens": int(trace.log.lengths.sum()),
        "one cache": trace.one_cache(workers),
        "ideal": trace.ideal.hit_rate,
        "whole sessions": trace.whole_sessions(workers),
        "policies": found,
    }


def again(trace: Recorded, way: Way) -> dict[str, float]:
    """The lowest hit rate and the highest imbalance of cache-aware routing over the way's seeds."""
    pause = trace.pause(way.workers, way.utilization)
    runs = [
        trace.run(
            CacheAware(balance=way.balance),
            way.workers,
            pause,
            seed=seed,
            recent_half_life_s=way.half_life_s,
        )
        for seed in way.seeds
    ]
    print(trace.case.trace, way.name, file=sys.stderr, flush=True)
    return {
        "hit_rate": min(run.hit_rate for run in runs),
        "imbalance": max(run.imbalance for run in runs),
        "one cache": trace.one_cache(way.workers),
        "whole sessions": trace.whole_sessions(way.workers),
    }


def judged(one: dict[str, Any]) -> dict[str, bool]:
    """What is required of cache-aware routing, and whether it is so; nothing of other policies."""
    if not {"cache-aware", "round-robin"} <= one["policies"].keys():
        return {}
    ours, turns = one["policies"]["cache-aware"], one["policies"]["round-robin"]
    reached = {"imbalance": ours["imbalance"] <= MOST_IMBALANCE}
    if one["ideal"] >= LEAST_GAIN * turns["hit_rate"]:
        reached["twice round robin"] = ours["hit_rate"] >= LEAST_GAIN * turns["hit_rate"]
    if one["is_sessions"]:
        reached["near one cache"] = ours["hit_rate"] >= one["one cache"] - MOST_BEHIND
    return reached


def table(cases: list[dict[str, Any]]) -> Table:
    shown = Table("trace", title="hit rate / imbalance", title_justify="left")
    columns = ("slots", *cases[0]["policies"], "one cache", "ideal", "whole sessions", "required")
    for column in columns:
        shown.add_column(column, justify="right")
    for one in cases:
        short = [what for what, is_so in one["required"].items() if not is_so]
        shown.add_row(
            one["trace"], f"{one['slots']:,}", *map(_both, one["policies"].values()),
            f"{one['one cache']:.1%}", f"{one['ideal']:.1%}", f">= {one['whole sessions']:.2f}",
            f"short: {', '.join(short)}" if short else "reached" if one["required"] else "-",
        )  # fmt: skip
    return shown


def ways_table(title: str, found: dict[str, dict[str, Any]]) -> Table:
    shown = Table("", title=f"cache-aware, {title}", title_justify="left")
    for trace in next(iter(found.values())):
        shown.add_column(trace, justify="right")
    for name, by_trace in found.items():
        shown.add_row(name, *map(_both, by_trace.values()))
        if "workers" in name:
            bounds = (
                f"{one['one cache']:.1%} / {one['whole sessions']:.2f}" for one in by_trace.values()
            )
            shown.add_row("  one cache / whole sessions", *bounds, style="dim")
    return shown


def _both(found: dict[str, float]) -> str:
    return f"{found['hit_rate']:.1%} / {found['imbalance']:.2f}"


def tried(traces: Iterable[Recorded], ways: tuple[Way, ...]) -> dict[str, dict[str, Any]]:
    return {way.name: {one.case.trace: again(one, way) for one in traces} for way in ways}


def main() -> None:
    parser = argparse.ArgumentParser(description="what routing policies are worth")
    parser.add_argument("--workers", type=int, default=8)
    names = [case.trace for case in CASES]
    parser.add_argument("--traces", nargs="+", default=names, choices=names)
    parser.add_argument("--policies", nargs="+", default=sorted(POLICIES), choices=POLICIES)
    parser.add_argument("--folder", type=Path, default=find_traces())
    parser.add_argument("--once", action="store_true", help="no other seeds, loads, weights")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not args.folder.is_dir():
        sys.exit(f"no request traces in {args.folder}: name their folder by RADIXKV_TRACES")
    traces = [Recorded(case, args.folder) for case in CASES if case.trace in args.traces]
    cases = [measure(trace, args.workers, args.policies) for trace in traces]
    cases = [{**one, "required": judged(one)} for one in cases]
    figures: dict[str, Any] = {"workers": args.workers, "cases": cases}
    console = Console(width=160, record=True)
    if not args.once:
        figures["fairness"] = tried(traces, FAIRNESS)
        figures["frontier"] = tried(traces, FRONTIER)
    out = kept_at("routing", parser, args, "workers", "traces", "policies", "once")
    path = save("routing", figures, out)
    console.print(table(cases))
    if not args.once:
        console.print(ways_table("elsewhere", figures["fairness"]))
        console.print(ways_table("with other weights", figures["frontier"]))
    path.with_suffix(".txt").write_text(console.export_text())


if __name__ == "__main__":
    main()
