"""What the order of admission is worth: agent sessions taking turns in a cache that is too small.

LRU in order of arrival and by longest match, with two references: the clairvoyant in order of
arrival, and an infinite cache.
"""

import argparse
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.report import RESULTS, save
from bench.traces import find_traces, read
from radixkv.lab.logs.requests import in_order
from radixkv.lab.replay.clairvoyant import clairvoyant_hit_rate
from radixkv.lab.replay.paths import find_paths
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting

ORDER = "interleave-16"
CASES = (
    ("lmcache_magagent", 16_384),
    ("taubench_airline", 16_384),
    ("lmcache_miniswe_chat", 65_536),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Hit rates in percent of prompt tokens."""

    trace: str
    capacity: int
    lru: float
    longest_match: float
    clairvoyant: float
    infinite: float


def measure(traces: Path, trace: str, capacity: int) -> Row:
    log = in_order(read(traces, trace), ORDER)
    paths = find_paths(log)
    setting = Setting(capacity=capacity, capacity_of="cache")
    longest_match = replace(setting, scheduling=SCHEDULINGS["longest-match"])
    return Row(
        trace,
        capacity,
        lru=100 * replay(log, setting).hit_rate,
        longest_match=100 * replay(log, longest_match).hit_rate,
        clairvoyant=100 * clairvoyant_hit_rate(paths, capacity),
        infinite=100 * paths.ideal_hit_rate,
    )


def table(rows: list[Row]) -> Table:
    shown = Table(title=f"hit rates, %, {ORDER}", title_justify="left")
    for column in ("trace", "capacity, tokens", "LRU", "longest match", "clairvoyant", "infinite"):
        shown.add_column(column, justify="left" if column == "trace" else "right")
    for row in rows:
        trace, capacity, *rates = asdict(row).values()
        shown.add_row(trace, f"{capacity:,}", *(f"{rate:.1f}" for rate in rates))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=find_traces())
    parser.add_argument("--out", type=Path, default=RESULTS / "admission.json")
    how = parser.parse_args()
    if not how.traces.is_dir():
        sys.exit(f"no request traces in {how.traces}: name their folder by RADIXKV_TRACES")
    rows = [measure(how.traces, *case) for case in CASES]
    figures = {"order": ORDER, "seed": None, "rates": [asdict(row) for row in rows]}
    path = save("admission", figures, how.out)
    Console(width=100).print(table(rows), path)


if __name__ == "__main__":
    main()
