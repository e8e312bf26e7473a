"""What routing policies are worth: recorded sessions on 8 workers with bounded caches of their own.

python -m bench.routing [--workers 8] [--traces NAME ...] [--policies NAME ...] [--once]

The simulation is that of `bench/fleet_simulation.py`; with every hit that there is to have, a
worker would work 70 % of the time. Each policy places the same requests.

hit rate: tokens from the cache over prompt tokens. imbalance: the most that a worker had to compute
and answer, over the mean. one cache: the same requests, sessions taking turns, through one cache of
the same total size. ideal: through one that forgets nothing. whole sessions: an imbalance that no
policy is below which keeps each session on one worker.

Then cache-aware alone, at other pauses (seeds), loads and numbers of workers, and with other
weights: of several runs the lowest hit rate and the highest imbalance. And against the rules of
other routers (`bench/routing_rules.py`), by the time to the first token. `--once` leaves both out.
"""

import argparse
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.fleet_simulation import Case, Simulation, load
from bench.report import kept_at, save
from bench.routing_rules import LOADS, RULES
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
# First tokens against the rules of other routers: at these loads no worse than the best of them by
# more than this, and no more uneven.
LOADED = (0.5, 0.9)
MOST_BEHIND_PEER, EVEN = 1.05, 1.2


class Way(NamedTuple):
    """One way in which cache-aware routing is tried again."""

    name: str
    workers: int = 8
    utilization: float = UTILIZATION
    seeds: tuple[int, ...] = SEEDS
    balance: float = 0.08
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
    *(Way(f"balance {at}", balance=at) for at in (0.0, 0.02, 0.04, 0.08, 0.16, 0.5)),
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

    def by(self, name: str, workers: int, utilization: float, seed: int = 1) -> dict[str, float]:
        """What a policy of ours or a rule of others reaches."""
        rule: str | RoutingPolicy = RULES[name]() if name in RULES else name
        load_of = LOADS.get(name, lambda _: 1.0)
        pause = self.pause(workers, utilization)
        run = self.run(rule, workers, pause, seed=seed, load_of=load_of)
        found = {"hit_rate": run.hit_rate, "imbalance": run.imbalance, **run.first_token_s()}
        print(self.case.trace, f"{utilization:.0%}", name, found, file=sys.stderr, flush=True)
        return found


def measure(trace: Recorded, workers: int, policies: list[str]) -> dict[str, Any]:
    found = {policy: trace.by(policy, workers, UTILIZATION) for policy in policies}
    return {
        **trace.case._asdict(),
        "requests": len(trace.log),
        "prompt tokens": int(trace.log.lengths.sum()),
        "one cache": trace.one_cache(workers),
        "ideal": trace.ideal.hit_rate,
        "whole sessions": trace.whole_sessions(workers),
        "policies": found,
    }


def against_rules(trace: Recorded, workers: int) -> dict[str, dict[str, dict[str, float]]]:
    """First tokens, by load and rule: the mean over the seeds of each run's mean and p95."""
    names = ("cache-aware", "lmetric", *RULES)
    return {
        f"{load:.0%} busy": {
            name: _mean([trace.by(name, workers, load, seed) for seed in SEEDS]) for name in names
        }
        for load in LOADED
    }


def _mean(runs: list[dict[str, float]]) -> dict[str, float]:
    return {figure: statistics.mean(run[figure] for run in runs) for figure in runs[0]}


def behind(by_rule: dict[str, dict[str, float]]) -> dict[str, float]:
    """Cache-aware's mean and p95 over the best peer's, and its imbalance."""
    ours = by_rule["cache-aware"]
    others = [found for name, found in by_rule.items() if name != "cache-aware"]
    ratios = {at: ours[at] / min(other[at] for other in others) for at in ("mean", "p95")}
    return {**ratios, "imbalance": ours["imbalance"]}


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


def rules_table(load: str, found: dict[str, dict[str, dict[str, dict[str, float]]]]) -> Table:
    title = f"first token in seconds (mean / p95), imbalance; {load}"
    shown = Table("trace", title=title, title_justify="left")
    names = next(iter(found.values()))[load]
    for name in (*names, "cache-aware over the best peer"):
        shown.add_column(name, justify="right")
    for trace, by_load in found.items():
        cells = [
            f"{one['mean']:.2f} / {one['p95']:.2f}, {one['imbalance']:.2f}"
            for one in by_load[load].values()
        ]
        gap = behind(by_load[load])
        is_short = max(gap["mean"], gap["p95"]) > MOST_BEHIND_PEER or gap["imbalance"] > EVEN
        cells.append(f"{gap['mean']:.2f} / {gap['p95']:.2f}" + (" (short)" if is_short else ""))
        shown.add_row(trace, *cells)
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
        rules = {one.case.trace: against_rules(one, args.workers) for one in traces}
        figures["rules"] = rules
        figures["fairness"] = tried(traces, FAIRNESS)
        figures["frontier"] = tried(traces, FRONTIER)
    out = kept_at("routing", parser, args, "workers", "traces", "policies", "once")
    path = save("routing", figures, out)
    console.print(table(cases))
    if not args.once:
        for load in LOADED:
            console.print(rules_table(f"{load:.0%} busy", rules))
        console.print(ways_table("elsewhere", figures["fairness"]))
        console.print(ways_table("with other weights", figures["frontier"]))
    path.with_suffix(".txt").write_text(console.export_text())


if __name__ == "__main__":
    main()
