"""Planning a decode step on the host: from scratch, and on from the step before. Needs no card.

python -m bench.gpu.planning
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.gpu.batches import SHARED, UNSHARED, Shape, scattered
from bench.report import RESULTS, save
from radixkv.attention.tree.planner import Shape as Heads
from radixkv.attention.tree.planner import plan_rows

ROUNDS = 200
# What the claim is, for 64 requests, in microseconds.
SCRATCH_AT_MOST, NEXT_AT_MOST = 150, 30


def timed(run: Callable[[], Any]) -> list[float]:
    samples = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        run()
        samples.append(round((time.perf_counter() - begun) * 1e6, 2))
    return samples


def measured(shape: Shape) -> dict[str, Any]:
    rows = scattered(shape)
    heads = Heads(shape.heads // shape.kv_heads, shape.kv_heads)
    plan = plan_rows(rows, heads)

    def advance() -> None:
        plan.advances = 0  # or it would ask for a new plan now and then
        assert plan.advance()

    samples = {"scratch": timed(lambda: plan_rows(rows, heads)), "next": timed(advance)}
    us = {name: round(median(times), 1) for name, times in samples.items()}
    return {"batch": shape.name, "us": us, "samples_us": samples}


def main() -> None:
    rows = [measured(shape) for shape in [*SHARED, *UNSHARED]]
    for row in rows:
        print(f"{row['batch']:52} {row['us']}")
    path = RESULTS / "gpu" / "planning.json"
    print(save("planning", {"rows": rows}, path))


if __name__ == "__main__":
    main()
