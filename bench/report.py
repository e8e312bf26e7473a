"""What every benchmark writes: its figures, and what a reader needs to judge them."""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import radixkv

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
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
    """Print what is missed; the process ends with status 1 if anything is, or nothing is claimed.

    To be called last, when figures are saved: what falls short is a result too.
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
    """Of those that are installed."""
    return {name: found for name in packages if (found := _version(name))}


def kept_at(
    name: str, parser: argparse.ArgumentParser, args: argparse.Namespace, *scope: str
) -> Path:
    """Where a run's figures go: `--out`, else bench/results, which takes whole runs alone.

    scope: the options that must be as they are by default; a partial run goes to build/bench.
    """
    if args.out is not None:
        return Path(args.out)
    # Positional arguments that are left out come as [], although their default is None.
    given = {option: getattr(args, option) or None for option in scope}
    is_whole = all(given[option] == (parser.get_default(option) or None) for option in scope)
    return (RESULTS if is_whole else ROOT / "build" / "bench") / f"{name}.json"


def save(name: str, figures: dict[str, Any], path: Path | None = None) -> Path:
    """Write `figures` and the command as it ran into bench/results/NAME.json; returns it."""
    path = path or RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"command": command(), **machine(), **figures}
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def command() -> str:
    """What this process was started with, as one would type it."""
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
