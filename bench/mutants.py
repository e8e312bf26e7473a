"""Whether the tests notice: `make mutants` changes 100 lines, one at a time, and runs their tests.

A seeded sample over the Python code of four rooms: a comparison, a sign or a condition is turned
round, or a call dropped. Each is judged by the tests of its room, on the Python core, and counts as
noticed when they fail, hang or run out of memory. The two cores are held to the same answers by
tests/differential, so what the tests notice of one they notice of the other.

bench/results/mutants.txt lists the survivors.
"""

import argparse
import ast
import os
import random
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.mutant import ROOT, sites
from bench.report import RESULTS, UNPUBLISHED, command, machine

SEED, NUMBER = 2026, 100
TIMEOUT_S, MEMORY_BYTES = 240, 8 << 30


class Room(NamedTuple):
    """What is changed, and the tests that should notice, the fastest first."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "tree": Room(
        ("radixkv/tree/*.py", "radixkv/tree/policies/*.py"),
        (
            "tests/unit/test_tree*.py", "tests/unit/test_locks.py", "tests/unit/test_content.py",
            "tests/unit/test_tokens.py", "tests/unit/test_namespace.py",
            "tests/unit/test_batches.py",
            "tests/unit/test_eviction.py", "tests/unit/test_adaptive.py",
            "tests/unit/test_reuse_model.py", "tests/unit/test_extending.py",
            "tests/cases/test_tree_cases.py", "tests/property/test_tree_machine.py",
            "tests/differential/test_cores.py",
        ),
    ),
    "cache": Room(
        ("radixkv/cache/*.py", "radixkv/memory/*allocator.py", "radixkv/memory/req_to_token.py"),
        (
            "tests/unit/test_cache*.py", "tests/unit/test_loans.py", "tests/unit/test_borrowers.py",
            "tests/unit/test_event*.py", "tests/unit/test_fork.py", "tests/unit/test_integrity.py",
            "tests/unit/test_allocator.py", "tests/unit/test_capacity.py",
            "tests/unit/test_req_to_token.py", "tests/unit/test_long_fields.py",
            "tests/unit/test_threads.py", "tests/cases/test_cache*.py",
            "tests/property/test_cache_machine.py", "tests/property/test_allocator_machine.py",
        ),
    ),
    "router": Room(
        ("radixkv/router/*.py", "radixkv/router/policies/*.py"),
        (
            "tests/router/test_holdings.py", "tests/router/test_index.py",
            "tests/router/test_policies.py", "tests/router/test_router.py",
            "tests/router/test_feeding.py", "tests/cases/test_router_cases.py",
            "tests/router/test_service.py", "tests/router/test_secured.py",
            "tests/router/test_holdings_machine.py", "tests/router/test_index_machine.py",
            "tests/router/test_route_command.py", "tests/differential/test_holdings.py",
        ),
    ),
    "planner": Room(
        ("radixkv/attention/shared_prefix/p*.py", "radixkv/attention/shared_prefix/c*.py"),
        ("tests/attention/test_planner.py", "tests/gpu/test_steps.py"),
    ),
}  # fmt: skip


class Mutant(NamedTuple):
    """One changed line. number: of the site in its file."""

    room: str
    file: str
    number: int
    line: int
    kind: str

    @property
    def text(self) -> str:
        """The line as it is."""
        return (ROOT / self.file).read_text().splitlines()[self.line - 1].strip()


def mutants(room: str) -> list[Mutant]:
    """All that could be made of a room's sources."""
    files = sorted({path for pattern in ROOMS[room].sources for path in ROOT.glob(pattern)})
    return [
        Mutant(room, str(path.relative_to(ROOT)), number, site.line, site.kind)
        for path in files
        for number, site in enumerate(sites(ast.parse(path.read_text())))
    ]


def is_noticed(mutant: Mutant) -> str | None:
    """How the room's tests noticed the change; None: they did not."""
    tests = [
        str(path) for pattern in ROOMS[mutant.room].tests for path in sorted(ROOT.glob(pattern))
    ]
    arguments = (
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-k",
        "not native",
        *tests,
    )
    try:
        done = subprocess.run(
            [sys.executable, "bench/mutant.py", mutant.file, str(mutant.number), *arguments],
            cwd=ROOT, env=os.environ | {"HYPOTHESIS_PROFILE": "dev", "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=TIMEOUT_S, preexec_fn=_within_memory,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it hangs"
    if not done.returncode:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"status {done.returncode}"


def _within_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def shown(mutant: Mutant) -> str:
    return f"{mutant.room:8} {mutant.file}:{mutant.line}  {mutant.kind}: {mutant.text}"


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.mutants")
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=[*ROOMS])
    options = parser.parse_args(given)
    everything = [mutant for room in options.rooms for mutant in mutants(room)]
    sample = random.Random(options.seed).sample(everything, min(options.number, len(everything)))
    survivors = []
    for at, mutant in enumerate(sample, start=1):
        noticed = is_noticed(mutant)
        print(f"{at:4} {shown(mutant)}\n     -> {noticed or 'SURVIVES'}", flush=True)
        if noticed is None:
            survivors.append(mutant)
    of_room = {room: sum(mutant.room == room for mutant in sample) for room in options.rooms}
    on = machine()
    lines = [
        command(),
        f"{on['machine']}, Python {on['python']}, commit {on['commit']}",
        f"seed {options.seed}: {len(sample)} of {len(everything)} changes, by room {of_room}",
        f"{len(sample) - len(survivors)} noticed, {len(survivors)} survived:",
        *(f"  {shown(mutant)}" for mutant in sorted(survivors)),
    ]
    is_whole = options.number == NUMBER and options.rooms == [*ROOMS]
    path: Path = (RESULTS if is_whole else UNPUBLISHED) / "mutants.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
