"""What every benchmark writes: its figures, and what a reader needs to judge them."""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import radixkv

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
UNPUBLISHED = ROOT / "build" / "bench"
WIDTH = 200  # a row of a table on one line
PACKAGES = ("numpy", "torch", "transformers", "grpcio", "hypothesis")


Sense = Literal["at least", "at most"]


class Claim(NamedTuple):
    """What a figure must be: at least or at most `bound`."""

    name: str
    reached: float
    sense: Sense
    bound: float

    @property
    def is_met(self) -> bool:
        """False for what is not a number."""
        if self.sense == "at least":
            return self.reached >= self.bound
        return self.reached <= self.bound


def judge(claims: Iterable[Claim]) -> None:
    """Print the claims that are missed; exit with status 1 if there are any, or no claim at all.

    Call it last, when the figures are saved: a figure that falls short is a result too.
    """
    claims = [*claims]
    missed = [claim for claim in claims if not claim.is_met]
    for name, reached, sense, bound in missed:
        print(f"missed: {name}: {reached:g}, {sense} {bound:g} is claimed")
    print(f"{len(claims) - len(missed)} of {len(claims)} claims are met", flush=True)
    if missed or not claims:
        sys.exit(1)


def machine() -> dict[str, Any]:
    """Processor, load, versions and commit of this run."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, {_model()}",
        "load": [round(load, 1) for load in os.getloadavg()],
        "commit": _commit(),
        "python": platform.python_version(),
        "radixkv": radixkv.__version__,
        "core": radixkv.new_tree().core,
        "versions": versions(PACKAGES),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    return {name: found for name in packages if (found := _version(name))}


def kept_at(
    name: str, parser: argparse.ArgumentParser, args: argparse.Namespace, *scope: str
) -> Path:
    """Where a run's figures go: `--out`, else bench/results for a whole run, else build/bench.

    scope: the options that a whole run leaves at their defaults.
    """
    if args.out is not None:
        return Path(args.out)
    # A positional argument that is left out is [], although its default is None.
    given = {option: getattr(args, option) or None for option in scope}
    is_whole = all(given[option] == (parser.get_default(option) or None) for option in scope)
    return (RESULTS if is_whole else UNPUBLISHED) / f"{name}.json"


def save(name: str, figures: dict[str, Any], path: Path | None = None) -> Path:
    """Write `figures`, with the command and the machine, into bench/results/NAME.json or `path`.

    What stands under a key that begins with "samples" is written as its `summary`. The samples
    themselves go to build/bench, or next to `path`, as NAME.raw.json; git does not keep them.
    Returns where the figures are.
    """
    path = path or RESULTS / f"{name}.json"
    report = {"command": command(), **machine(), **figures}
    summaries = summarized(report)
    _write(path, summaries)
    if summaries != report:
        _write(_raw_path(path), report)
    return path


def load(name: str) -> Any:
    """The figures of bench/results/NAME.json."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def summarized(figures: Any) -> Any:
    """The same figures, with a summary in place of each list of samples."""
    if isinstance(figures, dict):
        return {
            key: _summaries(value) if str(key).startswith("samples") else summarized(value)
            for key, value in figures.items()
        }
    return [summarized(each) for each in figures] if isinstance(figures, list) else figures


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """How many there are, their median, and their first and third quartile."""
    first, median, third = (
        statistics.quantiles(samples, n=4, method="inclusive")
        if len(samples) > 1
        else [samples[0]] * 3
    )
    return {
        "n": len(samples),
        "median": _rounded(median),
        "quartiles": [*map(_rounded, (first, third))],
    }


def laid_out(value: Any, margin: str = "") -> str:
    """`value` as JSON, with each part on one line where that fits into `WIDTH` columns."""
    line = json.dumps(value)
    if len(margin) + len(line) < WIDTH or not isinstance(value, dict | list):
        return line
    inner = margin + "  "
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(key))}: {laid_out(part, inner)}" for key, part in value.items()]
    else:
        parts = [laid_out(part, inner) for part in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{closing}"


def _summaries(samples: Any) -> Any:
    """Of lists by name, of a list of numbers, and of a list of the same figures of each round."""
    if isinstance(samples, dict):
        return {name: _summaries(each) for name, each in samples.items()}
    if samples and isinstance(samples[0], dict):
        names = dict.fromkeys(name for figures in samples for name in figures)
        return {name: summary([each[name] for each in samples if name in each]) for name in names}
    return summary(samples) if samples else {"n": 0}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _raw_path(path: Path) -> Path:
    if path.is_relative_to(RESULTS):
        path = UNPUBLISHED / path.relative_to(RESULTS)
    return path.with_suffix(".raw.json")


def _write(path: Path, figures: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(laid_out(figures) + "\n")


def command() -> str:
    """The command that started this process, as one would type it."""
    return shlex.join(["python", *sys.orig_argv[1:]])


def _model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return asked.stdout.strip() or None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
