"""Launches `wide_tile.cu`, `narrow_tile.cu`, `merge.cu` and `latent_tile.cu`: rows over runs of
slots, on Hopper."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from radixkv.kernels.gpu.attend import LOG2E, Work
from radixkv.kernels.gpu.cuda import Kernel
from radixkv.kernels.gpu.merging import MERGE_BLOCKS, WARPS

DIMS = (64, 128, 192, 256)
DTYPES = (torch.bfloat16, torch.float16)
# Of the pool; queries are of DTYPES.
FP8, FP8_DIMS = torch.float8_e4m3fn, (128,)
# Of a latent and its rotary key.
LATENT_DIMS = (512, 64)


def serves(dim: int, dtype: torch.dtype) -> bool:
    """Whether there are kernels for a pool of heads of `dim` and `dtype`."""
    return dim in (FP8_DIMS if dtype == FP8 else DIMS) and dtype in (*DTYPES, FP8)


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
    v_scale: float,
    page_size: int,
    rows: int,
    blocks: int,
) -> None:
    """As `attend`, for items whose queries all see the whole run, without softcap.

    q, k_pool, v_pool: as `serves` says, q one of DTYPES. rows: query rows of an item at most, 64
    or, up to 128 dimensions, 128. blocks: the grid, up to one for each multiprocessor. The next
    kernel may start beside this one.
    """
    kernel = _wide_tile(*_shape(q, k_pool), page_size, rows)
    kernel.launch(
        (blocks, 1), q, k_pool, v_pool, table, table.stride(0),
        work.items, work.count, work.q_indices, partial_o, partial_lse, scale * LOG2E, v_scale,
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
    v_scale: float,
    page_size: int,
    taken: Tensor,
    rows: int,
    beside_wide: bool,
) -> None:
    """As `attend_wide`, for few rows, 8, 16, 32 or 64, whose queries need not see all of a run.

    taken: (1,) int32, 0 before, how many units blocks took beyond their first. beside_wide: starts
    while the wide items that were launched before run, once all of them run, and ends after them.
    The grid is what the card has room for. The next kernel may start beside this one.
    """
    shape = _shape(q, k_pool)
    kernel = _narrow_tile(*shape, page_size, rows, beside_wide)
    blocks = kernel.room() * _multiprocessors(shape.device)
    kernel.launch(
        (blocks, 1), q, k_pool, v_pool, table, table.stride(0), work.items, work.count, taken,
        work.q_indices, partial_o, partial_lse, scale * LOG2E, v_scale,
        beside_last=beside_wide,
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


@cache
def _multiprocessors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


class _Shape(NamedTuple):
    device: int
    heads: int
    kv_heads: int
    dim: int
    is_half: bool
    is_fp8: bool

    def defined(self) -> dict[str, int]:
        names = {"H": self.heads, "HK": self.kv_heads, "D": self.dim}
        names |= {"HALF": 1} if self.is_half else {}
        return names | ({"FP8": 1} if self.is_fp8 else {})


def _shape(q: Tensor, k_pool: Tensor) -> _Shape:
    _, heads, dim = q.shape
    is_half, is_fp8 = q.dtype == torch.float16, k_pool.dtype == FP8
    return _Shape(q.device.index, heads, k_pool.shape[1], dim, is_half, is_fp8)


@cache
def _wide_tile(
    device: int, heads: int, kv_heads: int, dim: int, is_half: bool, is_fp8: bool, page_size: int,
    rows: int,
) -> Kernel:  # fmt: skip
    shape = _Shape(device, heads, kv_heads, dim, is_half, is_fp8)
    stages = _wide_stages(rows, dim, is_fp8)
    shared = stages * (2 * (32 if dim > 128 else 64) * dim * 2 + 32) + 32
    shared += rows * dim * 2 if dim > 128 else 0
    shared += 4 * 2 * 64 * dim if is_fp8 else 0
    shared = -(-shared // 1024) * 1024
    defined = {"PAGE": page_size, "ROWS": rows, "STAGES": stages, "SHARED_BYTES": shared}
    # A warpgroup fetches.
    return Kernel("wide_tile", shape.defined() | defined, device, 128 + 2 * rows, shared)


def _wide_stages(rows: int, dim: int, is_fp8: bool) -> int:
    """What computes less waits more for memory; tiles of e4m3 wait elsewhere; and what is left is
    for narrow blocks."""
    if is_fp8 or dim > 192:
        return 2
    return 4 if rows == 64 and dim <= 128 else 3


# Stages of a narrow block, and of one that runs beside wide blocks: with fewer, more of them find
# room. Measured on an H200. Of e4m3, twice as many are as much memory on its way.
_STAGES, _STAGES_BESIDE = 4, 2


@cache
def _narrow_tile(
    device: int, heads: int, kv_heads: int, dim: int, is_half: bool, is_fp8: bool, page_size: int,
    rows: int, is_beside: bool,
) -> Kernel:  # fmt: skip
    shape = _Shape(device, heads, kv_heads, dim, is_half, is_fp8)
    stages = (_STAGES_BESIDE if is_beside else _STAGES) * (2 if is_fp8 else 1)
    shared = 2 * stages * 16 * dim * (1 if is_fp8 else 2)
    defined = shape.defined() | {"PAGE": page_size, "ROWS": rows, "STAGES": stages}
    return Kernel("narrow_tile", defined, device, max(32, 2 * rows), shared)


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
