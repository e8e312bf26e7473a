"""Launches `wide_tile.cu`, `narrow_tile.cu` and `merge.cu`: rows over runs of slots, on Hopper."""

from functools import cache

import torch
from torch import Tensor

from radixkv.kernels.gpu.attend import LOG2E, Work
from radixkv.kernels.gpu.cuda import Kernel

DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
# Warps of a block of `merge.cu`, and parts that one of them has on their way.
WARPS, AT_ONCE = 8, 4


def attend_wide(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    partial_o: Tensor,
    partial_lse: Tensor,
    *,
    scale: float,
    page_size: int,
    rows: int,
) -> None:
    """As `attend`, for items whose queries all see the whole run, without softcap or v_scale.

    q, k_pool, v_pool: one of DTYPES, the last dimension one of DIMS. rows: of an item, 64 or 128.
    The next kernel may start beside this one.
    """
    # A warpgroup fetches. What computes less waits more for memory.
    stages = 4 if rows == 64 else 3
    kernel = _tile("wide_tile", *_shape(q, k_pool), page_size, rows, stages)
    kernel.launch(
        (k_pool.shape[1], work.grid), q, k_pool, v_pool, table, table.stride(0), work.items,
        work.count, work.q_indices, partial_o, partial_lse, scale * LOG2E, beside_last=False,
    )  # fmt: skip


def attend_narrow(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    partial_o: Tensor,
    partial_lse: Tensor,
    *,
    scale: float,
    page_size: int,
    rows: int,
    stages: int,
    beside_last: bool,
) -> None:
    """As `attend_wide`, for few rows, 8, 16, 32 or 64, whose queries need not see all of a run.

    stages: of 16 slots, in shared memory. beside_last: starts while the kernel launched before
    runs, once all of that runs, and ends after it. The next kernel may start beside this one.
    """
    kernel = _tile("narrow_tile", *_shape(q, k_pool), page_size, rows, stages)
    kernel.launch(
        (k_pool.shape[1], work.grid), q, k_pool, v_pool, table, table.stride(0), work.items,
        work.count, work.q_indices, partial_o, partial_lse, scale * LOG2E,
        beside_last=beside_last,
    )  # fmt: skip


def merge_beside(
    partial_o: Tensor,
    partial_lse: Tensor,
    merge_indptr: Tensor,
    out: Tensor,
    sinks: Tensor | None,
    *,
    most_parts: int,
) -> None:
    """As `merge_states`; starts before the kernel that writes the partial results has ended, and
    waits for it. out: one of DTYPES, the last dimension one of DIMS. most_parts: about as many as a
    token has at most, which shapes how they are merged."""
    tokens, heads, dim = out.shape
    sinks = None if sinks is None else sinks.float().contiguous()
    split = min(WARPS, 1 << max(0, (most_parts - 1) // AT_ONCE).bit_length())
    kernel = _merge(out.device.index, heads, dim, out.dtype == torch.float16, split)
    kernel.launch(
        (-(-tokens * heads * split // WARPS), 1), partial_o, partial_lse, merge_indptr, sinks, out,
        tokens * heads, beside_last=True,
    )  # fmt: skip


# Device, heads, KV heads, head size, whether fp16.
_Shape = tuple[int, int, int, int, bool]


def _shape(q: Tensor, k_pool: Tensor) -> _Shape:
    return q.device.index, q.shape[1], k_pool.shape[1], q.shape[2], q.dtype == torch.float16


@cache
def _tile(
    name: str,
    device: int,
    heads: int,
    kv_heads: int,
    dim: int,
    is_half: bool,
    page_size: int,
    rows: int,
    stages: int,
) -> Kernel:
    defined = {"H": heads, "HK": kv_heads, "D": dim, "PAGE": page_size, "ROWS": rows}
    defined |= {"STAGES": stages} | ({"HALF": 1} if is_half else {})
    slots, threads, barriers = (16, max(32, 2 * rows), 0)
    if name == "wide_tile":
        slots, threads, barriers = 64, 128 + 2 * rows, 32 * stages
    return Kernel(name, defined, device, threads, 2 * stages * slots * dim * 2 + barriers)


@cache
def _merge(device: int, heads: int, dim: int, is_half: bool, split: int) -> Kernel:
    # The header asks for KV heads, which do not matter here.
    defined = {"H": heads, "HK": 1, "D": dim, "WARPS": WARPS, "SPLIT": split}
    defined |= {"HALF": 1} if is_half else {}
    return Kernel("merge", defined, device, 32 * WARPS, 0)
