"""The lab's hit rates against published ones, and how fast it replays.

The expected figures are read from the README.md next to the request traces: its tables of infinite
and of LRU caches, its table of blocks of 64, and its line on mooncake_conversation.
"""

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.report import kept_at, save
from bench.traces import BLOCKS, find_traces, read
from radixkv.lab.logs.requests import in_order
from radixkv.lab.replay.curve import lru_curve
from radixkv.lab.replay.paths import find_paths
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting

PAGE_SIZES = (1, 16, 64, 512)
POINTS = 0.1  # a printed figure may be as far from ours
BLOCK_SIZE = 512
SESSIONS = "claude_code"  # traces in blocks of 64
FAST_CAPACITIES = (819_200, 1_638_400, 3_276_800, 25_600_000, None)
LIMIT_S = 60
CURVE_CAPACITIES = [round(each) for each in np.geomspace(100_000, 100_000_000, 16)]
TIMES = 8  # as fast as replays, at least, is the curve
CURVE_POINTS = 0.5


@dataclass(frozen=True, slots=True)
class Published:
    """A hit rate in percent of prompt tokens, as it was printed."""

    trace: str
    order: str
    capacity: int | None
    page_size: int
    outputs: bool
    percent: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A published figure and ours, and what a pool of the same size has."""

    published: Published
    percent: float
    seconds: float
    pool_percent: float | None = None
    refused: int = 0

    @property
    def is_equal(self) -> bool:
        return abs(self.percent - self.published.percent) <= POINTS


def published(readme: str) -> Iterator[Published]:
    """Every figure of the tables."""
    capacities: list[int | None] = []
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[-1] == "infinite":
            capacities = [_capacity(cell) for cell in cells[1:]]
        if len(cells) == 12 and cells[1].isdecimal():
            yield from _infinite(cells)
        elif len(cells) == 7 and cells[1].isdecimal():
            for page_size, cell in zip(PAGE_SIZES, cells[3:], strict=True):
                yield Published(cells[0], cells[2], int(cells[1]), page_size, False, float(cell))
        elif len(cells) == 7 and cells[0].startswith(SESSIONS):
            for capacity, cell in zip(capacities, cells[1:], strict=True):
                yield Published(cells[0], "file", capacity, 64, False, float(cell))
        elif line.startswith(f"- {BLOCKS}:"):
            yield from _of_blocks(line)


def _capacity(cell: str) -> int | None:
    """Of "250,000 tokens", "500,000" or "infinite"."""
    digits = re.sub(r"\D", "", cell)
    return int(digits) if digits else None


def _infinite(cells: list[str]) -> Iterator[Published]:
    for page_size, cell in zip(PAGE_SIZES, cells[6:10], strict=True):
        yield Published(cells[0], "file", None, page_size, False, float(cell))
    for page_size, cell in zip(PAGE_SIZES, cells[10:], strict=False):
        yield Published(cells[0], "file", None, page_size, True, float(cell))


def _of_blocks(line: str) -> Iterator[Published]:
    (ideal,) = re.findall(r"ideal block-512 ([\d.]+)%", line)
    yield Published(BLOCKS, "file", None, BLOCK_SIZE, False, float(ideal))
    for blocks, percent in re.findall(r"(\d+) blocks ([\d.]+)%", line):
        capacity = int(blocks) * BLOCK_SIZE
        yield Published(BLOCKS, "file", capacity, BLOCK_SIZE, False, float(percent))


def check(traces: Path, figure: Published) -> Checked:
    """Replay what gives the figure."""
    log = in_order(read(traces, figure.trace), figure.order)
    setting = Setting(
        figure.page_size, figure.capacity, outputs=figure.outputs, capacity_of="cache"
    )
    found = replay(log, setting)
    checked = Checked(figure, 100 * found.hit_rate, found.seconds)
    if not figure.trace.startswith(SESSIONS):
        return checked
    pool = replay(log, replace(setting, capacity_of="pool"))
    return replace(checked, pool_percent=100 * pool.hit_rate, refused=pool.refused)


def check_all(traces: Path, names: list[str], jobs: int) -> list[Checked]:
    """Every published figure of these traces (of all, if none is named)."""
    figures = [*published((traces / "README.md").read_text("utf-8"))]
    chosen = [each for each in figures if not names or each.trace in names]
    for name in sorted({each.trace for each in chosen}):
        read(traces, name)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        answers = pool.map(check, [traces] * len(chosen), chosen)
        return [*track(answers, "replaying", len(chosen), transient=True)]


def speed(traces: Path, rounds: int) -> list[dict[str, Any]]:
    """Replays of mooncake_conversation, token by token, each capacity in turn."""
    begun = time.perf_counter()
    log = read(traces, BLOCKS)
    reading_s = time.perf_counter() - begun
    samples: dict[int | None, list[float]] = {capacity: [] for capacity in FAST_CAPACITIES}
    rates: dict[int | None, float] = {}
    for _ in range(rounds):
        for capacity, seconds in samples.items():
            found = replay(log, Setting(capacity=capacity, capacity_of="cache"))
            seconds.append(round(found.seconds, 2))
            rates[capacity] = found.hit_rate
    tokens = int(log.lengths.sum())
    return [
        {
            "capacity": capacity,
            "prompt_tokens": tokens,
            "hit_rate": round(rates[capacity], 4),
            "reading_s": round(reading_s, 2),
            "samples_s": seconds,
            "median_s": statistics.median(seconds),
        }
        for capacity, seconds in samples.items()
    ]


def race(traces: Path, rounds: int) -> dict[str, Any]:
    """The curve from one pass and a replay for each capacity, in turn."""
    log = read(traces, BLOCKS)
    one_pass, replays, apart = [], [], 0.0
    for _ in range(rounds):
        begun = time.perf_counter()
        curve = lru_curve(find_paths(log))
        rates = [curve.hit_rate(capacity) for capacity in CURVE_CAPACITIES]
        one_pass.append(round(time.perf_counter() - begun, 2))
        found = [
            replay(log, Setting(capacity=capacity, capacity_of="cache"))
            for capacity in CURVE_CAPACITIES
        ]
        replays.append(round(sum(each.seconds for each in found), 2))
        differences = [abs(a - b.hit_rate) for a, b in zip(rates, found, strict=True)]
        apart = max(apart, 100 * max(differences))
    times = statistics.median(b / a for a, b in zip(one_pass, replays, strict=True))
    return {
        "capacities": CURVE_CAPACITIES,
        "samples_s": {"one pass": one_pass, "replays": replays},
        "times": round(times, 1),
        "largest_difference_points": round(apart, 4),
    }


def table(checked: list[Checked]) -> Table:
    """The largest difference for each trace."""
    shown = Table("trace", "figures", "largest difference, points", title="against published rates")
    for name in dict.fromkeys(each.published.trace for each in checked):
        mine = [each for each in checked if each.published.trace == name]
        apart = max(abs(each.percent - each.published.percent) for each in mine)
        shown.add_row(name, str(len(mine)), f"{apart:.2f}")
    return shown


def pool_table(checked: list[Checked]) -> Table:
    """The same sizes as a pool, in which the request being served has its place, too."""
    shown = Table("trace", "capacity, tokens", "published", "cache", "pool", "longer than the pool")
    for each in checked:
        if each.pool_percent is not None:
            figure = each.published
            capacity = "infinite" if figure.capacity is None else f"{figure.capacity:,}"
            rates = (f"{rate:.2f}" for rate in (figure.percent, each.percent, each.pool_percent))
            shown.add_row(figure.trace, capacity, *rates, str(each.refused))
    return shown


def speed_table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("capacity", "hit rate", "seconds", "tokens a second")
    for row in rows:
        capacity = "infinite" if row["capacity"] is None else f"{row['capacity']:,}"
        a_second = f"{row['prompt_tokens'] / row['median_s']:,.0f}"
        shown.add_row(capacity, f"{row['hit_rate']:.1%}", f"{row['median_s']:.1f}", a_second)
    shown.title = f"{BLOCKS}, page size 1, {rows[0]['prompt_tokens']:,} tokens"
    return shown


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="traces; by default all")
    parser.add_argument("--traces", type=Path, default=find_traces())
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    args.out = kept_at("lab", parser, args, "names")
    return args


def problems(report: dict[str, Any], checked: list[Checked]) -> list[str]:
    """What contradicts the claims, a line each."""
    found = [f"{each.published}: {each.percent:.2f}" for each in checked if not each.is_equal]
    found += [f"too slow: {row}" for row in report["speed"] if row["median_s"] >= LIMIT_S]
    curve = report["curve"]
    if curve["times"] < TIMES or curve["largest_difference_points"] > CURVE_POINTS:
        found.append(f"the curve: {curve}")
    return found


def main() -> None:
    how = arguments()
    if not (how.traces / "README.md").is_file():
        sys.exit(f"no request traces in {how.traces}: name their folder by RADIXKV_TRACES")
    console = Console(width=100)
    fast = speed(how.traces, how.rounds)
    console.print(speed_table(fast))
    curve = race(how.traces, how.rounds)
    console.print(
        f"the curve at {len(CURVE_CAPACITIES)} capacities in one pass: {curve['times']} x as fast "
        f"as a replay each, at most {curve['largest_difference_points']} points apart"
    )
    checked = check_all(how.traces, how.names, how.jobs)
    console.print(table(checked), pool_table(checked))
    figures = [asdict(each) for each in checked]
    report = {"seed": None, "speed": fast, "curve": curve, "checked": figures}
    path = save("lab", report, how.out)
    equal = sum(each.is_equal for each in checked)
    console.print(f"{equal} of {len(checked)} figures equal; {path}")
    if lines := problems(report, checked):
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
