"""Storing K and V at scattered slots, against torch's indexing and against a plain copy.

python -m bench.gpu.writes
"""

from collections.abc import Callable
from typing import Any

import torch

from bench.gpu.measure import captured, in_turn, medians, require_card, save_figures, where_to
from bench.report import Claim, judge

HEADS, DIM, SLOTS = 8, 128, 2_000_000
TOKENS = (64, 1024, 8192, 65536)
# What is claimed from CLAIMED tokens on: at most so many times the copy's time, so many times
# faster than indexing at least.
CLAIMED, COPY_AT_MOST, INDEX_AT_LEAST = 8192, 1.25, 3.5


def contenders(pool: torch.Tensor, tokens: int) -> dict[str, Callable[[], None]]:
    from radixkv.kernels.gpu.store import write_kv  # needs Triton, which comes with a card

    slots = torch.randperm(SLOTS, device="cuda")[:tokens] + 1
    short = slots.int()
    new = torch.randn(2, tokens, HEADS, DIM, device="cuda").bfloat16()
    target = torch.empty_like(new)

    def index_put() -> None:
        pool[0][slots] = new[0]
        pool[1][slots] = new[1]

    return {
        "write_kv": captured(lambda: write_kv(pool[0], pool[1], short, new[0], new[1])),
        "index_put": captured(index_put),
        "copy": captured(lambda: target.copy_(new)),
    }


def measured(pool: torch.Tensor, tokens: int) -> dict[str, Any]:
    samples = in_turn(contenders(pool, tokens))
    us = medians(samples)
    return {
        "tokens": tokens,
        "us": us,
        "of_copy": round(us["write_kv"] / us["copy"], 3),
        "times_index_put": round(us["index_put"] / us["write_kv"], 2),
        "samples_us": samples,
    }


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    found = []
    for row in rows:
        if row["tokens"] >= CLAIMED:
            name, copy, indexing = (
                f"{row['tokens']:,} tokens",
                row["of_copy"],
                row["times_index_put"],
            )
            found += [
                Claim(f"{name}: of a copy", copy, "at most", COPY_AT_MOST),
                Claim(f"{name}: times index_put", indexing, "at least", INDEX_AT_LEAST),
            ]
    return found


def main() -> None:
    path = where_to("writes", __doc__)
    require_card()
    torch.manual_seed(0)
    pool = torch.zeros(2, SLOTS + 1, HEADS, DIM, dtype=torch.bfloat16, device="cuda")
    rows = [measured(pool, tokens) for tokens in TOKENS]
    for row in rows:
        print(row["tokens"], row["us"], f"{row['of_copy']} of a copy, {row['times_index_put']} x")
    print(save_figures("writes", {"heads": HEADS, "dim": DIM, "rows": rows}, path))
    judge(claims(rows))


if __name__ == "__main__":
    main()
