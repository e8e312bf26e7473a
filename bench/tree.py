"""radixkv's cores and other prefix caches on the same work, in turn, in one run.

python -m bench.tree [--rounds 5] [--work w1,w3] [--contenders "radixkv,sglang rust"]

Each contender runs in its own process, one for all rounds; every round starts with an empty cache.
A figure is the median over the rounds of a round's median, in microseconds. Memory is measured
once, in a fresh process. The first run installs the peers into `.peers/` (3 GB).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.peers import setup
from bench.report import kept_at, save

ROOT = Path(__file__).parents[1]
NATIVE = ("radixkv", "radixkv fused", "radixkv cache")
OURS = (*NATIVE, "radixkv python", "floor")
CONTENDERS = (
    *NATIVE, "floor",
    "sglang rust", "sglang rust from lists", "sglang c++", "sglang python", "vllm", "dynamo",
)  # fmt: skip
ONCE = ("w5", "w5b")
WORK = ("w1", "w2", "w3", "w4", "w4b", *ONCE)

Figures = dict[str, float]
Samples = dict[str, dict[str, list[Figures]]]  # by workload and contender, one item a round

# What is required: workload, figure, the contender to compare with, and how many times as fast.
# "radixkv" makes the single calls of `RadixTree`, "radixkv fused" the two calls that replace them,
# "radixkv cache" those of `PrefixCache`, which does more.
# "sglang rust" extends the array that it has of the prompt; "from lists" it makes a new one.
WANTED = (
    ("w1", "cycle from list", "sglang rust", 20.0),
    ("w1", "cycle from list", "sglang rust from lists", 20.0),
    ("w1", "cycle from list", "sglang c++", 12.0),
    ("w1", "cycle from list", "vllm", 60.0),
    ("w2", "cycle from list", "sglang rust", 15.0),
    ("w3", "from list", "sglang rust", 14.0),
    ("w3", "native", "sglang rust", 3.0),
    ("w3", "native", "floor", 1 / 1.5),
    ("w4", "cycle from list", "best", 8.0),
    ("w4b", "100000 leaves", "sglang rust", 1000.0),
    ("w4b", "100000 leaves", "vllm", 1.0),
    ("w4b", "100000 leaves", "itself at 1000 leaves", 1 / 2),
    ("w1", "lock and unlock", "sglang rust", 8.0),
    ("w5", "bytes per token", "10 bytes", 1.0),
    ("w5b", "bytes per branch", "160 bytes", 1.0),
)


class Worker:
    """A contender's process."""

    def __init__(self, name: str) -> None:
        self._name = name
        ours = name in OURS
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SGLANG_LOG_LEVEL": "ERROR",
            "TORCH_EXTENSIONS_DIR": str(setup.FOLDER / "extensions"),
        }
        if not ours:
            environment["PYTHONPATH"] = str(ROOT)
            environment["PATH"] = f"{setup.python().parent}:{environment['PATH']}"
        self._process = subprocess.Popen(
            [sys.executable if ours else setup.python(), "-m", "bench.peers.worker", name],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, work: str, most_s: float) -> Figures:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"work": work, "most_s": most_s}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"bench.tree: the process of {self._name!r} ended in {work}")
        answer: Figures = json.loads(line)
        if "lock" in answer:
            answer["lock and unlock"] = answer["lock"] + answer["unlock"]
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def workers(names: list[str]) -> Iterator[dict[str, Worker]]:
    running = {name: Worker(name) for name in names}
    try:
        yield running
    finally:
        for worker in running.values():
            worker.end()


def race(names: list[str], work: list[str], rounds: int, most_s: float) -> Samples:
    """Every contender's figures in every round; each round begins with another contender."""
    samples: Samples = {item: {name: [] for name in names} for item in work}
    with workers(names) as running:
        for item in (item for item in work if item not in ONCE):
            for turn in range(rounds):
                for name in [*names[turn % len(names) :], *names[: turn % len(names)]]:
                    samples[item][name].append(running[name].run(item, most_s))
                    report(item, name, samples[item][name][-1])
    for item in (item for item in work if item in ONCE):
        for name in names:
            with workers([name]) as alone:
                samples[item][name].append(alone[name].run(item, most_s))
            report(item, name, samples[item][name][-1])
    return samples


def report(item: str, name: str, figures: Figures) -> None:
    shown = " ".join(f"{figure} {value:.2f}" for figure, value in figures.items())
    print(f"{item} {name}: {shown}", file=sys.stderr, flush=True)


def median(samples: list[Figures], figure: str) -> float | None:
    values = [figures[figure] for figures in samples if figure in figures]
    return statistics.median(values) if values else None


def tables(samples: Samples) -> Iterator[Table]:
    """A table a workload: contenders down, figures across."""
    for work, by_name in samples.items():
        figures = list(dict.fromkeys(f for rows in by_name.values() for row in rows for f in row))
        table = Table(title=f"{work} (us; memory in bytes)", title_justify="left")
        table.add_column("contender")
        for figure in figures:
            table.add_column(figure, justify="right")
        for name, rows in by_name.items():
            values = [median(rows, figure) for figure in figures]
            if any(value is not None for value in values):
                table.add_row(name, *("" if v is None else f"{v:,.2f}" for v in values))
        yield table


def ratios(samples: Samples) -> list[dict[str, Any]]:
    """Required and measured, for each way of calling: how many times as fast, or as small."""
    rows = []
    for work, figure, against, wanted in WANTED:
        by_name = samples.get(work, {})
        row = {"work": work, "figure": figure, "against": against, "wanted": wanted}
        for ours in NATIVE:
            own = median(by_name.get(ours, []), figure)
            other = _opponent(by_name, figure, against, ours)
            if own and other:
                row[ours] = other / own
        if len(row) > 4:
            rows.append(row)
    return rows


def _opponent(
    by_name: dict[str, list[Figures]], figure: str, against: str, ours: str
) -> float | None:
    if against.endswith(" bytes"):
        return float(against.split()[0])
    if against.startswith("itself at "):
        return median(by_name.get(ours, []), against.removeprefix("itself at "))
    if against != "best":
        return median(by_name.get(against, []), figure)
    peers = [median(rows, figure) for name, rows in by_name.items() if name not in OURS]
    return min((value for value in peers if value is not None), default=None)


def ratio_table(rows: list[dict[str, Any]]) -> Table:
    """Required against reached. `PrefixCache` does more than the requirement covers: no mark."""
    table = Table(
        "work", "figure", "against", title="times as fast, or as small", title_justify="left"
    )
    for column in ("required", *NATIVE):
        table.add_column(column, justify="right")
    for row in rows:
        reached = (_marked(row, ours) for ours in NATIVE)
        table.add_row(row["work"], row["figure"], row["against"], f"{row['wanted']:.2f}", *reached)
    return table


def _marked(row: dict[str, Any], ours: str) -> str:
    if ours not in row:
        return ""
    is_short = row[ours] < row["wanted"] and ours != "radixkv cache"
    return f"{row[ours]:.2f}" + (" (short)" if is_short else "")


def circumstances() -> dict[str, Any]:
    """What these figures depend on, apart from the machine."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "load before": os.getloadavg(),
        "peers": setup.VERSIONS,
        "torch of the peers": setup.TORCH,
        "seeds": "1 to 5, by workload",
    }


def _loads(about: dict[str, Any]) -> str:
    before, after = about["load before"][0], about["load after"][0]
    return f"{before:.1f} before, {after:.1f} after,"


def main() -> None:
    parser = argparse.ArgumentParser(description="radixkv's tree against its peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--most-s", type=float, default=25.0, help="bound of one timed loop")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    names = args.contenders.split(",")
    if not set(names) <= set(OURS):
        setup.prepare()
    about = circumstances()
    samples = race(names, args.work.split(","), args.rounds, args.most_s)
    rows = ratios(samples)
    about["load after"] = os.getloadavg()
    out = kept_at("tree", parser, args, "work", "contenders")
    save("tree", {**about, "ratios": rows, "samples": samples}, out)
    console = Console(width=None if sys.stdout.isatty() else 200, record=True)
    console.print(f"$ make bench-tree\nload average {_loads(about)} on {os.cpu_count()} CPUs")
    console.print(*tables(samples), ratio_table(rows), sep="\n")
    console.save_text(str(out.with_suffix(".txt")))


if __name__ == "__main__":
    main()
