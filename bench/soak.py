"""A long run of PrefixCache against its model: `python -m bench.soak`.

The operations are those of `tests/property/test_cache_machine.py`, chosen by a seeded generator.
Every operation is judged, everything the model knows is compared after it, and `check_integrity`
is asked after each `--check-every`. A cache of another kind (policy, page size, sizes) is begun
every `--life` operations. A failure names the life in which it happened: `--first-life` goes
straight there.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

import radixkv
from bench.report import kept_at, save
from tests.support.cache_driver import CacheDriver

T = TypeVar("T")


class Seeded:
    """Choices of a seeded generator."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of_options()
    options = parser.parse_args(arguments)
    console = Console()
    console.print(f"seed {options.seed}, {options.operations:,} operations")
    began, counts = monotonic(), Counter[str]()
    lives = range(options.first_life, -(-options.operations // options.life))
    for life in track(lives, "soaking", console=console):
        counts += live(life, options)
    report = summary(options, counts, monotonic() - began)
    show(console, report)
    name = f"soak-{report['core']}"
    save(name, report, kept_at(name, parser, options, "operations", "life", "first_life"))


def parser_of_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--life", type=int, default=1_000, help="operations per cache")
    parser.add_argument("--first-life", type=int, default=0)
    parser.add_argument("--check-every", type=int, default=1)
    parser.add_argument("--core", choices=["python", "native"], default=None)
    parser.add_argument("--out", type=Path, default=None)
    return parser


def live(life: int, options: argparse.Namespace) -> Counter[str]:
    """One cache from its making to its last operation; how often each was done."""
    driver = CacheDriver(Seeded(f"{options.seed}/{life}"), options.core)
    operations = min(options.life, options.operations - life * options.life)
    for at in range(operations):
        try:
            driver.step()
            driver.compare(integrity=at % options.check_every == 0)
        except BaseException:
            print(f"seed {options.seed}, life {life}, operation {at}", file=sys.stderr)
            raise
    stats = driver.cache.stats()
    sizes = ("prompt", "cached", "resumed", "published", "evicted")
    driver.counts.update({f"{name} tokens": getattr(stats, f"{name}_tokens") for name in sizes})
    driver.counts["caches"] += 1
    return driver.counts


def summary(options: argparse.Namespace, counts: Counter[str], seconds: float) -> dict[str, Any]:
    return {
        "seed": options.seed,
        "operations": options.operations,
        "operations_per_cache": options.life,
        "check_integrity_every": options.check_every,
        "core": options.core or radixkv.new_tree().core,
        "seconds": round(seconds, 1),
        "failures": 0,
        "counts": dict(sorted(counts.items())),
    }


def show(console: Console, report: dict[str, Any]) -> None:
    table = Table()
    table.add_column("what")
    table.add_column("how often", justify="right")
    for name, count in report["counts"].items():
        table.add_row(name, f"{count:,}")
    console.print(table)
    console.print(f"no failure on the {report['core']} core, {report['seconds']} s")


if __name__ == "__main__":
    main()
