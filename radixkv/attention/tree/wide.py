"""Which kernel computes the tiles of many query rows over a pool."""

import torch
from torch import Tensor

from radixkv.kernels.gpu.attend import Softmax, Tile, Work, attend
from radixkv.memory.kv_pool import MHATokenToKVPool


class WideKernel:
    """Our CUDA kernel where the card is a Hopper and the pool one it serves, else the Triton one.

    rows: of a tile.
    """

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self._pool = pool
        self._is_hopper = _is_hopper(pool.device)
        self._has_cuda = self._is_hopper and _cuda_serves(pool)
        self.rows = 128 if self._is_hopper and pool.head_dim <= 128 else 64

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor,
        work: Work,
        parts: Tensor,
        lse: Tensor,
        softmax: Softmax,
    ) -> bool:
        """Compute the items of `work`; whether it lets the next kernel run beside it."""
        page_size = self._pool.page_size
        if self._has_cuda and q.dtype == self._pool.dtype and _is_plain(softmax):
            from radixkv.kernels.gpu.wide_tile import attend_wide

            attend_wide(q, k, v, table, work, parts, lse, softmax, page_size=page_size)
            return True
        tile = self._tile()
        attend(q, k, v, table, work, parts, lse, softmax, page_size=page_size, tile=tile)
        return False

    def _tile(self) -> Tile:
        # As many slots a step and stages as shared memory has room for.
        if self.rows == 128 and self._pool.dtype.itemsize <= 2:
            return Tile(self.rows, 64, 8, 5)
        return Tile(self.rows, 32, 4, 3)


def _is_plain(softmax: Softmax) -> bool:
    return (softmax.softcap, softmax.k_scale, softmax.v_scale) == (0.0, 1.0, 1.0)


def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def _cuda_serves(pool: MHATokenToKVPool) -> bool:
    try:
        from radixkv.kernels.gpu.wide_tile import DIMS, DTYPES
    except ImportError:  # cuda-bindings is not installed
        return False
    return pool.head_dim in DIMS and pool.dtype in DTYPES
