"""How near the curves come that are no exact ones: the estimator that a running cache carries, and
the sampled curve of a policy that is not LRU. `bench.lab` compares the exact curve with replays.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from bench.report import save
from bench.traces import BLOCKS, find_traces, read
from radixkv.cache.capacity import CapacityEstimator
from radixkv.lab.logs.requests import RequestLog, in_order
from radixkv.lab.replay.curve import lru_curve, sampled_curve
from radixkv.lab.replay.paths import find_paths
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting

Row: TypeAlias = dict[str, Any]
MOST_APART = 1.5  # points
FACTORS = (0.5, 1, 2, 4)
LIVE = (
    (BLOCKS, "file", 819_200),
    (BLOCKS, "file", 3_276_800),
    ("lmcache_magagent", "interleave-16", 16_384),
    ("taubench_airline", "interleave-16", 16_384),
    ("bbh_cot3", "interleave-16", 4_096),
    ("mtbench_judge", "file", 65_536),
    ("tot_game24", "file", 2_048),
)
SAMPLED = (
    (BLOCKS, "file", 1_638_400),
    (BLOCKS, "file", 3_276_800),
    ("lmcache_miniswe_chat", "interleave-16", 65_536),
    ("taubench_airline", "interleave-16", 65_536),
    ("bbh_cot3", "interleave-16", 65_536),
)


def live(log: RequestLog, capacity: int) -> Row:
    """What the estimator gives after the whole log, and the exact answer, in percent."""
    curve = lru_curve(find_paths(log))
    estimator = CapacityEstimator(capacity, window=10**12)
    begun = time.perf_counter()
    for request in log:
        estimator.observe(request.token_ids[: request.length], request.namespace)
    us = (time.perf_counter() - begun) / len(log) * 1e6
    return {
        "us": us,
        "exact": [100 * curve.hit_rate(int(factor * capacity)) for factor in FACTORS],
        "estimated": [100 * estimator.hit_rate(factor) for factor in FACTORS],
    }


def sampled(log: RequestLog, capacity: int, policy: str = "adaptive") -> Row:
    """The sampled curve at one capacity and a replay of the whole log, in percent."""
    (found,) = sampled_curve(find_paths(log), [capacity], policy)
    exact = replay(log, Setting(capacity=capacity, policy=policy, capacity_of="cache")).hit_rate
    return {
        "exact": 100 * exact,
        "sampled": 100 * found.hit_rate,
        "every": found.every,
        "error": 100 * found.error,
    }


def sampled_table(rows: list[Row]) -> Table:
    table = Table("trace", "order", "capacity", title="adaptive, %", title_justify="left")
    for column in ("exact", "sampled", "one token in", "error under LRU"):
        table.add_column(column, justify="right")
    for row in rows:
        figures = (f"{row['exact']:.2f}", f"{row['sampled']:.2f}", str(row["every"]))
        capacity = f"{row['capacity']:,}"
        error = f"{row['error']:+.2f}"
        table.add_row(row["trace"], row["order"], capacity, *figures, error)
    return table


def live_table(rows: list[Row]) -> Table:
    table = Table("trace", "order", "capacity", title="estimated (exact), %", title_justify="left")
    for factor in FACTORS:
        table.add_column(f"x {factor:g}", justify="right")
    table.add_column("us a request", justify="right")
    for row in rows:
        pairs = zip(row["estimated"], row["exact"], strict=True)
        cells = (f"{estimated:.1f} ({exact:.1f})" for estimated, exact in pairs)
        capacity = f"{row['capacity']:,}"
        table.add_row(row["trace"], row["order"], capacity, *cells, f"{row['us']:.0f}")
    return table


def rows_of(
    traces: Path, cases: Iterable[tuple[str, str, int]], measure: Callable[[RequestLog, int], Row]
) -> list[Row]:
    return [
        {"trace": name, "order": order, "capacity": capacity}
        | measure(in_order(read(traces, name), order), capacity)
        for name, order, capacity in cases
    ]


def farthest(rows: list[Row]) -> float:
    """The largest difference between what was estimated and what is so, in points."""
    pairs = ((row["estimated"], row["exact"]) for row in rows)
    apart = (abs(found - exact) for both in pairs for found, exact in zip(*both, strict=True))
    return max(map(float, apart))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=find_traces())
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    if not (arguments.traces / f"{BLOCKS}.jsonl.xz").is_file():
        sys.exit(f"no request traces in {arguments.traces}: name their folder by RADIXKV_TRACES")
    lives = rows_of(arguments.traces, LIVE, live)
    samples = rows_of(arguments.traces, SAMPLED, sampled)
    report = {"seed": None, "live": lives, "sampled": samples}
    path = save("curve", report, arguments.out)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(live_table(lives), sampled_table(samples), path, sep="\n")
    if farthest(lives) > MOST_APART:
        sys.exit(f"the estimator is {farthest(lives):.2f} points off")


if __name__ == "__main__":
    main()
