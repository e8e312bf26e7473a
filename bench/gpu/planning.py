"""Planning a decode step on the host: from scratch, and on from the step before.

    python -m bench.gpu.planning

With a card also what a backend's whole `plan` takes the host: the same, and rows and plan sent to
the device; and until the device is done with that.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from bench.gpu.batches import SHARED, UNSHARED, Batch, Shape, scattered
from bench.gpu.measure import save_figures, where_to
from bench.report import Claim, judge, save
from radixkv.arrays import Int32Array
from radixkv.attention import AttentionBatch, get_backend
from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.cost import Model, costs
from radixkv.attention.shared_prefix.cuts import candidates
from radixkv.attention.shared_prefix.plan import Shape as Heads
from radixkv.attention.shared_prefix.plan import TreePlan

# Fewer steps than a plan advances before it is made again.
ROUNDS, STEPS = 200, 50
SHAPES = [*SHARED, *UNSHARED]
# What is claimed for so many requests, in microseconds.
CLAIMED, SCRATCH_AT_MOST, NEXT_AT_MOST = 64, 250, 30


def timed(run: Callable[[], Any]) -> list[float]:
    samples = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        run()
        samples.append(round((time.perf_counter() - begun) * 1e6, 2))
    return samples


def planned(rows: list[Int32Array], heads: Heads) -> TreePlan:
    """As a backend plans: the cheapest of a few cuts."""
    shapes, planner = candidates(heads, 1), new_planner(rows, [1] * len(rows))
    model = Model(heads.group * heads.kv_heads, heads.kv_heads, 128, 2)
    return planner.cut(shapes[int(costs(planner.survey(shapes), 1, model).tree_us.argmin())])


def measured(shape: Shape) -> dict[str, Any]:
    rows = scattered(shape)
    heads = Heads(shape.heads // shape.kv_heads, shape.kv_heads)
    plan = planned(rows, heads)

    def advance() -> None:
        plan.advances = 0  # or it would ask for a new plan now and then
        assert plan.advance()

    samples = {"scratch": timed(lambda: planned(rows, heads)), "next": timed(advance)}
    if torch.cuda.is_available():
        samples |= on_device(shape)
    us = {name: round(median(times), 1) for name, times in samples.items()}
    return {"batch": shape.name, "us": us, "samples_us": samples}


def on_device(shape: Shape) -> dict[str, list[float]]:
    """Samples of whole plans; in the next step every row is a slot longer."""
    batch = Batch(shape)
    full, n = batch.rows, len(batch.rows)
    backend: Any = get_backend("tree", batch.pool, q_heads=shape.heads, mode="tree")
    backend.reserve(n, max(map(len, full)))
    samples: dict[str, list[float]] = {}
    for name, versions in (("sent", None), ("sent next", [*range(n)])):
        host, whole = [], []
        for step in range(STEPS):
            rows = [row[: len(row) - STEPS + step] for row in full]
            begun = time.perf_counter()
            backend.plan(AttentionBatch(rows, [1] * n, versions))
            host.append(round((time.perf_counter() - begun) * 1e6, 2))
            torch.cuda.synchronize()
            whole.append(round((time.perf_counter() - begun) * 1e6, 2))
        samples |= {f"{name}, host": host, f"{name}, until done": whole}
    return samples | {"one joins, one leaves, host": joined(backend, batch)}


def joined(backend: Any, batch: Batch) -> list[float]:
    """Samples of plans of steps in which all grow by a slot, one leaves and one comes."""
    full, n = batch.rows, len(batch.rows)
    live, host = [*range(n)], []
    for step in range(STEPS):
        live.append(live.pop(step % n) + n)
        rows = [full[name % n][: len(full[name % n]) - STEPS + step] for name in live]
        begun = time.perf_counter()
        backend.plan(AttentionBatch(rows, [1] * n, live))
        host.append(round((time.perf_counter() - begun) * 1e6, 2))
        torch.cuda.synchronize()
    return host


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """For rows of SHAPES."""
    found = []
    for shape, row in zip(SHAPES, rows, strict=True):
        if shape.requests == CLAIMED:
            name, us = row["batch"], row["us"]
            found += [
                Claim(f"{name}: us from scratch", us["scratch"], "at most", SCRATCH_AT_MOST),
                Claim(f"{name}: us for the next step", us["next"], "at most", NEXT_AT_MOST),
            ]
    return found


def main() -> None:
    path = where_to("planning", __doc__)
    rows = [measured(shape) for shape in SHAPES]
    for row in rows:
        print(f"{row['batch']:52} {row['us']}")
    kept = save_figures if torch.cuda.is_available() else save
    print(kept("planning", {"rows": rows}, path))
    judge(claims(rows))


if __name__ == "__main__":
    main()
