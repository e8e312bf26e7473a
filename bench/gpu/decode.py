"""Decode over shared prefixes: the tree against the flat kernel that engines run, and FlashInfer's
cascade where it is installed.

    python -m bench.gpu.decode                        into bench/results/gpu/decode.json
    python -m bench.gpu.decode --without-flashinfer   it compiles for two minutes when first used

bf16, head size 128, page size 1, slots scattered. Each contender is a CUDA graph of one layer; all
run in turn, caches cleared. Flat is the faster of fa3 with and without its schedule made before.
`clean_us`: with a cache that was cleared by reading, see `bench.gpu.measure`.
"""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.gpu.batches import AT_LEAST, FLASHINFER_AT_LEAST, SHARED, UNSHARED, Batch, skewed
from bench.gpu.measure import (
    captured,
    clean_us,
    copy_bandwidth,
    in_turn,
    medians,
    require_card,
    save_figures,
)
from bench.report import Claim, judge, kept_at
from radixkv.attention import get_backend


def contenders(batch: Batch, flashinfer: bool) -> tuple[dict[str, Callable[[], None]], Any]:
    """What runs, and the backend of the tree."""
    tree: Any = get_backend("tree", batch.pool, q_heads=batch.shape.heads)
    tree.plan(batch.asked)
    schedule_once(tree.kernels.flat, batch)
    flat: Any = get_backend("tree", batch.pool, mode="flat")
    flat.plan(batch.asked)
    schedule = schedule_once(flat.kernels.flat, batch)
    runs = {
        "tree": captured(lambda: tree.run(batch.q, 0)),
        "flat": captured(lambda: called(flat, batch, schedule)),
        "flat, schedule in the call": captured(lambda: called(flat, batch, None)),
    }
    if flashinfer:
        from bench.gpu.flashinfer import cascade

        runs["flashinfer"] = captured(cascade(batch))
    return runs, tree


def schedule_once(kernel: Any, batch: Batch) -> Any:
    """fa3's schedule, which the first layer of a step makes, there for the layer that is timed."""
    heads, reach = batch.shape.heads, (-1, -1)
    schedule = kernel.scheduled(heads, reach, False)
    kernel.metadata[heads, reach, False, True] = schedule
    return schedule


def called(flat: Any, batch: Batch, schedule: torch.Tensor | None) -> torch.Tensor:
    """The flat kernel alone; without `schedule` it makes one itself, in each layer."""
    step, kernel = flat.step, flat.kernels.flat
    output: torch.Tensor = kernel.attend(
        batch.q, kernel.paged(batch.pool.k(0)), kernel.paged(batch.pool.v(0)),
        page_table=step.page_table, cache_seqlens=step.seq_lens, cu_seqlens_q=step.cu_seqlens_q,
        max_seqlen_q=1, causal=True, scheduler_metadata=schedule,
    )  # fmt: skip
    return output


def error(batch: Batch, tree: Any) -> float:
    """Relative, against the float32 reference."""
    reference = get_backend("reference", batch.pool)
    reference.plan(batch.asked)
    expected = reference.run(batch.q.float(), 0)
    return float((tree.run(batch.q, 0).float() - expected).norm() / expected.norm())


def measured(batch: Batch, bandwidth: float, flashinfer: bool) -> dict[str, Any]:
    runs, tree = contenders(batch, flashinfer)
    samples = in_turn(runs)
    us = medians(samples)
    flat = min(us["flat"], us["flat, schedule in the call"])
    found = {
        "batch": batch.shape.name,
        "us": us,
        "clean_us": {name: clean_us(runs[name]) for name in ("tree", "flat")},
        "limit_us": round(batch.limit_us(bandwidth), 1),
        "times_flat": round(flat / us["tree"], 2),
        "error": round(error(batch, tree), 5),
        "chosen": str(tree.explain()),
        "samples_us": samples,
    }
    if flashinfer:
        found["times_flashinfer"] = round(us["flashinfer"] / us["tree"], 2)
    return found


def shown(row: dict[str, Any]) -> str:
    us = row["us"]
    other = ""
    if "flashinfer" in us:
        other = f"  flashinfer {us['flashinfer']:6.1f} ({row['times_flashinfer']:.2f} x)"
    flat = min(us["flat"], us["flat, schedule in the call"])
    return (
        f"{row['batch']:52} limit {row['limit_us']:6.1f}  flat {flat:6.1f}  tree {us['tree']:6.1f} "
        f"({row['times_flat']:.2f} x, clean {row['clean_us']['tree']}){other}  "
        f"error {row['error']:.4f}  {row['chosen']}"
    )


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """Against flat for each batch, against FlashInfer where it ran.

    Judged as saved and shown, in hundredths: 0.986 counts as 0.99.
    """
    found = []
    for row in rows:
        name, reached = row["batch"], row["times_flat"]
        found.append(Claim(f"{name}: times flat", reached, "at least", AT_LEAST[name]))
        if "times_flashinfer" in row:
            reached, bound = row["times_flashinfer"], FLASHINFER_AT_LEAST[name]
            found.append(Claim(f"{name}: times FlashInfer", reached, "at least", bound))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-flashinfer", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if importlib.util.find_spec("flashinfer") is None:
        arguments.without_flashinfer = True
    flashinfer = not arguments.without_flashinfer
    require_card()
    torch.manual_seed(0)
    bandwidth = copy_bandwidth()
    rows = []
    for shape in [*SHARED, *UNSHARED]:
        rows.append(measured(Batch(shape), bandwidth, flashinfer and shape in SHARED))
        print(shown(rows[-1]), flush=True)
    rows.append(measured(skewed(), bandwidth, False))
    print(shown(rows[-1]), flush=True)
    figures = {"copy_bytes_per_us": round(bandwidth), "seed": 0, "rows": rows}
    out = kept_at("gpu/decode", parser, arguments, "without_flashinfer")
    print(save_figures("decode", figures, out))
    empty = in_turn({"empty": captured(lambda: torch.empty(1, device="cuda").zero_())})
    print(f"a graph of one empty kernel: {median(empty['empty']):.1f} us")
    if not flashinfer:
        print("FlashInfer did not run: what is claimed against it is not judged")
    judge(claims(rows))


if __name__ == "__main__":
    main()
