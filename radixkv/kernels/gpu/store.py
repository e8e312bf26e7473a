"""K and V into the pool and between slots, and rows of slots into their table."""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Elements a program moves: enough loads in flight, and a grid that fills the card at 8,192 tokens.
BLOCK = 1024
MAX_FP8 = tl.constexpr(448.0)


@triton.jit
def _stored(x, scale, pool: tl.constexpr):
    """`x / scale` in the pool's dtype; what fp8 cannot hold becomes the largest it can."""
    if pool == tl.float8e4nv:
        x = x.to(tl.float32) / scale
        x = tl.minimum(tl.maximum(x, -MAX_FP8), MAX_FP8)
    return x.to(pool)


@triton.jit
def _write_kv(
    k_pool, v_pool, k, v, slots, k_scale, v_scale,
    k_token, k_head, v_token, v_head, tokens,
    HEADS: tl.constexpr, DIM: tl.constexpr, ROW: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * ROW + tl.arange(0, ROW)
    there = (token < tokens)[:, None] & (at < HEADS * DIM)[None, :]
    slot = tl.load(slots + token, mask=token < tokens, other=0).to(tl.int64)
    head, dim = at // DIM, at % DIM
    wide = token.to(tl.int64)[:, None]
    new_k = tl.load(k + wide * k_token + (head * k_head + dim)[None, :], mask=there)
    new_v = tl.load(v + wide * v_token + (head * v_head + dim)[None, :], mask=there)
    target = slot[:, None] * (HEADS * DIM) + at[None, :]
    tl.store(k_pool + target, _stored(new_k, k_scale, k_pool.dtype.element_ty), mask=there)
    tl.store(v_pool + target, _stored(new_v, v_scale, v_pool.dtype.element_ty), mask=there)


def write_kv(
    k_pool: Tensor,
    v_pool: Tensor,
    slots: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """Store `k / k_scale` and `v / v_scale` of n tokens at `slots`, in one launch.

    k_pool, v_pool: (slots, heads, dim), contiguous. k, v: (n, heads, dim), the last dimension
    contiguous. slots: (n,) int32 or int64; slots that repeat end with the row of either.
    """
    n, heads, dim = k.shape
    if not n:
        return
    k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (k, v))
    row = min(BLOCK, triton.next_power_of_2(heads * dim))
    rows = max(1, min(16, BLOCK // row, n // 512))
    grid = (triton.cdiv(n, rows), triton.cdiv(heads * dim, row))
    _write_kv[grid](
        k_pool, v_pool, k, v, slots, k_scale, v_scale,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1), n,
        HEADS=heads, DIM=dim, ROW=row, ROWS=rows, num_warps=4,
    )  # fmt: skip


@triton.jit
def _copy_slots(pool, source, target, part_stride, ROW: tl.constexpr, BLOCK: tl.constexpr):
    token, part = tl.program_id(0), tl.program_id(1).to(tl.int64)
    read = part * part_stride + tl.load(source + token).to(tl.int64) * ROW
    written = part * part_stride + tl.load(target + token).to(tl.int64) * ROW
    for start in range(0, ROW, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(pool + written + at, tl.load(pool + read + at, mask=at < ROW), mask=at < ROW)


def copy_slots(pool: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy K and V of all layers from the slots `source` to the slots `target`, in one launch.

    pool: (2, layers, slots, heads, dim), contiguous. No target may be among the sources.
    """
    n = len(source)
    if not n:
        return
    # As integers, which hold the bits of every dtype.
    bits = pool.view(torch.uint8 if pool.element_size() == 1 else torch.int16)
    row = bits[0, 0, 0].numel()
    block = min(BLOCK, triton.next_power_of_2(row))
    grid = (n, pool.shape[0] * pool.shape[1])
    _copy_slots[grid](bits, source, target, bits.stride(1), ROW=row, BLOCK=block)


@triton.jit
def _move_rows(table, stride, moves, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    move = tl.arange(0, ROWS)
    there = move < count
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    source = tl.load(moves + move * 2, mask=there, other=0).to(tl.int64)
    target = tl.load(moves + move * 2 + 1, mask=there, other=0).to(tl.int64)
    values = tl.load(
        table + source[:, None] * stride + column[None, :], mask=there[:, None], other=0
    )
    # A row that one warp writes may be another's to read.
    tl.debug_barrier()
    tl.store(table + target[:, None] * stride + column[None, :], values, mask=there[:, None])


def move_rows(table: Tensor, moves: Tensor, width: int) -> None:
    """Copy the beginnings of rows of `table` to other rows, as if all were read before any is
    written, in one launch.

    table: (rows, a power of two) int32. moves: (n, 2) int32, each (from, to), no two to the same.
    width: what is copied of each, rounded up.
    """
    if not len(moves):
        return
    rows = triton.next_power_of_2(len(moves))
    columns = min(table.shape[1], max(16, 4096 // rows))
    _move_rows[(triton.cdiv(width, columns),)](
        table, table.stride(0), moves, len(moves), ROWS=rows, COLUMNS=columns, num_warps=4
    )


@triton.jit
def _write_rows(table, stride, pieces, entries, BLOCK: tl.constexpr):
    piece = pieces + tl.program_id(0) * 4
    row, column, count, source = (
        tl.load(piece), tl.load(piece + 1), tl.load(piece + 2), tl.load(piece + 3)
    )  # fmt: skip
    target = table + row.to(tl.int64) * stride + column
    for start in range(tl.program_id(1) * BLOCK, count, tl.num_programs(1) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        there = at < count
        tl.store(target + at, tl.load(entries + source + at, mask=there), mask=there)


def write_rows(table: Tensor, pieces: Tensor, entries: Tensor, longest: int) -> None:
    """Bring `table` up to date, in one launch.

    table: (rows, width) int32. pieces: (n, 4) int32, each (row, column, count, where in `entries`).
    entries: int32. longest: the largest count, which shapes the grid.
    """
    if not len(pieces):
        return
    spread = min(64, triton.cdiv(longest, BLOCK))
    block = min(BLOCK, triton.next_power_of_2(max(longest, 16)))
    _write_rows[(len(pieces), spread)](
        table, table.stride(0), pieces, entries, BLOCK=block, num_warps=1 if block < 256 else 4
    )
