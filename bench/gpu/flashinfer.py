"""FlashInfer's cascade wrapper on the same batches: its own code, from its package."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bench.gpu.batches import DIM, Batch

WORKSPACE = 512 << 20


def cascade(batch: Batch) -> Callable[[], Any]:
    """A planned run over the batch: a level of the cascade for each level of its shape."""
    from flashinfer.cascade import MultiLevelCascadeAttentionWrapper

    shape, levels = batch.shape, levels_of(batch)
    device = [
        [torch.tensor(x, dtype=torch.int32, device="cuda") for x in level] for level in levels
    ]
    queries, starts, slots, last = (list(arrays) for arrays in zip(*device, strict=True))
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
    wrapper = MultiLevelCascadeAttentionWrapper(len(levels), workspace, "NHD")
    wrapper.plan(
        queries, starts, slots, last, shape.heads, shape.kv_heads, DIM, 1,
        q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
    )  # fmt: skip
    pools = batch.pool.k(0).unsqueeze(1), batch.pool.v(0).unsqueeze(1)
    return lambda: wrapper.run(batch.q, pools)


def levels_of(batch: Batch) -> list[tuple[NDArray[Any], ...]]:
    """Per level: where the queries of each group begin, where its slots begin, the slots, and how
    full its last page is."""
    shape = batch.shape
    found: list[tuple[NDArray[Any], ...]] = []
    ends = np.cumsum([0, *(tokens for _, tokens in shape.levels)])
    for (size, tokens), (start, end) in zip(shape.levels, pairwise(ends), strict=True):
        firsts = batch.rows[::size]
        slots = np.concatenate([row[start:end] for row in firsts])
        groups = np.arange(len(firsts) + 1)
        found.append((groups * size, groups * tokens, slots, np.ones(len(firsts))))
    return found
