"""The curve of hit rate against capacity in one pass, against a replay at each capacity.

And how near the estimator that a running cache carries comes to it.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.report import save
from bench.traces import BLOCKS, find_traces, read
from radixkv.capacity import CapacityEstimator
from radixkv.lab.curve import Curve, lru_curve
from radixkv.lab.paths import find_paths
from radixkv.lab.replay import Setting, replay
from radixkv.lab.requests import RequestLog, in_order

Row: TypeAlias = dict[str, Any]
CAPACITIES = [int(each) for each in np.geomspace(65_536, 50_000_000, 16)]
LEAST_TIMES, MOST_APART = 8.0, 0.5
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


def race(log: RequestLog) -> Row:
    """Seconds for the curve and for the replays, and the largest difference in points."""
    begun = time.perf_counter()
    curve = lru_curve(find_paths(log))
    in_one_pass = [curve.hit_rate(capacity) for capacity in CAPACITIES]
    curve_s = time.perf_counter() - begun
    replays = [replay(log, Setting(capacity=capacity)) for capacity in CAPACITIES]
    pairs = zip(in_one_pass, replays, strict=True)
    return {
        "curve_s": curve_s,
        "replays_s": sum(each.seconds for each in replays),
        "apart": max(100 * abs(one - each.hit_rate) for one, each in pairs),
    }


def live(log: RequestLog, curve: Curve, capacity: int) -> Row:
    """What the estimator tells after the whole log, beside the exact answer, in percent."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=find_traces())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    if not (arguments.traces / f"{BLOCKS}.jsonl.xz").is_file():
        sys.exit(f"no request traces in {arguments.traces}: name their folder by RADIXKV_TRACES")
    log = read(arguments.traces, BLOCKS)
    rounds = [race(log) for _ in range(arguments.rounds)]
    times = statistics.median(each["replays_s"] / each["curve_s"] for each in rounds)
    apart = max(each["apart"] for each in rounds)
    rows = []
    for name, order, capacity in LIVE:
        ordered = in_order(read(arguments.traces, name), order)
        found = live(ordered, lru_curve(find_paths(ordered)), capacity)
        rows.append({"trace": name, "order": order, "capacity": capacity, **found})
    report = {
        "seed": None,
        "capacities": CAPACITIES,
        "rounds": rounds,
        "times": times,
        "live": rows,
    }
    path = save("curve", report, arguments.out)
    told = (
        f"{BLOCKS}, page size 1, {len(CAPACITIES)} capacities: one pass is {times:.0f} x as fast "
        f"as {len(CAPACITIES)} replays, at most {apart:.2g} points apart"
    )
    Console(width=None if sys.stdout.isatty() else 120).print(
        told, live_table(rows), path, sep="\n"
    )
    if times < LEAST_TIMES or apart > MOST_APART:
        sys.exit("not all is reached")


if __name__ == "__main__":
    main()
