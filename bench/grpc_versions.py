"""Which grpcio serves fastest here: `python -m bench.grpc_versions 1.78.2 1.85.0`.

Each version, with its companions, is installed into its own folder. In every round each serves the
calls of `bench.service` in turn; client and server use the same version. Measured are calls/s, and
the processor time of a call, server and client together, which other work on the machine disturbs
less.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.report import ROOT, save

COMPANIONS = ("grpcio", "grpcio-health-checking", "grpcio-reflection", "grpcio-status")
# One version's share of a round, in a process that finds no other grpcio.
ROUND = """
import asyncio, json, os, time
from bench.service import batched, running, serve, single

def spent():
    own, others = os.times()[:2], os.times()[2:4]
    return sum(own) + sum(others)

if __name__ == "__main__":
    found, before = {}, spent()
    with running(serve) as (address, _):
        found["batched"] = asyncio.run(batched(address, 2.0))
        found["single"] = asyncio.run(single(address, 2.0, coalesce=False))[0]
    found["cpu_us"] = 1e6 * (spent() - before) / (2 * found["batched"] + 2 * found["single"])
    print(json.dumps(found))
"""


def install(version: str, folder: Path) -> Path:
    """The folder with that version, made where it is missing."""
    target = folder / f"grpcio-{version}"
    if not target.exists():
        wanted = [f"{name}=={version}" for name in COMPANIONS]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target"]
        subprocess.run([*pip, str(target), *wanted], check=True)
    return target


def play(folder: Path) -> dict[str, float]:
    """One round of one version."""
    script = folder / "play.py"
    script.write_text(ROUND)
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.grpc_versions")
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=ROOT / ".peers")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    folders = {version: install(version, options.folder) for version in options.versions}
    samples: dict[str, list[dict[str, float]]] = {version: [] for version in folders}
    for _ in range(options.rounds):
        for version, folder in folders.items():
            samples[version].append(play(folder))
    table = Table("grpcio", "batched calls/s", "single calls/s", "us of processor a call")
    for version, rounds in samples.items():
        middles = (statistics.median(each[k] for each in rounds) for k in rounds[0])
        table.add_row(version, *(f"{middle:,.0f}" for middle in middles))
    Console().print(table)
    save("grpc_versions", {"samples": samples}, options.out)


if __name__ == "__main__":
    main()
