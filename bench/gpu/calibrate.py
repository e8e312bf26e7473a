"""What the ways to cut a step take on this card, and the figures of `shared_prefix.cost.Card`.

    python -m bench.gpu.calibrate            measures, fits, prints the figures
    python -m bench.gpu.calibrate --from F   fits to what was measured before

Each shape is cut in every way of a grid; a way is a CUDA graph of one layer, its cache cleared by
reading. Kept: what `Planner.survey` says of each way, and its time.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.gpu.cases import Case, OnCard, fixed_cases, random_cases
from bench.gpu.measure import captured, card, clean_us, require_card
from radixkv.attention import ScoreOptions
from radixkv.attention.device import DeviceStep
from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.cost import H200, Card, Model, costs
from radixkv.attention.shared_prefix.device_plan import DevicePlan
from radixkv.attention.shared_prefix.kernels import TileKernels
from radixkv.attention.shared_prefix.plan import Shape

# Shortest and longest narrow pieces; shortest wide ones; slots that a share must save.
NARROW = [(256, 1024), (128, 512), (64, 256), (256, 512), (32, 128)]
WIDE, SHARES, ROWS = (256, 512, 1024), (64, 256), (64, 128)


def ways(base: Shape, query_len: int) -> Iterator[Shape]:
    rows = {base.narrow_rows, min(64, max(16, 1 << (query_len * base.group - 1).bit_length()))}
    for narrow_rows, wide_rows, share, wide, (shortest, longest) in product(
        sorted(rows), ROWS, SHARES, WIDE, NARROW
    ):
        yield replace(
            base, narrow_rows=narrow_rows, wide_rows=wide_rows, share=share, shortest_wide=wide,
            shortest_narrow=shortest, longest_narrow=longest,
        )  # fmt: skip


def measured(case: Case, runs: int) -> dict[str, Any]:
    found = OnCard(case)
    q, pool = found.q, found.pool
    expected = found.flat.run(q, 0).float()
    flat_us = clean_us(captured(lambda: found.flat.run(q, 0)), runs=runs)
    tiles, step = TileKernels(pool, 1, 1), DeviceStep(pool)
    planner = new_planner(found.rows, found.query_lens)
    step.load(found.batch, None)
    inputs = q, pool.k(0), pool.v(0), step.page_table
    shapes = [*ways(tiles.shape(found.heads), case.query_len)]
    times: dict[str, Any] = {}
    for shape, survey in zip(shapes, planner.survey(shapes).tolist(), strict=True):
        key = json.dumps([*survey, shape.narrow_rows])
        if key in times:
            continue
        plan, on_device = planner.cut(shape), DevicePlan(pool)
        on_device.send(plan, shape, step.tokens)

        def run(plan: DevicePlan = on_device) -> torch.Tensor:
            return tiles.run(inputs, plan, ScoreOptions())

        error = float((run().float() - expected).norm() / expected.norm())
        assert error < 0.01, (case, shape, error)
        times[key] = {
            "survey": survey, "shape": asdict(shape), "us": clean_us(captured(run), runs=runs),
        }  # fmt: skip
    return {"case": asdict(case), "flat_us": flat_us, "ways": [*times.values()]}


def shown(row: dict[str, Any]) -> str:
    case, ways = row["case"], row["ways"]
    best = min(ways, key=lambda way: way["us"])
    cut = " ".join(f"{best['shape'][name]}" for name in CUT)
    return (
        f"{case['heads']} {case['requests']} x {case['levels']} q {case['query_len']} "
        f"{case['ragged'] or ''} flat {row['flat_us']} best of {len(ways)}: {best['us']} ({cut})"
    )


CUT = ("narrow_rows", "wide_rows", "shortest_wide", "shortest_narrow", "longest_narrow", "share")


def fitted(rows: list[dict[str, Any]], seconds: float = 60) -> tuple[Card, dict[str, float]]:
    """The figures that best choose among the ways of each row and predict their times, found by
    steps at random from those that are shipped."""
    rng, card, begun = np.random.default_rng(0), H200, time.monotonic()
    names = [name for name in asdict(card) if name != "multiprocessors"]
    best = sum(judged(rows, card).values())
    while time.monotonic() - begun < seconds:
        chosen = rng.choice(names, int(rng.integers(1, 3)), replace=False)
        steps = {name: getattr(card, name) * float(np.exp(0.1 * rng.normal())) for name in chosen}
        now = sum(judged(rows, replace(card, **steps)).values())
        if now < best:
            best, card = now, replace(card, **steps)
    return card, judged(rows, card)


def judged(rows: list[dict[str, Any]], card: Card) -> dict[str, float]:
    """Means over `rows` of logarithms: of what is lost by the way that is chosen, of what is lost
    by it or flat, whichever is estimated faster, and of the errors of both estimates, squared."""
    lost, lost_to_flat, errors, flat_errors = [], [], [], []
    for row in rows:
        heads, kv_heads, dim = row["case"]["heads"]
        us = np.array([way["us"] for way in row["ways"]])
        survey = np.array([way["survey"] for way in row["ways"]])
        query_len, model = row["case"]["query_len"], Model(heads, kv_heads, dim, 2)
        estimate = costs(survey, query_len, model, card)
        best = estimate.tree_us.argmin()
        taken = us[best] if estimate.tree_us[best] < estimate.flat_us else row["flat_us"]
        near = (us / us.min()) ** -4.0
        lost.append(np.log(us[best] / us.min()))
        lost_to_flat.append(np.log(taken / min(us.min(), row["flat_us"])))
        errors.append((near * np.log(estimate.tree_us / us) ** 2).sum() / near.sum())
        flat_errors.append(np.log(estimate.flat_us / row["flat_us"]) ** 2)
    means = lost, lost_to_flat, errors, flat_errors
    names = "lost", "lost_to_flat", "error", "flat_error"
    return {name: float(np.mean(each)) for name, each in zip(names, means, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/bench/calibrate.json"))
    parser.add_argument("--random", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=60, help="of the fit")
    arguments = parser.parse_args()
    if arguments.source:
        rows = json.loads(arguments.source.read_text())["rows"]
    else:
        require_card()
        rows = []
        for case in [*fixed_cases(), *random_cases(arguments.random, arguments.seed)]:
            rows.append(measured(case, arguments.runs))
            print(shown(rows[-1]), flush=True)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps({**card(), "rows": rows}))
    found, means = fitted(rows, arguments.seconds)
    print("the shipped figures:", judged(rows, H200))
    print("fitted:", means)
    for name, value in asdict(found).items():
        print(f"    {name}: {value:.4g}")


if __name__ == "__main__":
    main()
