"""What the ways to cut a step take on this card, and the figures of `shared_prefix.cost.Card`.

    python -m bench.gpu.calibrate            measures, fits, prints the figures
    python -m bench.gpu.calibrate --from F   fits to what was measured before

Each shape is cut in every way of a grid; a way is a CUDA graph of one layer, its cache cleared by
reading. Kept: what `Planner.survey` says of each way, and its time.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu.measure import captured, card, require_card
from radixkv.attention import AttentionBatch, ScoreOptions, get_backend
from radixkv.attention.device import DeviceStep
from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.backend import run_tree
from radixkv.attention.shared_prefix.device_plan import DevicePlan
from radixkv.attention.shared_prefix.kernels import TileKernels
from radixkv.attention.shared_prefix.plan import Shape
from radixkv.memory.kv_pool import MHATokenToKVPool

HEADS = [
    (32, 8, 128), (8, 1, 128), (4, 1, 128), (8, 2, 128), (16, 1, 128), (16, 2, 128), (28, 4, 128),
    (64, 8, 128), (32, 32, 128), (16, 8, 128), (24, 8, 64), (48, 8, 128), (32, 4, 128),
]  # fmt: skip
# Shortest and longest narrow pieces; shortest wide ones; slots that a share must save.
NARROW = [(256, 1024), (128, 512), (64, 256), (256, 512), (128, 1024)]
WIDE, SHARES, ROWS = (256, 512, 1024), (64, 256), (64, 128)
CLEARED = 256 << 20


@dataclass(frozen=True)
class Case:
    """levels: (requests a group, tokens) from the root to the requests' own."""

    heads: tuple[int, int, int]
    requests: int
    levels: tuple[tuple[int, int], ...]
    query_len: int = 1
    ragged: int | None = None

    def rows(self) -> list[NDArray[np.int32]]:
        if self.ragged is not None:
            return ragged_rows(self.ragged)
        unique = sum(-(-self.requests // size) * tokens for size, tokens in self.levels)
        slots = np.random.default_rng(0).permutation(unique).astype(np.int32) + 1
        rows: list[list[NDArray[np.int32]]] = [[] for _ in range(self.requests)]
        at = 0
        for size, tokens in self.levels:
            for first in range(0, self.requests, size):
                run, at = slots[at : at + tokens], at + tokens
                for row in rows[first : first + size]:
                    row.append(run)
        return [np.concatenate(row) for row in rows]


def ragged_rows(seed: int, requests: int = 200) -> list[NDArray[np.int32]]:
    """Lengths of a zipf distribution from 200 to 20,000; each row forks from one before it."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(200 * rng.zipf(1.7, requests), 200, 20_000)
    rows: list[NDArray[np.int64]] = []
    fresh = 1
    for length in lengths.tolist():
        parent = rows[int(rng.integers(len(rows)))] if rows else np.zeros(0, np.int64)
        kept = int(rng.integers(0, min(len(parent), length - 1) + 1)) if len(parent) else 0
        own = np.arange(fresh, fresh + length - kept)
        fresh += len(own)
        rows.append(np.concatenate([parent[:kept], own]))
    shuffled = np.random.default_rng(seed).permutation(fresh).astype(np.int32) + 1
    return [shuffled[row] for row in rows]


def fixed_cases() -> Iterator[Case]:
    """The shapes that people serve most."""
    h = {f"{each[0]}/{each[1]}": each for each in HEADS}
    for requests, shared, own in (
        (64, 16384, 256), (64, 4096, 256), (256, 4096, 256), (8, 16384, 256), (2, 16384, 256),
        (1, 16384, 256), (512, 2048, 100), (16, 2048, 128), (32, 4096, 256), (8, 512, 64),
    ):  # fmt: skip
        yield Case(h["32/8"], requests, ((requests, shared), (1, own)))
    yield Case(h["32/8"], 64, ((64, 2048), (16, 2048), (4, 1024), (1, 256)))
    yield Case(h["32/8"], 64, ((8, 3000), (1, 300)))
    yield Case(h["32/8"], 64, ((2, 2000), (1, 512)))
    yield Case(h["32/8"], 64, ((1, 4096),))
    yield Case(h["32/8"], 256, ((1, 1024),))
    yield Case(h["28/4"], 64, ((64, 16384), (1, 256)))
    for name, requests, shared, own in (
        ("8/1", 64, 8192, 512), ("8/1", 32, 4096, 256), ("8/1", 128, 2048, 256),
        ("8/1", 256, 8192, 1024), ("4/1", 64, 16384, 256), ("8/2", 64, 4096, 256),
        ("16/2", 64, 8192, 512), ("16/1", 64, 16384, 256), ("16/1", 64, 4096, 256),
        ("64/8", 128, 32768, 1024), ("32/32", 64, 4096, 256),
    ):  # fmt: skip
        yield Case(h[name], requests, ((requests, shared), (1, own)))
    for seed in (2, 3, 4):
        yield Case(h["32/8"], 200, (), ragged=seed)
    yield Case(h["8/1"], 200, (), ragged=2)
    for query_len, requests, shared in (
        (4, 64, 8192),
        (4, 16, 16384),
        (8, 64, 2048),
        (2, 64, 8192),
    ):
        yield Case(h["32/8"], requests, ((requests, shared), (1, 256)), query_len)
    yield Case(h["32/8"], 64, ((64, 16384), (1, 16)), 16)
    yield Case(h["8/1"], 64, ((64, 8192), (1, 512)), 4)


def random_cases(count: int, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        requests = int(2 ** rng.uniform(1, 9))
        size, levels = requests, []
        for _ in range(int(rng.integers(1, 4))):
            levels.append((size, int(2 ** rng.uniform(8, 15))))
            size = max(1, size // int(rng.integers(2, 9)))
        levels.append((1, int(2 ** rng.uniform(4, 11))))
        yield Case(HEADS[int(rng.integers(len(HEADS)))], requests, tuple(levels))


def ways(base: Shape, query_len: int) -> Iterator[Shape]:
    rows = {base.narrow_rows, min(64, max(16, 1 << (query_len * base.group - 1).bit_length()))}
    for narrow_rows, wide_rows, share, wide, (shortest, longest) in product(
        sorted(rows), ROWS, SHARES, WIDE, NARROW
    ):
        yield replace(
            base, narrow_rows=narrow_rows, wide_rows=wide_rows, share=share, shortest_wide=wide,
            shortest_narrow=shortest, longest_narrow=longest,
        )  # fmt: skip


def cleared_us(run: Callable[[], None], other: torch.Tensor, runs: int) -> float:
    timed = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]  # type: ignore[no-untyped-call]
    for begin, end in timed:
        other.sum()
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return round(median([begin.elapsed_time(end) * 1e3 for begin, end in timed]), 2)


def measured(case: Case, other: torch.Tensor, runs: int) -> dict[str, Any]:
    heads, kv_heads, dim = case.heads
    rows = case.rows()
    query_lens = [min(case.query_len, len(row)) for row in rows]
    slots = max(int(row.max()) for row in rows)
    pool = MHATokenToKVPool(slots, 1, kv_heads, dim, torch.bfloat16, "cuda")
    for values in (pool.k(0), pool.v(0)):
        values.normal_()
    q = torch.randn(sum(query_lens), heads, dim, device="cuda").bfloat16()
    batch = AttentionBatch(rows, query_lens)
    flat: Any = get_backend("tree", pool, mode="flat")
    flat.plan(batch)
    expected = flat.run(q, 0).float()
    found: dict[str, Any] = {
        "case": asdict(case), "flat_us": cleared_us(captured(lambda: flat.run(q, 0)), other, runs),
    }  # fmt: skip
    tiles, step, planner = TileKernels(pool, 1, 1), DeviceStep(pool), new_planner(rows, query_lens)
    step.load(batch, None)
    inputs = q, pool.k(0), pool.v(0), step.page_table
    shapes = [*ways(tiles.shape(heads), case.query_len)]
    surveys = planner.survey(shapes).tolist()
    times: dict[str, Any] = {}
    for shape, survey in zip(shapes, surveys, strict=True):
        key = json.dumps([*survey, shape.narrow_rows])
        if key in times:
            continue
        plan, on_device = planner.cut(shape), DevicePlan(pool.device)
        on_device.send(plan, shape, step.tokens)

        def run(plan: DevicePlan = on_device) -> torch.Tensor:
            return run_tree(tiles, plan, inputs, ScoreOptions())

        error = float((run().float() - expected).norm() / expected.norm())
        assert error < 0.01, (case, shape, error)
        us = cleared_us(captured(run), other, runs)
        times[key] = {"survey": survey, "shape": asdict(shape), "us": us}
    found["ways"] = [*times.values()]
    return found


def shown(row: dict[str, Any]) -> str:
    case, ways = row["case"], row["ways"]
    best = min(ways, key=lambda way: way["us"])
    cut = " ".join(f"{best['shape'][name]}" for name in CUT)
    return (
        f"{case['heads']} {case['requests']} x {case['levels']} q {case['query_len']} "
        f"{case['ragged'] or ''} flat {row['flat_us']} best of {len(ways)}: {best['us']} ({cut})"
    )


CUT = ("narrow_rows", "wide_rows", "shortest_wide", "shortest_narrow", "longest_narrow", "share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/bench/calibrate.json"))
    parser.add_argument("--random", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=400)
    arguments = parser.parse_args()
    require_card()
    begun, rows = time.monotonic(), []
    other = torch.zeros(CLEARED // 4, dtype=torch.int32, device="cuda")
    for case in [*fixed_cases(), *random_cases(arguments.random, arguments.seed)]:
        if time.monotonic() - begun > arguments.seconds:
            break
        torch.manual_seed(0)
        rows.append(measured(case, other, arguments.runs))
        print(shown(rows[-1]), flush=True)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({**card(), "rows": rows}))


if __name__ == "__main__":
    main()
