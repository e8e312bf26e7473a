"""Decode over latents (MLA) that requests share: the tree against the best that sgl-kernel has.

    python -m bench.gpu.latents              into bench/results/gpu/latents.json

DeepSeek-V3's latents (512 + 64) in bf16, 16 query heads (a shard of eight) and all 128. Each
contender is a CUDA graph of one layer, its cache cleared by reading; slots are scattered, at page
size 64 by pages. FA3 runs with its schedule made before and in the call, at both page sizes;
FlashMLA takes pages of 64 alone. Ours runs at both, and the better of the two is what counts.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu.cases import BANDWIDTH, COMPUTE
from bench.gpu.measure import captured, clean_us, require_card, save_figures
from bench.report import RESULTS, Claim, judge
from radixkv.attention import AttentionBatch, ScoreOptions, get_backend
from radixkv.memory.kv_pool import MLATokenToKVPool

REQUESTS, SHARED, OWN = 64, 8192, 256
RANK, ROPE = 512, 64
# Of a head as the model has it: 128 numbers without a rotary part, and 64 with.
OPTIONS = ScoreOptions(scale=192**-0.5)
# Heads, and what is claimed: times the speed of the best of sgl-kernel.
AT_LEAST = {16: 2.5, 128: 0.97}
FLASHMLA_PAGE = 64


class Batch:
    """Random latents under `heads`, the pages of all rows in no order."""

    def __init__(self, heads: int, page_size: int) -> None:
        torch.manual_seed(0)
        count = (SHARED + REQUESTS * OWN) // page_size
        pages = np.random.default_rng(0).permutation(count).astype(np.int32) + 1
        slots = (pages[:, None] * page_size + np.arange(page_size, dtype=np.int32)).reshape(-1)
        owns = np.split(slots[SHARED:], REQUESTS)
        self.rows = [np.concatenate([slots[:SHARED], own]) for own in owns]
        self.pool = MLATokenToKVPool(
            len(slots), 1, RANK, ROPE, torch.bfloat16, "cuda", page_size=page_size
        )
        self.pool.k(0).normal_()
        self.q = torch.randn(REQUESTS, heads, RANK + ROPE, device="cuda").bfloat16()
        self.asked = AttentionBatch(self.rows, [1] * REQUESTS)
        self.heads = heads

    def planned(self, name: str, **options: Any) -> Any:
        backend = get_backend(name, self.pool, **options)
        backend.plan(self.asked)
        return backend

    def limit_us(self) -> float:
        """Every byte once, or all operations, whichever takes longer."""
        read = (SHARED + REQUESTS * OWN) * self.pool.bytes_per_token / BANDWIDTH
        work = REQUESTS * (SHARED + OWN) * self.heads * (2 * RANK + ROPE) * 2 / COMPUTE
        return max(read, work)


Run = Callable[[], torch.Tensor]


def fa3(batch: Batch, *, is_scheduled: bool) -> Run:
    backend = batch.planned("fa3")
    kernel = backend.kernels
    if is_scheduled:
        key = batch.heads, (-1, -1), False
        kernel.metadata[*key, True] = kernel.scheduled(*key)
    return lambda: backend.run(batch.q, 0, OPTIONS)


def flashmla(batch: Batch) -> Run:
    from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata

    backend = batch.planned("triton")
    step, kv = backend.step, batch.pool.k(0).view(-1, FLASHMLA_PAGE, 1, RANK + ROPE)
    metadata, splits = get_mla_metadata(step.seq_lens, batch.heads, 1)
    q = batch.q[:, None]

    def run() -> torch.Tensor:
        output: torch.Tensor = flash_mla_with_kvcache(
            q, kv, step.page_table, step.seq_lens, RANK, metadata, splits,
            softmax_scale=OPTIONS.scale, causal=True,
        )[0]  # fmt: skip
        return output[:, 0]

    return run


def ours(batch: Batch) -> tuple[Run, Any]:
    """Where it is flat, with the schedule made before, as the others have it."""
    backend = batch.planned("tree", q_heads=batch.heads)
    backend.run(batch.q, 0, OPTIONS)
    schedules = getattr(backend.kernels.flat, "metadata", {})
    schedules |= {(*key[:-1], True): made for key, made in schedules.items()}
    return lambda: backend.run(batch.q, 0, OPTIONS), backend


def peers(one: Batch, paged: Batch) -> dict[str, Run]:
    return {
        "fa3": fa3(one, is_scheduled=True),
        "fa3, schedule in the call": fa3(one, is_scheduled=False),
        "fa3, page 64": fa3(paged, is_scheduled=True),
        "fa3, page 64, schedule in the call": fa3(paged, is_scheduled=False),
        "flashmla, page 64": flashmla(paged),
    }


def error(batch: Batch, run: Run) -> float:
    """Relative, against the float32 reference."""
    reference = batch.planned("reference")
    expected = reference.run(batch.q.float(), 0, OPTIONS)
    return float((run().float() - expected).norm() / expected.norm())


def measured(heads: int) -> dict[str, Any]:
    one, paged = Batch(heads, 1), Batch(heads, FLASHMLA_PAGE)
    runs, chosen = peers(one, paged), {}
    for name, batch in {"ours": one, "ours, page 64": paged}.items():
        runs[name], backend = ours(batch)
        chosen[name] = str(backend.explain())
    us = {name: clean_us(captured(run)) for name, run in runs.items()}
    best = min(time for name, time in us.items() if name not in chosen)
    return {
        "heads": heads,
        "limit_us": round(one.limit_us(), 1),
        "us": us,
        "errors": {
            name: round(error(paged if "64" in name else one, run), 5) for name, run in runs.items()
        },
        "times_best": {name: round(best / us[name], 3) for name in chosen},
        "chosen": chosen,
    }


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    return [
        Claim(
            f"MLA, {row['heads']} heads: times the best of sgl-kernel",
            max(row["times_best"].values()),
            "at least",
            AT_LEAST[row["heads"]],
        )
        for row in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu" / "latents.json")
    arguments = parser.parse_args()
    require_card()
    rows = [measured(heads) for heads in AT_LEAST]
    for row in rows:
        print(row)
    print(save_figures("latents", {"rows": rows}, arguments.out))
    judge(claims(rows))


if __name__ == "__main__":
    main()
