"""Attention of query rows over runs of slots, in Triton: any card, page size, head size and dtype.

An item is a tile of queries and the run of slots it reads: decode, a shared prefix under many
requests, a piece of either, or a causal tile of a prompt, all by the same kernel.

    row, start, end     positions [start, end) of row `row` of the table are read
    first, count        the queries: entries [first, first + count) of `q_indices`
    limit, step         query i sees positions below limit + i * step (step 1: causal), and with
                        a window only as many; an eighth number is not used

`q_indices` has (token, part) per query: its row of q, and the row of the partial results that the
item writes for it. Partial results are float32 outputs, each normalized by itself, with the base-2
logarithm of their softmax sum; `merge_states` joins those of a token.

Over latents (`MLATokenToKVPool`) a key is a latent and a rotary key, and the latent is the value,
too: it is read once and multiplied twice.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = 1.4426950408889634


@dataclass(frozen=True)
class Tile:
    """How an item is computed: query rows (queries x heads of a KV head) and slots a step."""

    rows: int
    slots: int
    num_warps: int
    num_stages: int


# Measured on an H200. Few rows are bound by memory: blocks so small that many run side by side.
NARROW = Tile(16, 32, 1, 5)
# Over latents, whose rows are so long that shared memory bounds a tile, and whose outputs are so
# long that registers bound it to 64 rows. The largest that fits is taken.
LATENT = (Tile(64, 64, 8, 2), Tile(64, 32, 8, 2), Tile(16, 32, 4, 2), Tile(16, 16, 4, 2))


def latent_tile(device: torch.device, row_bytes: int) -> Tile:
    """The tile for latents with their rotary keys of so many bytes a token."""
    if device.type != "cuda":
        return LATENT[-1]
    card: Any = torch.cuda.get_device_properties(device)
    room = card.shared_memory_per_block_optin
    return next((tile for tile in LATENT if _shared_bytes(tile, row_bytes) <= room), LATENT[-1])


def _shared_bytes(tile: Tile, row_bytes: int) -> int:
    return (tile.rows + tile.num_stages * tile.slots) * row_bytes


def parts_of_heads(heads: int, rows: int) -> int:
    """The fewest equal parts of `heads` of which a tile of `rows` has room for one."""
    return next(n for n in range(1, heads + 1) if heads % n == 0 and heads // n <= rows)


@triton.jit
def _loaded(rows, D: tl.constexpr, PAD_D: tl.constexpr):
    """Rows of D numbers from the pointers `rows`, padded with zeros."""
    dim = tl.arange(0, PAD_D)[None, :]
    return tl.load(rows + dim) if PAD_D == D else tl.load(rows + dim, mask=dim < D, other=0.0)


@triton.jit
def _step(
    q, q_rope, k_pool, v_pool, table, at, end, low, limit, row_max, row_sum, acc, head, scale,
    softcap,
    KV_ROW: tl.constexpr, D: tl.constexpr, PAD_D: tl.constexpr, ROPE: tl.constexpr,
    PAD_ROPE: tl.constexpr, PAGE: tl.constexpr, SLOTS: tl.constexpr, MASKED: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One step of the softmax over SLOTS positions from `at`."""
    at += tl.arange(0, SLOTS)
    # What is past the end weighs nothing but must be a number, so the last slot of the run is read
    # again: a slot of another request may hold a NaN.
    read = tl.minimum(at, end - 1) if MASKED else at
    slot = tl.load(table + read // PAGE).to(tl.int64) * PAGE + read % PAGE
    where = slot[:, None] * KV_ROW + head * (D + ROPE)
    k = _loaded(k_pool + where, D, PAD_D)
    scores = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION)
    if ROPE:
        rope = _loaded(k_pool + where + D, ROPE, PAD_ROPE)
        scores = tl.dot(q_rope, tl.trans(rope.to(q.dtype)), scores, input_precision=PRECISION)
    if SOFTCAP:
        # tanh, which Triton has only where CUDA's library is.
        scores = softcap - 2 * softcap / (tl.exp2(scores * scale) + 1)
        scores *= 1.4426950408889634
    else:
        scores *= scale
    if MASKED:
        seen = at[None, :] < limit[:, None]
        if WINDOW:
            seen &= at[None, :] >= low[:, None]
        scores = tl.where(seen, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    # A row that has seen nothing yet has no maximum to subtract.
    shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    weights = tl.exp2(scores - shift[:, None])
    rescale = tl.exp2(row_max - shift)
    v = k if ROPE else _loaded(v_pool + where, D, PAD_D)
    acc *= rescale[:, None]
    acc = tl.dot(weights.to(q.dtype), v.to(q.dtype), acc, input_precision=PRECISION)
    return new_max, row_sum * rescale + tl.sum(weights, 1), acc


@triton.jit
def _item(
    unit, q, k_pool, v_pool, table, table_stride, items, q_indices, out, partial_lse, sinks,
    scale, softcap, v_scale, window,
    H: tl.constexpr, HK: tl.constexpr, SPLIT: tl.constexpr, D: tl.constexpr, PAD_D: tl.constexpr,
    ROPE: tl.constexpr, PAD_ROPE: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    SLOTS: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, DIRECT: tl.constexpr,
    SINKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One item under one KV head, or under a part of the query heads that read it."""
    at, part = unit // (HK * SPLIT), unit % (HK * SPLIT)
    kv_head = part // SPLIT
    item = items + at * 8
    row, start, end, first = (
        tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
    )  # fmt: skip
    queries, limit, step = tl.load(item + 4), tl.load(item + 5), tl.load(item + 6)
    G: tl.constexpr = H // (HK * SPLIT)
    query = tl.arange(0, ROWS) // G
    head = part * G + tl.arange(0, ROWS) % G
    there = query < queries
    dim = tl.arange(0, PAD_D)
    token = tl.load(q_indices + (first + query) * 2, mask=there, other=0).to(tl.int64)
    wanted = there[:, None] & (dim < D)[None, :]
    at = (token * H + head)[:, None] * (D + ROPE) + dim[None, :]
    rows = tl.load(q + at, mask=wanted, other=0.0)
    rope = rows
    if ROPE:
        dim_rope = tl.arange(0, PAD_ROPE)
        at = (token * H + head)[:, None] * (D + ROPE) + D + dim_rope[None, :]
        rope = tl.load(q + at, mask=there[:, None] & (dim_rope < ROPE)[None, :], other=0.0)
    table += row.to(tl.int64) * table_stride
    limits = limit + query * step
    lows = limits - window
    limits = tl.minimum(limits, end)
    row_max = tl.full([ROWS], float("-inf"), tl.float32)
    row_sum = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PAD_D], tl.float32)
    # Up to `whole` every query sees every position.
    if WINDOW:
        start = tl.maximum(start, (limit - window) // SLOTS * SLOTS)
        whole = start
    else:
        whole = start + tl.maximum(tl.minimum(limit, end) - start, 0) // SLOTS * SLOTS
    for position in range(start, whole, SLOTS):
        row_max, row_sum, acc = _step(
            rows, rope, k_pool, v_pool, table, position, end, lows, limits, row_max, row_sum, acc,
            kv_head, scale, softcap, HK * (D + ROPE), D, PAD_D, ROPE, PAD_ROPE, PAGE, SLOTS, False,
            WINDOW, SOFTCAP, PRECISION,
        )  # fmt: skip
    for position in range(whole, end, SLOTS):
        row_max, row_sum, acc = _step(
            rows, rope, k_pool, v_pool, table, position, end, lows, limits, row_max, row_sum, acc,
            kv_head, scale, softcap, HK * (D + ROPE), D, PAD_D, ROPE, PAD_ROPE, PAGE, SLOTS, True,
            WINDOW, SOFTCAP, PRECISION,
        )  # fmt: skip
    if DIRECT:
        if SINKS:
            row_sum += tl.exp2(tl.load(sinks + head).to(tl.float32) * 1.4426950408889634 - row_max)
        # Rows beyond the last query may have seen nothing.
        acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None] * v_scale
        at = (token * H + head)[:, None] * D + dim[None, :]
        tl.store(out + at, acc.to(out.dtype.element_ty), mask=wanted)
    else:
        part = tl.load(q_indices + (first + query) * 2 + 1, mask=there, other=0).to(tl.int64)
        # A window may leave nothing of a piece: a sum of 0, which is -inf in base 2.
        row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)
        acc = acc / row_sum[:, None] * v_scale
        at = (part * H + head)[:, None] * D + dim[None, :]
        tl.store(out + at, acc, mask=wanted)
        tl.store(partial_lse + part * H + head, row_max + tl.log2(row_sum), mask=there)


@triton.jit
def _attend(
    q, k_pool, v_pool, table, table_stride, items, count, q_indices, out, partial_lse, sinks,
    scale, softcap, v_scale, window,
    H: tl.constexpr, HK: tl.constexpr, SPLIT: tl.constexpr, D: tl.constexpr, PAD_D: tl.constexpr,
    ROPE: tl.constexpr, PAD_ROPE: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    SLOTS: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, DIRECT: tl.constexpr,
    SINKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # In one dimension, the only one that takes more than 65,535.
    for unit in range(tl.program_id(0), tl.load(count) * HK * SPLIT, tl.num_programs(0)):
        _item(
            unit, q, k_pool, v_pool, table, table_stride, items, q_indices, out, partial_lse, sinks,
            scale, softcap, v_scale, window, H, HK, SPLIT, D, PAD_D, ROPE, PAD_ROPE, PAGE, ROWS,
            SLOTS, WINDOW, SOFTCAP, DIRECT, SINKS, PRECISION,
        )  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Work items of one tile shape on the device.

    items: (capacity, 8) int32. count: (1,) int32, the number of items. q_indices: (n, 2) int32.
    grid: items whose blocks are launched; where there are more items, blocks take one after
    another, and where there are fewer, the blocks beyond end at once.
    """

    items: Tensor
    count: Tensor
    q_indices: Tensor
    grid: int


def attend(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    out: Tensor,
    partial_lse: Tensor | None,
    *,
    page_size: int,
    tile: Tile,
    scale: float,
    softcap: float = 0.0,
    v_scale: float = 1.0,
    window: int | None = None,
    sinks: Tensor | None = None,
    split: int = 1,
) -> None:
    """Compute `work`: into partial results, or, without `partial_lse`, into the outputs `out`.

    q: (tokens, heads, k dim), contiguous. k_pool: (slots, kv_heads, k dim), contiguous. v_pool: the
    same of other numbers, or, where it has a smaller last dimension, the beginnings of k_pool's
    rows. table: (rows, width) int32, pages. out: (parts, heads, v dim) float32, or (tokens, heads,
    v dim) like q. partial_lse: (parts, heads) float32. scale: of the product of q and k, softcap:
    of what that gives (0: none), v_scale: of the output. sinks: (heads,), only without
    `partial_lse` (`merge_states` takes them otherwise). split: parts that the query heads of a KV
    head are computed in, see `parts_of_heads`.
    """
    heads, (_, kv_heads, dim) = q.shape[1], v_pool.shape
    rope = q.shape[2] - dim
    scale = scale * 2 / softcap if softcap else scale
    _attend[(kv_heads * split * work.grid,)](
        q, k_pool, v_pool, table, table.stride(0), work.items, work.count, work.q_indices, out,
        partial_lse, sinks, scale * LOG2E, softcap, v_scale, window or 0,
        H=heads, HK=kv_heads, SPLIT=split, D=dim, PAD_D=_padded(dim), ROPE=rope,
        PAD_ROPE=_padded(rope), PAGE=page_size, ROWS=tile.rows, SLOTS=tile.slots,
        WINDOW=window is not None, SOFTCAP=softcap > 0, DIRECT=partial_lse is None,
        SINKS=sinks is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def _padded(dim: int) -> int:
    """What a matrix product can be of."""
    return max(16, 1 << (dim - 1).bit_length())


@triton.jit
def _merge_states(
    partial_o, partial_lse, merge_indptr, sinks, out,
    H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, SINKS: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(merge_indptr + token).to(tl.int64), tl.load(merge_indptr + token + 1)
    dim = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    row_max, row_sum, acc = float("-inf"), 0.0, tl.zeros([BLOCK], tl.float32)
    if SINKS:
        row_max, row_sum = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634, 1.0
    for part in range(start, end, PARTS):
        part += tl.arange(0, PARTS)
        at = part * H + head
        there = part < end
        sums = tl.load(partial_lse + at, mask=there, other=float("-inf"))
        there = there[:, None] & (dim < D)[None, :]
        values = tl.load(partial_o + at[:, None] * D + dim[None, :], mask=there, other=0.0)
        new_max = tl.maximum(row_max, tl.max(sums, 0))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        rescale, weights = tl.exp2(row_max - shift), tl.exp2(sums - shift)
        acc = acc * rescale + tl.sum(values * weights[:, None], 0)
        row_sum = row_sum * rescale + tl.sum(weights, 0)
        row_max = new_max
    at = (token.to(tl.int64) * H + head) * D + dim
    # Padding has no parts; what it gets must be a number, because its K and V are stored.
    acc /= tl.where(row_sum == 0.0, 1.0, row_sum)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=dim < D)


def merge_states(
    partial_o: Tensor,
    partial_lse: Tensor,
    merge_indptr: Tensor,
    out: Tensor,
    sinks: Tensor | None,
) -> None:
    """Merge the partial results of each token: merge_indptr[i] to merge_indptr[i + 1] for token i.

    partial_o: (n, heads, dim), of any dtype. partial_lse: (n, heads) float32, base 2. merge_indptr:
    (tokens + 1,) int32. out: (tokens, heads, dim). Sums in the same order every time, whatever ran
    first.
    """
    tokens, heads, dim = out.shape
    block = min(256, triton.next_power_of_2(dim))
    _merge_states[(tokens, heads, triton.cdiv(dim, block))](
        partial_o, partial_lse, merge_indptr, sinks, out, H=heads, D=dim, BLOCK=block, PARTS=8,
        SINKS=sinks is not None, num_warps=1,
    )  # fmt: skip
