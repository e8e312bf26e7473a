"""Which kernels compute the items of a plan over a pool."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from radixkv.kernels.gpu.attend import NARROW, Softmax, Tile, Work, attend
from radixkv.memory.kv_pool import MHATokenToKVPool

# Stages of a narrow block among its like, and beside a wide block. The fewer there are, the more
# blocks find room; measured on an H200.
STAGES, STAGES_BESIDE = 4, 2
# Query rows of the largest narrow CUDA tile.
NARROW_ROWS = 16
# Narrow blocks that a multiprocessor runs at once.
NARROW_BLOCKS = 6

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Items:
    """Items of one kind, of at most `rows` query rows each: 64, 128 ... of the wide, 8, 16 ... of
    the narrow."""

    work: Work
    rows: int


class TileKernels:
    """Our CUDA kernels where the card is a Hopper and the pool one they serve, else the Triton one.

    wide_rows: of the largest tile.
    """

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self._pool = pool
        self.is_hopper = _is_hopper(pool.device)
        self._has_cuda = self.is_hopper and _cuda_serves(pool)
        self.wide_rows = 128 if self.is_hopper and pool.head_dim <= 128 else 64

    def serving(self, group: int) -> str:
        """Whose kernels compute items of `group` query heads a KV head, with no softcap or scales:
        "cuda" or "triton"."""
        return "cuda" if self._has_cuda and group <= NARROW_ROWS else "triton"

    def run(
        self,
        inputs: Inputs,
        wide: Items | None,
        narrow: Items | None,
        parts: Tensor,
        lse: Tensor,
        softmax: Softmax,
    ) -> None:
        """Compute items of both kinds; what is launched next may start early. inputs: q, k, v and
        the table of rows."""
        is_plain = (softmax.softcap, softmax.k_scale, softmax.v_scale) == (0.0, 1.0, 1.0)
        is_small = (not wide or wide.rows <= 128) and (not narrow or narrow.rows <= NARROW_ROWS)
        has_dtype = inputs[0].dtype == self._pool.dtype
        on_cuda = self._has_cuda and is_plain and is_small and has_dtype
        run = self._cuda if on_cuda else self._triton
        run(inputs, wide, narrow, parts, lse, softmax)

    def _cuda(
        self,
        inputs: Inputs,
        wide: Items | None,
        narrow: Items | None,
        parts: Tensor,
        lse: Tensor,
        softmax: Softmax,
    ) -> None:
        """Both kinds at once: the wide are bound by arithmetic, the narrow by memory.

        The wide go first, for they find no room among the narrow. As soon as all of them run, the
        narrow fill what is left of each multiprocessor.
        """
        from radixkv.kernels.gpu.tiles import attend_narrow, attend_wide

        size, stages = self._pool.page_size, STAGES
        if wide:
            attend_wide(*inputs, wide.work, parts, lse, softmax, page_size=size, rows=wide.rows)
            stages = STAGES_BESIDE
        if narrow:
            attend_narrow(
                *inputs, narrow.work, parts, lse, softmax, page_size=size, rows=narrow.rows,
                stages=stages, beside_last=wide is not None,
            )  # fmt: skip

    def _triton(
        self,
        inputs: Inputs,
        wide: Items | None,
        narrow: Items | None,
        parts: Tensor,
        lse: Tensor,
        softmax: Softmax,
    ) -> None:
        size = self._pool.page_size
        if wide:
            tile = self._wide_tile(wide.rows)
            attend(*inputs, wide.work, parts, lse, softmax, page_size=size, tile=tile)
        if narrow:
            tile = replace(NARROW, rows=max(NARROW.rows, narrow.rows))
            attend(*inputs, narrow.work, parts, lse, softmax, page_size=size, tile=tile)

    def _wide_tile(self, rows: int) -> Tile:
        # One request with many heads may take more rows than a tile is to have.
        rows = max(self.wide_rows, rows)
        # As many slots a step and stages as shared memory has room for.
        if self.wide_rows == 128 and self._pool.dtype.itemsize <= 2:
            return Tile(rows, 64, 8, 5)
        return Tile(rows, 32, 4, 3)


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _cuda_serves(pool: MHATokenToKVPool) -> bool:
    try:
        from radixkv.kernels.gpu.tiles import DIMS, DTYPES
    except ImportError:  # cuda-bindings is not installed
        return False
    return pool.head_dim in DIMS and pool.dtype in DTYPES
