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
def _write_part(
    pool, rows, slot, at, there, token, scale, pool_slot, row_token, row_head,
    HEADS: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Numbers `at` of each row, all heads one after another."""
    there = there[:, None] & (at < HEADS * DIM)[None, :]
    source = token.to(tl.int64)[:, None] * row_token + (at // DIM * row_head + at % DIM)[None, :]
    new = _stored(tl.load(rows + source, mask=there), scale, pool.dtype.element_ty)
    tl.store(pool + slot[:, None] * pool_slot + at[None, :], new, mask=there)


@triton.jit
def _write_kv(
    k_pool, v_pool, k, v, slots, k_scale, v_scale, k_slot, v_slot,
    k_token, k_head, v_token, v_head, tokens,
    HEADS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr,
    ROW: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * ROW + tl.arange(0, ROW)
    there = token < tokens
    slot = tl.load(slots + token, mask=there, other=0).to(tl.int64)
    _write_part(k_pool, k, slot, at, there, token, k_scale, k_slot, k_token, k_head, HEADS, K_DIM)
    _write_part(v_pool, v, slot, at, there, token, v_scale, v_slot, v_token, v_head, HEADS, V_DIM)


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

    k_pool, v_pool: (slots, heads, dim each), the heads of a slot one after another. k, v:
    (n, heads, dim each), the last dimension contiguous. slots: (n,) int32 or int64; slots that
    repeat end with the row of either.
    """
    n, heads, k_dim = k.shape
    if not n:
        return
    k, v = (x if x.stride(2) == 1 else x.contiguous() for x in (k, v))
    longest = heads * max(k_dim, v.shape[2])
    row = min(BLOCK, triton.next_power_of_2(longest))
    rows = max(1, min(16, BLOCK // row, n // 512))
    grid = (triton.cdiv(n, rows), triton.cdiv(longest, row))
    _write_kv[grid](
        k_pool, v_pool, k, v, slots, k_scale, v_scale, k_pool.stride(0), v_pool.stride(0),
        k.stride(0), k.stride(1), v.stride(0), v.stride(1), n,
        HEADS=heads, K_DIM=k_dim, V_DIM=v.shape[2], ROW=row, ROWS=rows, num_warps=4,
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
    """Copy what all layers keep from the slots `source` to the slots `target`, in one launch.

    pool: (planes, layers, slots, heads, dim), contiguous. No target may be among the sources.
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
