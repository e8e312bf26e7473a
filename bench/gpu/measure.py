"""Timing on a CUDA card: captured graphs, cold caches, contenders in turn."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.report import PACKAGES, RESULTS, kept_at, save, versions

ROUNDS = 5
# The two names under which sgl-kernel, which has fa3, is published, and what else runs on the card.
SGL_KERNEL = ("sglang-kernel", "sgl-kernel")
CONTENDERS = (*SGL_KERNEL, "sglang", "flashinfer-python", "triton")


def captured(run: Callable[[], Any]) -> Callable[[], None]:
    """`run` as the replay of a CUDA graph; it ran twice before, so that all is compiled."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    # The graph reads what `run` holds.
    return partial(_replay, graph, run)


def _replay(graph: torch.cuda.CUDAGraph, run: Callable[[], Any]) -> None:
    graph.replay()


def in_turn(
    contenders: Mapping[str, Callable[[], None]], *, rounds: int = ROUNDS, rep_ms: int = 20
) -> dict[str, list[float]]:
    """Microseconds of every run of each contender, all of them in each round.

    The second-level cache is cleared before each run.
    """
    from triton.testing import do_bench  # not where there is no card

    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            times = do_bench(run, warmup=5, rep=rep_ms, return_mode="all")
            samples[name] += [round(time * 1e3, 2) for time in times]
    return samples


def medians(samples: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: round(median(times), 1) for name, times in samples.items()}


def clean_us(run: Callable[[], None], *, runs: int = 100) -> float:
    """Median microseconds of `run` where the cache was cleared by reading."""
    return round(median(clean_samples(run, runs=runs)), 1)


def clean_samples(run: Callable[[], None], *, runs: int = 100) -> list[float]:
    """Microseconds of `run` where the cache was cleared by reading.

    `do_bench` clears it by writing, and what it wrote still makes its way to memory while `run`
    begins: 6 to 8 us that no kernel which follows another in a model sees.
    """
    other = _other()
    timed = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]  # type: ignore[no-untyped-call]
    for begin, end in timed:
        other.sum()
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [round(begin.elapsed_time(end) * 1e3, 2) for begin, end in timed]


@cache
def _other() -> torch.Tensor:
    """More than the second-level cache holds."""
    return torch.zeros(64 << 20, dtype=torch.int32, device="cuda")


def copy_bandwidth() -> float:
    """Bytes a microsecond that a large copy on the device reads and writes together."""
    from triton.testing import do_bench

    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = do_bench(lambda: target.copy_(source), warmup=5, rep=50, return_mode="all")
    microseconds: float = median(times) * 1e3
    return 2 * len(source) / microseconds


def card() -> dict[str, Any]:
    """The card and what runs on it."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "driver": _driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def require_card() -> None:
    if not torch.cuda.is_available():
        sys.exit("this measures on a CUDA device, and torch sees none here")


def where_to(name: str, doc: str | None) -> Path:
    """`--out`, the one option of a script; else bench/results/gpu, without a card build/bench."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--out", type=Path)
    parser.set_defaults(has_card=True)
    arguments = parser.parse_args()
    arguments.has_card = torch.cuda.is_available()
    return kept_at(f"gpu/{name}", parser, arguments, "has_card")


def save_figures(name: str, figures: dict[str, Any], path: Path | None = None) -> Path:
    """Into bench/results/gpu/NAME.json, with the card and the versions of the contenders."""
    where = path or RESULTS / "gpu" / f"{name}.json"
    return save(name, {"versions": all_versions(), **card(), **figures}, where)


def all_versions() -> dict[str, str]:
    """Of the packages that every benchmark names, and of the contenders."""
    found = versions([*PACKAGES, *CONTENDERS])
    if not found.keys() & {*SGL_KERNEL}:
        # It may lie on the path without being a distribution; and figures are worth more than it.
        with suppress(Exception):
            found["sgl-kernel"] = str(import_module("sgl_kernel").__version__)
    return found


def _driver() -> str:
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return "unknown"
