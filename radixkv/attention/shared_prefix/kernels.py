"""Which kernels compute the items of a plan over a pool."""

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from radixkv.attention.scores import ScoreOptions
from radixkv.attention.shared_prefix.cuts import NARROW_ROWS
from radixkv.attention.shared_prefix.plan import Shape
from radixkv.kernels.gpu.attend import NARROW, Tile, Work, attend, merge_states
from radixkv.memory.kv_pool import MHATokenToKVPool

# Stages of a narrow block among narrow blocks, and beside a wide block. With fewer stages more
# blocks find room. Measured on an H200.
STAGES, STAGES_BESIDE = 4, 2
# Query heads a KV head that the CUDA kernels serve.
MAX_GROUP = 16
# Narrow blocks that a multiprocessor runs at once.
NARROW_BLOCKS = 6

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Items:
    """Items of one kind, of at most `rows` query rows each: 64, 128 ... of the wide, 8, 16 ... of
    the narrow."""

    work: Work
    rows: int


class TreeWork(Protocol):
    """The plan of a step on the device.

    wide, narrow: the items of each kind; None: the step has no such items. num_parts: rows of
    partial results to make room for. most_parts: of one token. merge_indptr: (tokens + 1,) int32;
    the partial results of token i are merge_indptr[i] to merge_indptr[i + 1].
    """

    num_parts: int
    most_parts: int

    @property
    def wide(self) -> Items | None: ...
    @property
    def narrow(self) -> Items | None: ...
    @property
    def merge_indptr(self) -> Tensor: ...


class TileKernels:
    """Our CUDA kernels where the card is a Hopper and the pool one they serve, else the Triton one.

    k_scale, v_scale: what K and V are divided by when they are stored.
    """

    def __init__(self, pool: MHATokenToKVPool, k_scale: float, v_scale: float) -> None:
        self._pool, self._k_scale, self._v_scale = pool, k_scale, v_scale
        is_hopper = _is_hopper(pool.device)
        self._has_cuda = is_hopper and _cuda_serves(pool)
        self._wide_rows = 128 if is_hopper and pool.head_dim <= 128 else 64

    def shape(self, heads: int) -> Shape:
        """What plans for queries of so many heads are cut by."""
        group = heads // self._pool.kv_heads
        rows = max(NARROW.rows, 1 << (group - 1).bit_length())
        wide_rows, blocks = max(self._wide_rows, rows), _multiprocessors(self._pool.device)
        return Shape(group, self._pool.kv_heads, rows, wide_rows, blocks, NARROW_BLOCKS * blocks)

    def serving(self, group: int) -> str:
        """Whose kernels compute items of `group` query heads a KV head, with no softcap or scales:
        "cuda" or "triton"."""
        return "cuda" if self._has_cuda and group <= MAX_GROUP else "triton"

    def run(self, inputs: Inputs, work: TreeWork, options: ScoreOptions) -> Tensor:
        """The output of the queries. inputs: q, contiguous, k, v and the page table."""
        q, wide, narrow = inputs[0], work.wide, work.narrow
        partial_o = q.new_empty((work.num_parts, *q.shape[1:]), dtype=torch.float32)
        partial_lse = q.new_empty((work.num_parts, q.shape[1]), dtype=torch.float32)
        is_plain = not options.softcap and (self._k_scale, self._v_scale) == (1.0, 1.0)
        is_small = (not wide or wide.rows <= 128) and (not narrow or narrow.rows <= NARROW_ROWS)
        on_cuda = self._has_cuda and is_plain and is_small and q.dtype == self._pool.dtype
        run = self._cuda if on_cuda else self._triton
        return run(inputs, work, partial_o, partial_lse, options)

    def _cuda(
        self,
        inputs: Inputs,
        work: TreeWork,
        partial_o: Tensor,
        partial_lse: Tensor,
        options: ScoreOptions,
    ) -> Tensor:
        """Both kinds at once: the wide are bound by arithmetic, the narrow by memory.

        The wide go first, because they find no room among the narrow. As soon as all of them run,
        the narrow fill what is left of each multiprocessor.
        """
        from radixkv.kernels.gpu.tiles import attend_narrow, attend_wide, merge_beside

        wide, narrow, stages = work.wide, work.narrow, STAGES
        partials = partial_o, partial_lse
        size, scale = self._pool.page_size, options.scale_at(self._pool.head_dim)
        if wide:
            attend_wide(*inputs, wide.work, *partials, scale=scale, page_size=size, rows=wide.rows)
            stages = STAGES_BESIDE
        if narrow:
            attend_narrow(
                *inputs, narrow.work, *partials, scale=scale, page_size=size, rows=narrow.rows,
                stages=stages, beside_last=wide is not None,
            )  # fmt: skip
        out = torch.empty_like(inputs[0])
        merge_beside(*partials, work.merge_indptr, out, options.sinks, most_parts=work.most_parts)
        return out

    def _triton(
        self,
        inputs: Inputs,
        work: TreeWork,
        partial_o: Tensor,
        partial_lse: Tensor,
        options: ScoreOptions,
    ) -> Tensor:
        wide, narrow = work.wide, work.narrow
        tiles = (
            (wide, self._wide_tile(wide.rows if wide else 0)),
            (narrow, _narrow_tile(narrow.rows if narrow else 0)),
        )
        for items, tile in tiles:
            if items is None:
                continue
            attend(
                *inputs, items.work, partial_o, partial_lse, page_size=self._pool.page_size,
                tile=tile, scale=options.scale_at(self._pool.head_dim) * self._k_scale,
                softcap=options.softcap or 0.0, v_scale=self._v_scale,
            )  # fmt: skip
        out = torch.empty_like(inputs[0])
        merge_states(partial_o, partial_lse, work.merge_indptr, out, options.sinks)
        return out

    def _wide_tile(self, rows: int) -> Tile:
        # One request with many heads may take more rows than a tile should have.
        rows = max(self._wide_rows, rows)
        # As many slots a step and stages as shared memory has room for.
        if self._wide_rows == 128 and self._pool.dtype.itemsize <= 2:
            return Tile(rows, 64, 8, 5)
        return Tile(rows, 32, 4, 3)


def _narrow_tile(rows: int) -> Tile:
    rows = max(NARROW.rows, rows)
    return replace(NARROW, rows=rows, num_warps=rows // NARROW.rows)


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _cuda_serves(pool: MHATokenToKVPool) -> bool:
    try:
        from radixkv.kernels.gpu.tiles import DIMS, DTYPES
    except ImportError:  # cuda-bindings is not installed
        return False
    return pool.head_dim in DIMS and pool.dtype in DTYPES


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
