"""Many shapes: what `auto` takes on each, against flat and the limit of the card.

    python -m bench.gpu.shapes --random 120 --seed 1    into bench/results/gpu/shapes.json

Each is a CUDA graph of one layer, its cache cleared by reading; an empty graph is measured, too.
The flat kernel's schedule is made before, as it is for all layers of a step but the first.
"""

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from bench.gpu.cases import Case, OnCard, fixed_cases, random_cases
from bench.gpu.measure import captured, clean_samples, clean_us, require_card, save_figures
from bench.report import RESULTS
from radixkv.attention import get_backend


def measured(case: Case, runs: int) -> dict[str, Any]:
    found = OnCard(case)
    q = found.q
    samples = {"flat": clean_samples(captured(lambda: found.flat.run(q, 0)), runs=runs)}
    chosen = ""
    for mode in ("auto", "tree"):
        backend: Any = get_backend("tree", found.pool, mode=mode, q_heads=found.heads)
        backend.plan(found.batch)
        samples[mode] = samples["flat"]
        if backend.explain().choice == "tree":
            samples[mode] = clean_samples(captured(partial(backend.run, q, 0)), runs=runs)
        chosen = chosen or str(backend.explain())
    expected, result = found.flat.run(q, 0).float(), backend.run(q, 0).float()
    return {
        "case": asdict(case),
        "limit_us": round(found.limit_us, 1),
        **{f"{name}_us": round(median(times), 1) for name, times in samples.items()},
        "apart": round(float((result - expected).norm() / expected.norm()), 5),
        "chosen": chosen,
        "samples_us": samples,
    }


def summary(rows: list[dict[str, Any]], empty_us: float) -> dict[str, float]:
    """Over the random shapes."""
    auto, flat, tree, limit = (
        np.array([row[f"{name}_us"] for row in rows]) for name in ("auto", "flat", "tree", "limit")
    )

    def mean(ratios: Any) -> float:
        return round(float(np.exp(np.log(ratios).mean())), 4)

    return {
        "shapes": len(rows),
        "of_limit": mean(auto / (limit + empty_us)),
        "of_limit_worst": round(float((auto / (limit + empty_us)).max()), 2),
        "lost_by_auto": mean(auto / np.minimum(flat, tree)),
        "lost_by_auto_worst": round(float((auto / np.minimum(flat, tree)).max()), 3),
        "of_flat": mean(auto / flat),
        "slower_than_flat_worst": round(float((auto / flat).max()), 3),
    }


def shown(row: dict[str, Any]) -> str:
    case = row["case"]
    ragged = f"ragged {case['ragged']}" if case["ragged"] else case["levels"]
    return (
        f"{case['heads']} {case['requests']} x {ragged} q {case['query_len']}: limit "
        f"{row['limit_us']} flat {row['flat_us']} tree {row['tree_us']} auto {row['auto_us']} "
        f"apart {row['apart']}  {row['chosen'].split(':')[0]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu" / "shapes.json")
    arguments = parser.parse_args()
    require_card()
    empty_us = clean_us(captured(lambda: torch.empty(1, device="cuda").zero_()))
    fixed = [measured(case, arguments.runs) for case in fixed_cases()]
    drawn = [
        measured(case, arguments.runs) for case in random_cases(arguments.random, arguments.seed)
    ]
    for row in [*fixed, *drawn]:
        print(shown(row))
    over_all = summary(drawn, empty_us)
    figures = {
        "empty_us": empty_us, "random": over_all, "rows": fixed, "random_rows": drawn,
    }  # fmt: skip
    print(over_all)
    print(save_figures("shapes", figures, arguments.out))


if __name__ == "__main__":
    main()
