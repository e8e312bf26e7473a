"""Attention of query rows over runs of slots, in Triton: any card, page size, head size and dtype.

An item is a tile of queries and the run of slots it reads: decode, a shared prefix under many
requests, a piece of either, or a causal tile of a prompt, all by the same kernel.

    row, start, end     positions [start, end) of row `row` of the table are read
    first, count        the queries: entries [first, first + count) of `members`
    limit, step         query i sees positions below limit + i * step (step 1: causal), and with
                        a window only as many; an eighth number is not used

`members` has (token, part) per query: its row of q, and the row of the partial results that the
item writes for it. Partial results are float32 outputs, each normalized by itself, with the base-2
logarithm of their softmax sum; `merge` joins those of a token.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Softmax:
    """What is done to a score before the softmax, and to K and V before they are used."""

    scale: float
    softcap: float = 0.0
    k_scale: float = 1.0
    v_scale: float = 1.0


@triton.jit
def _step(
    q, k_pool, v_pool, table, at, end, low, limit, m, total, acc, head, scale, softcap,
    KV_ROW: tl.constexpr, D: tl.constexpr, PAD_D: tl.constexpr, PAGE: tl.constexpr,
    SLOTS: tl.constexpr, MASKED: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One step of the softmax over SLOTS positions from `at`."""
    at += tl.arange(0, SLOTS)
    dim = tl.arange(0, PAD_D)
    # What is past the end weighs nothing, but must be a number: it is the last of the run, for in a
    # slot of others may be a NaN of theirs.
    read = tl.minimum(at, end - 1) if MASKED else at
    slot = tl.load(table + read // PAGE).to(tl.int64) * PAGE + read % PAGE
    where = slot[:, None] * KV_ROW + (head * D + dim)[None, :]
    if PAD_D == D:
        k = tl.load(k_pool + where)
    else:
        k = tl.load(k_pool + where, mask=(dim < D)[None, :], other=0.0)
    scores = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision=PRECISION)
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
    top = tl.maximum(m, tl.max(scores, 1))
    # A row that has seen nothing yet has no top to take its scores from.
    shift = tl.where(top == float("-inf"), 0.0, top) if MASKED else top
    weights = tl.exp2(scores - shift[:, None])
    keep = tl.exp2(m - shift)
    if PAD_D == D:
        v = tl.load(v_pool + where)
    else:
        v = tl.load(v_pool + where, mask=(dim < D)[None, :], other=0.0)
    acc *= keep[:, None]
    acc = tl.dot(weights.to(q.dtype), v.to(q.dtype), acc, input_precision=PRECISION)
    return top, total * keep + tl.sum(weights, 1), acc


@triton.jit
def _attend(
    q, k_pool, v_pool, table, table_stride, items, count, members, out, lse, sinks,
    scale, softcap, v_scale, window,
    H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, PAD_D: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, SLOTS: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    DIRECT: tl.constexpr, SINKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # In one dimension, the only one that takes more than 65,535.
    at, kv_head = tl.program_id(0) // HK, tl.program_id(0) % HK
    if at >= tl.load(count):
        return
    item = items + at * 8
    row, start, end, first = (
        tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
    )  # fmt: skip
    queries, limit, step = tl.load(item + 4), tl.load(item + 5), tl.load(item + 6)
    G: tl.constexpr = H // HK
    query = tl.arange(0, ROWS) // G
    head = kv_head * G + tl.arange(0, ROWS) % G
    there = query < queries
    dim = tl.arange(0, PAD_D)
    token = tl.load(members + (first + query) * 2, mask=there, other=0).to(tl.int64)
    at = (token * H + head)[:, None] * D + dim[None, :]
    wanted = there[:, None] & (dim < D)[None, :]
    rows = tl.load(q + at, mask=wanted, other=0.0)
    table += row.to(tl.int64) * table_stride
    limits = limit + query * step
    lows = limits - window
    limits = tl.minimum(limits, end)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, PAD_D], tl.float32)
    # Up to `whole` every query sees every position.
    if WINDOW:
        start = tl.maximum(start, (limit - window) // SLOTS * SLOTS)
        whole = start
    else:
        whole = start + (tl.minimum(limit, end) - start) // SLOTS * SLOTS
    for position in range(start, whole, SLOTS):
        m, total, acc = _step(
            rows, k_pool, v_pool, table, position, end, lows, limits, m, total, acc, kv_head,
            scale, softcap, HK * D, D, PAD_D, PAGE, SLOTS, False, WINDOW, SOFTCAP, PRECISION,
        )  # fmt: skip
    for position in range(whole, end, SLOTS):
        m, total, acc = _step(
            rows, k_pool, v_pool, table, position, end, lows, limits, m, total, acc, kv_head,
            scale, softcap, HK * D, D, PAD_D, PAGE, SLOTS, True, WINDOW, SOFTCAP, PRECISION,
        )  # fmt: skip
    if DIRECT:
        if SINKS:
            total += tl.exp2(tl.load(sinks + head).to(tl.float32) * 1.4426950408889634 - m)
        # Rows beyond the last query may have seen nothing.
        acc = acc / tl.where(total == 0.0, 1.0, total)[:, None] * v_scale
        tl.store(out + at, acc.to(out.dtype.element_ty), mask=wanted)
    else:
        part = tl.load(members + (first + query) * 2 + 1, mask=there, other=0).to(tl.int64)
        # A window may leave nothing of a piece: a sum of 0, which is -inf in base 2.
        total = tl.where(total == 0.0, 1.0, total)
        acc = acc / total[:, None] * v_scale
        at = (part * H + head)[:, None] * D + dim[None, :]
        tl.store(out + at, acc, mask=wanted)
        tl.store(lse + part * H + head, m + tl.log2(total), mask=there)


@dataclass(frozen=True)
class Work:
    """Items of one tile shape on the device.

    items: (capacity, 8) int32. count: (1,) int32, how many there are. members: (n, 2) int32. grid:
    items that are launched, count at least; what is beyond count ends at once.
    """

    items: Tensor
    count: Tensor
    members: Tensor
    grid: int


def attend(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    table: Tensor,
    work: Work,
    out: Tensor,
    lse: Tensor | None,
    softmax: Softmax,
    *,
    page_size: int,
    tile: Tile,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> None:
    """Compute `work`: into partial results `out`, `lse`, or, without `lse`, into the outputs `out`.

    q: (tokens, heads, dim), contiguous. k_pool, v_pool: (slots, kv_heads, dim), contiguous. table:
    (rows, width) int32, pages. out: (parts, heads, dim) float32, or like q. lse: (parts, heads)
    float32. sinks: (heads,), only without `lse` (`merge` takes them otherwise).
    """
    (_, heads, dim), kv_heads = q.shape, k_pool.shape[1]
    scale = softmax.scale * softmax.k_scale
    scale = scale * 2 / softmax.softcap if softmax.softcap else scale
    _attend[(kv_heads * work.grid,)](
        q, k_pool, v_pool, table, table.stride(0), work.items, work.count, work.members, out, lse,
        sinks, scale * LOG2E, softmax.softcap, softmax.v_scale, window or 0,
        H=heads, HK=kv_heads, D=dim, PAD_D=max(16, triton.next_power_of_2(dim)), PAGE=page_size,
        ROWS=tile.rows, SLOTS=tile.slots, WINDOW=window is not None, SOFTCAP=softmax.softcap > 0,
        DIRECT=lse is None, SINKS=sinks is not None,
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


@triton.jit
def _merge(
    parts, lse, starts, sinks, out,
    H: tl.constexpr, D: tl.constexpr, PAD_D: tl.constexpr, PARTS: tl.constexpr, SINKS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(starts + token).to(tl.int64), tl.load(starts + token + 1)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    dim = tl.arange(0, PAD_D)
    m, total, acc = float("-inf"), 0.0, tl.zeros([PAD_D], tl.float32)
    if SINKS:
        m, total = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634, 1.0
    for part in range(start, end, PARTS):
        part += tl.arange(0, PARTS)
        at = part * H + head
        there = part < end
        sums = tl.load(lse + at, mask=there, other=float("-inf"))
        there = there[:, None] & (dim < D)[None, :]
        values = tl.load(parts + at[:, None] * D + dim[None, :], mask=there, other=0.0)
        top = tl.maximum(m, tl.max(sums, 0))
        shift = tl.where(top == float("-inf"), 0.0, top)
        keep, weights = tl.exp2(m - shift), tl.exp2(sums - shift)
        acc = acc * keep + tl.sum(values * weights[:, None], 0)
        total = total * keep + tl.sum(weights, 0)
        m = top
    at = (token.to(tl.int64) * H + head) * D + dim
    # Padding has no parts; what it gets must be a number, for its K and V are stored.
    acc /= tl.where(total == 0.0, 1.0, total)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=dim < D)


def merge(
    parts: Tensor,
    lse: Tensor,
    starts: Tensor,
    out: Tensor,
    sinks: Tensor | None,
    *,
    early: bool = False,
) -> None:
    """Join the partial results of each token: those of token i are [starts[i], starts[i + 1]).

    parts: (n, heads, dim) float32. lse: (n, heads) float32, base 2. starts: (tokens + 1,) int32.
    out: (tokens, heads, dim). In the same order every time, whatever ran first. early: starts
    before the kernel that writes `parts` has ended, and waits for it (on Hopper).
    """
    tokens, heads, dim = out.shape
    _merge[(tokens, heads)](
        parts, lse, starts, sinks, out, H=heads, D=dim, PAD_D=triton.next_power_of_2(dim),
        PARTS=8, SINKS=sinks is not None, EARLY=early, num_warps=1,
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
