"""What page size 1 costs: the same tokens in pages of 1 to 256, decode and extend, through fa3.

    python -m bench.gpu.pages

Pages are scattered over the pool; "runs" is page size 1 with slots that lie together in runs of
128, as an allocator hands them out to a long prompt.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu.measure import captured, in_turn, medians, require_card, save_figures, where_to
from radixkv.attention import AttentionBatch, get_backend
from radixkv.memory.kv_pool import MHATokenToKVPool

HEADS, KV_HEADS, DIM = 32, 8, 128
PAGE_SIZES = (1, 16, 64, 128, 256)
RUN = 128
# Requests, tokens before, new tokens.
WORK = {
    "decode 64 x 4,096": (64, 4095, 1),
    "decode 8 x 32,768": (8, 32767, 1),
    "extend 8,192": (1, 0, 8192),
    "extend 8,192 + 2,048": (1, 8192, 2048),
    "extend 32,768 + 512": (1, 32768, 512),
}


def rows_of(requests: int, tokens: int, page: int) -> list[NDArray[np.int32]]:
    """Whole pages at random, none of them the first, which is padding."""
    per_row = -(-tokens // page)
    pages = np.random.default_rng(0).permutation(requests * per_row).reshape(requests, per_row) + 1
    slots = pages[:, :, None] * page + np.arange(page)
    return [*slots.reshape(requests, -1)[:, :tokens].astype(np.int32)]


def run_of(name: str, page_size: int, scattered: int) -> Any:
    """A captured run: rows in pages of `scattered`, seen by the pool as pages of `page_size`."""
    requests, before, new = WORK[name]
    rows = rows_of(requests, before + new, scattered)
    slots = -(-max(int(row.max()) for row in rows) // 256) * 256 + 256
    pool = MHATokenToKVPool(slots, 1, KV_HEADS, DIM, torch.bfloat16, "cuda", page_size=page_size)
    pool.k(0).normal_()
    pool.v(0).normal_()
    backend = get_backend("fa3", pool)
    backend.plan(AttentionBatch(rows, [new] * requests))
    q = torch.randn(requests * new, HEADS, DIM, device="cuda").bfloat16()
    backend.run(q, 0)
    return captured(lambda: backend.run(q, 0))


def measured(name: str) -> dict[str, Any]:
    runs = {f"page {size}": run_of(name, size, size) for size in PAGE_SIZES}
    runs["page 1, runs"] = run_of(name, 1, RUN)
    samples = in_turn(runs, rounds=3)
    us = medians(samples)
    price = us["page 1"] / min(us[f"page {size}"] for size in PAGE_SIZES)
    return {"work": name, "us": us, "price_of_page_1": round(price, 3), "samples_us": samples}


def main() -> None:
    path = where_to("pages", __doc__)
    require_card()
    torch.manual_seed(0)
    rows = []
    for name in WORK:
        rows.append(measured(name))
        print(name, rows[-1]["us"], f"page size 1 takes {rows[-1]['price_of_page_1']} of the best")
    print(save_figures("pages", {"heads": [HEADS, KV_HEADS], "dim": DIM, "rows": rows}, path))


if __name__ == "__main__":
    main()
