"""Which kernels compute the items of a plan over a pool."""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from radixkv.attention.scores import ScoreOptions
from radixkv.attention.shared_prefix.cuts import NARROW_ROWS
from radixkv.attention.shared_prefix.device_plan import FEW, HALF, Kind, Listed
from radixkv.attention.shared_prefix.plan import Shape
from radixkv.kernels.gpu.attend import (
    NARROW,
    Tile,
    Work,
    attend,
    latent_tile,
    merge_states,
    parts_of_heads,
)
from radixkv.memory.kv_pool import PoolShape
from radixkv.pages import ceil_div

# Query heads a KV head that the CUDA kernels serve.
MAX_GROUP = 16
# Narrow blocks that a multiprocessor runs at once.
NARROW_BLOCKS = 6
# Blocks of the Triton kernels that are launched for a multiprocessor, whatever there is to do.
LAUNCHED_WIDE, LAUNCHED_NARROW = 2, 16

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


class TreeWork(Protocol):
    """The plan of a step on the device, see `DevicePlan`."""

    heads: int
    narrow_rows: int
    kind: Kind

    @property
    def wide(self) -> Listed: ...
    @property
    def narrow(self) -> Listed: ...
    @property
    def taken(self) -> Tensor: ...
    @property
    def split(self) -> Tensor: ...
    @property
    def merge_indptr(self) -> Tensor: ...
    @property
    def q_indices(self) -> Tensor: ...
    @property
    def partials(self) -> tuple[Tensor, Tensor]: ...


class TileKernels:
    """Our CUDA kernels where the card is a Hopper and the pool one they serve, else the Triton one.

    k_scale, v_scale: what K and V are divided by when they are stored.
    """

    def __init__(self, pool: PoolShape, k_scale: float, v_scale: float) -> None:
        self._pool, self._k_scale, self._v_scale = pool, k_scale, v_scale
        is_hopper = _is_hopper(pool.device)
        self._has_cuda = is_hopper and _cuda_serves(pool)
        self._wide_rows = 128 if is_hopper and pool.head_dim <= 128 else 64
        row_bytes = pool.head_dim * pool.dtype.itemsize
        self._latent = latent_tile(pool.device, row_bytes) if pool.is_latent else None

    def shape(self, heads: int) -> Shape:
        """What plans for queries of so many heads are cut by."""
        if self._latent:
            rows, blocks = self._latent.rows, _multiprocessors(self._pool.device)
            parts = parts_of_heads(heads, rows)
            return Shape(heads // parts, parts, rows, rows, blocks, blocks)
        group = heads // self._pool.kv_heads
        rows = max(NARROW.rows, _power_of_two(group))
        wide_rows, blocks = max(self._most_wide(group), rows), _multiprocessors(self._pool.device)
        return Shape(group, self._pool.kv_heads, rows, wide_rows, blocks, NARROW_BLOCKS * blocks)

    def _most_wide(self, group: int) -> int:
        """Query rows of a wide item. Small wide blocks leave room for large narrow ones."""
        return HALF if self._has_cuda and has_many_heads(group) else self._wide_rows

    def serving(self, group: int) -> str:
        """Whose kernels compute items of `group` query heads a KV head, with no softcap: "cuda" or
        "triton"."""
        return "cuda" if self._has_cuda and self._has_group(group) else "triton"

    def _has_group(self, group: int) -> bool:
        # Over latents, heads that find no room in a tile are computed in parts.
        return bool(self._latent) or group <= MAX_GROUP

    def run(self, inputs: Inputs, work: TreeWork, options: ScoreOptions) -> Tensor:
        """The output of the queries. inputs: q, contiguous, k, v and the page table.

        What is launched depends on the step's tokens and heads, and on the plan's kind alone.
        """
        has_group = self._has_group(work.heads // self._pool.kv_heads)
        is_small = has_group and work.narrow_rows <= NARROW_ROWS
        is_plain = not options.softcap and self._takes(inputs[0].dtype)
        if not (self._has_cuda and is_plain and is_small):
            return self._triton(inputs, work, options)
        return (self._cuda_latents if self._latent else self._cuda)(inputs, work, options)

    def _cuda(self, inputs: Inputs, work: TreeWork, options: ScoreOptions) -> Tensor:
        """All kinds at once: the wide are bound by arithmetic, the others by memory.

        The wide go first, because they find no room among the others. As soon as all of them run,
        the others fill what is left of each multiprocessor.
        """
        from radixkv.kernels.gpu.tiles import attend_narrow, attend_wide, merge_beside

        group, kind = work.heads // self._pool.kv_heads, work.kind
        size, scale = self._pool.page_size, options.scale_at(self._pool.head_dim) * self._k_scale
        if kind.wide:
            attend_wide(
                *inputs, self._wide(work), *work.partials, scale=scale, v_scale=self._v_scale,
                page_size=size, rows=HALF if kind.is_half else self._most_wide(group),
                blocks=self._wide_blocks(kind),
            )  # fmt: skip
        attend_narrow(
            *inputs, self._narrow(work), *work.partials, scale=scale, v_scale=self._v_scale,
            page_size=size, taken=work.taken,
            rows=FEW if kind.has_few_rows else work.narrow_rows, beside_wide=kind.wide > 0,
        )  # fmt: skip
        out = torch.empty_like(inputs[0])
        merge_beside(
            *work.partials,
            work.merge_indptr,
            out,
            options.sinks,
            split=work.split,
            taken=work.taken,
        )
        return out

    def _takes(self, queries: torch.dtype) -> bool:
        """Whether the CUDA kernels, where they serve the pool, take such queries and its scales."""
        if self._latent and (self._k_scale, self._v_scale) != (1.0, 1.0):
            return False
        is_fp8 = self._pool.dtype.itemsize == 1
        return queries.itemsize == 2 if is_fp8 else queries == self._pool.dtype

    def _cuda_latents(self, inputs: Inputs, work: TreeWork, options: ScoreOptions) -> Tensor:
        """All items are narrow ones, see `TreePlan.joined`."""
        from radixkv.kernels.gpu.tiles import attend_latents

        q, k, _, table = inputs
        attend_latents(
            q, k, table, self._narrow(work), *work.partials,
            scale=options.scale_at(self._pool.head_dim), page_size=self._pool.page_size,
            split=self._split(work),
        )  # fmt: skip
        return self._merged(q, work, options)

    def _merged(self, q: Tensor, work: TreeWork, options: ScoreOptions) -> Tensor:
        out = q.new_empty((*q.shape[:2], self._pool.v_head_dim))
        merge_states(*work.partials, work.merge_indptr, out, options.sinks)
        return out

    def _split(self, work: TreeWork) -> int:
        return parts_of_heads(work.heads, self._latent.rows) if self._latent else 1

    def _wide_blocks(self, kind: Kind) -> int:
        return max(1, kind.wide * _multiprocessors(self._pool.device) // 2)

    def _triton(self, inputs: Inputs, work: TreeWork, options: ScoreOptions) -> Tensor:
        tiles = [(self._narrow(work), self._latent or _narrow_tile(work.narrow_rows))]
        if work.kind.wide:
            group = work.heads // self._pool.kv_heads
            tiles.insert(0, (self._wide(work), self._wide_tile(_power_of_two(group))))
        for items, tile in tiles:
            attend(
                *inputs, items, *work.partials, page_size=self._pool.page_size, tile=tile,
                scale=options.scale_at(self._pool.head_dim) * self._k_scale,
                softcap=options.softcap or 0.0, v_scale=self._v_scale,
                split=self._split(work),
            )  # fmt: skip
        return self._merged(inputs[0], work, options)

    def _wide(self, work: TreeWork) -> Work:
        return Work(*work.wide, work.q_indices, self._grid(LAUNCHED_WIDE))

    def _narrow(self, work: TreeWork) -> Work:
        return Work(*work.narrow, work.q_indices, self._grid(LAUNCHED_NARROW))

    def _grid(self, blocks: int) -> int:
        return ceil_div(blocks * _multiprocessors(self._pool.device), self._pool.kv_heads)

    def _wide_tile(self, rows: int) -> Tile:
        # One request with many heads may take more rows than a tile should have.
        rows = max(self._wide_rows, rows)
        # As many slots a step and stages as shared memory has room for.
        if self._wide_rows == 128 and self._pool.dtype.itemsize <= 2:
            return Tile(rows, 64, 8, 5)
        return Tile(rows, 32, 4, 3)


def has_many_heads(group: int) -> bool:
    """Whether an item of one token has too many rows for the smallest narrow block."""
    return group > FEW


def _narrow_tile(rows: int) -> Tile:
    rows = max(NARROW.rows, _power_of_two(rows))
    return replace(NARROW, rows=rows, num_warps=rows // NARROW.rows)


def _power_of_two(n: int) -> int:
    """The smallest that is `n` or more."""
    return 1 << (n - 1).bit_length()


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _cuda_serves(pool: PoolShape) -> bool:
    try:
        from radixkv.kernels.gpu.tiles import DTYPES, LATENT_DIMS, serves
    except ImportError:  # cuda-bindings is not installed
        return False
    if not pool.is_latent:
        return serves(pool.head_dim, pool.dtype)
    dims = pool.v_head_dim, pool.head_dim - pool.v_head_dim
    return dims == LATENT_DIMS and pool.dtype in DTYPES


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
