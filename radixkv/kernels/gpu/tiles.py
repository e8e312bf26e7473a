"""Launches `wide_tile.cu`, `narrow_tile.cu`, `merge.cu` and `latent_tile.cu`: rows over runs of
slots, on Hopper."""

from functools import cache

import torch
from torch import Tensor

from radixkv.kernels.gpu.attend import LOG2E, Work
from radixkv.kernels.gpu.cuda import Kernel
from radixkv.kernels.gpu.merging import MERGE_BLOCKS, WARPS

DIMS = (64, 128)
DTYPES = (torch.bfloat16, torch.float16)
# Of a latent and its rotary key.
LATENT_DIMS = (512, 64)


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
    blocks: int,
) -> None:
    """As `attend`, for items whose queries all see the whole run, without softcap or v_scale.

    q, k_pool, v_pool: one of DTYPES, the last dimension one of DIMS. rows: of an item at most, 64
    or 128. blocks: the grid, up to one for each multiprocessor. The next kernel may start beside
    this one.
    """
    # A warpgroup fetches. What computes less waits more for memory.
    stages = 4 if rows == 64 else 3
    kernel = _tile("wide_tile", *_shape(q, k_pool), page_size, rows, stages)
    kernel.launch(
        (blocks, 1), q, k_pool, v_pool, table, table.stride(0),
        work.items, work.count, work.q_indices, partial_o, partial_lse, scale * LOG2E,
        beside_last=False,
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
    taken: Tensor,
    rows: int,
    stages: int,
    beside_last: bool,
) -> None:
    """As `attend_wide`, for few rows, 8, 16, 32 or 64, whose queries need not see all of a run.

    stages: of 16 slots, in shared memory. taken: (1,) int32, 0 before, how many units blocks took
    beyond their first. beside_last: starts while the kernel launched before runs, once all of that
    runs, and ends after it. The grid is what the card has room for. The next kernel may start
    beside this one.
    """
    kernel = _tile("narrow_tile", *_shape(q, k_pool), page_size, rows, stages)
    blocks = _multiprocessors(q.device.index) * (SHARED_BYTES // (kernel.shared_bytes + 1024))
    kernel.launch(
        (blocks, 1), q, k_pool, v_pool, table, table.stride(0), work.items, work.count, taken,
        work.q_indices, partial_o, partial_lse, scale * LOG2E, beside_last=beside_last,
    )  # fmt: skip


def attend_latents(
    q: Tensor,
    k_pool: Tensor,
    table: Tensor,
    work: Work,
    partial_o: Tensor,
    partial_lse: Tensor,
    *,
    scale: float,
    page_size: int,
    split: int,
) -> None:
    """As `attend` over latents, for items of up to 64 rows, without softcap or v_scale.

    q, k_pool, partial_o: one of DTYPES, of LATENT_DIMS. split: see `attend`. The grid is what the
    card has room for.
    """
    kernel = _latent_tile(q.device.index, q.shape[1], q.dtype == torch.float16, page_size, split)
    kernel.launch(
        (_multiprocessors(q.device.index), 1), q, k_pool, table, table.stride(0), work.items,
        work.count, work.q_indices, partial_o, partial_lse, scale * LOG2E, beside_last=False,
    )  # fmt: skip


def merge_beside(
    partial_o: Tensor,
    partial_lse: Tensor,
    merge_indptr: Tensor,
    out: Tensor,
    sinks: Tensor | None,
    *,
    split: Tensor,
    taken: Tensor,
) -> None:
    """As `merge_states`; starts before the kernel that writes the partial results has ended, and
    waits for it. out: one of DTYPES, the last dimension one of DIMS. split: (1,) int32, see
    `split_of`. taken: see `attend_narrow`; it is 0 again afterwards."""
    tokens, heads, dim = out.shape
    sinks = None if sinks is None else sinks.float().contiguous()
    kernel = _merge(out.device.index, heads, dim, out.dtype == torch.float16)
    rows = tokens * heads
    blocks = min(MERGE_BLOCKS * _multiprocessors(out.device.index), rows)
    kernel.launch(
        (blocks, 1), partial_o, partial_lse, merge_indptr, sinks, out, rows, split, taken,
        beside_last=True,
    )  # fmt: skip


# Of a multiprocessor, for all its blocks; one takes 1,024 more than it asks for.
SHARED_BYTES = 228 * 1024


@cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


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
    if name == "wide_tile":
        return Kernel(name, defined, device, 128 + 2 * rows, 2 * stages * (64 * dim * 2 + 16))
    return Kernel(name, defined, device, max(32, 2 * rows), 2 * stages * 16 * dim * 2)


@cache
def _latent_tile(device: int, heads: int, is_half: bool, page_size: int, split: int) -> Kernel:
    rank, rope = LATENT_DIMS
    defined = {"H": heads, "HK": 1, "RANK": rank, "D": rope, "SPLIT": split, "PAGE": page_size}
    defined |= {"HALF": 1} if is_half else {}
    # Queries, two tiles, weights, maxima, barriers.
    shared_bytes = 3 * 64 * (rank + rope) * 2 + 64 * 128 + 2 * 64 * 4 + 48
    return Kernel("latent_tile", defined, device, 384, shared_bytes)


@cache
def _merge(device: int, heads: int, dim: int, is_half: bool) -> Kernel:
    # The header asks for KV heads, which do not matter here.
    defined = {"H": heads, "HK": 1, "D": dim, "WARPS": WARPS} | ({"HALF": 1} if is_half else {})
    return Kernel("merge", defined, device, 32 * WARPS, 0)
