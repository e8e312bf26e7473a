"""The K and V tensors that slots point into."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError, InvalidSlotsError
from radixkv.memory.allocator import check_pool_shape

KV_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
}


class PoolShape(Protocol):
    """What kernels are chosen by, of a pool of K and V."""

    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def page_size(self) -> int: ...


class MHATokenToKVPool:
    """K and V of every slot in every layer, for multi-head and grouped-query attention.

    Page 0 is padding: tokens live in slots page_size to num_slots + page_size - 1.
    dtype: a torch dtype or its name, one of KV_DTYPES.
    """

    def __init__(
        self,
        num_slots: int,
        num_layers: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype | str,
        device: torch.device | str = "cpu",
        *,
        page_size: int = 1,
    ) -> None:
        check_pool_shape(num_slots, page_size)
        self.num_slots, self.page_size = num_slots, page_size
        self.num_layers = at_least(1, num_layers=num_layers)
        self.kv_heads = at_least(1, kv_heads=kv_heads)
        self.head_dim = at_least(1, head_dim=head_dim)
        self.dtype = as_kv_dtype(dtype)
        # Zeros, for a kernel may read the padding page and must find finite numbers there.
        shape = (2, num_layers, num_slots + page_size, kv_heads, head_dim)
        self._kv = torch.zeros(shape, dtype=self.dtype, device=device)
        self.device = self._kv.device

    @property
    def bytes_per_token(self) -> int:
        """Bytes that K and V of one token take in all layers."""
        return 2 * self.num_layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def k(self, layer: int) -> Tensor:
        """Keys of one layer, a view: [num_slots + page_size, kv_heads, head_dim]."""
        return self._kv[0, self._layer(layer)]

    def v(self, layer: int) -> Tensor:
        """Values of one layer, a view: [num_slots + page_size, kv_heads, head_dim]."""
        return self._kv[1, self._layer(layer)]

    def write(self, layer: int, slots: Any, k: Tensor, v: Tensor) -> None:
        """Store `k` and `v` of n tokens at `slots`, converted to the pool's dtype.

        slots: (n,) int32 or int64, an array or a tensor. k, v: (n, kv_heads, head_dim).
        fp8 saturates at the largest value. Nothing is written on an error.
        The range of slots is checked where they lie on the host: reading them back from a GPU
        would stall it once a layer, so check device slots once, before they are sent there.
        """
        index = self.as_index(slots)
        self.check_rows(k, v, len(index))
        self.k(layer)[index] = self._converted(k)
        self.v(layer)[index] = self._converted(v)

    def copy(self, source: Any, target: Any) -> None:
        """Copy K and V of all layers from the slots `source` to the slots `target`, one to one.

        Everything is read before anything is written, so the two may overlap.
        """
        read, written = self.as_index(source, "source"), self.as_index(target, "target")
        if len(read) != len(written):
            raise InvalidSlotsError(
                f"source and target must be equally long; got {len(read)} and {len(written)}",
                source=len(read),
                target=len(written),
            )
        if self._kv.is_cuda and _are_apart(source, target):
            # Imported here: Triton comes with torch's builds for CUDA.
            from radixkv.kernels.gpu.store import copy_slots

            copy_slots(self._kv, read, written)
        else:
            self._kv[:, :, written] = self._kv[:, :, read]

    def as_index(self, slots: Any, name: str = "slots") -> Tensor:
        """`slots` as an int64 tensor on the pool's device, checked.

        Raises InvalidSlotsError for another rank or dtype, and for a slot no token can have
        where `slots` lie on the host.
        """
        index = slots if isinstance(slots, Tensor) else _copied(slots, name)
        if index.ndim != 1:
            raise InvalidSlotsError(
                f"{name} must have one dimension; got shape {tuple(index.shape)}",
                shape=tuple(index.shape),
            )
        if index.dtype not in (torch.int32, torch.int64):
            raise InvalidSlotsError(
                f"{name} must be int32 or int64; got {index.dtype}", dtype=str(index.dtype)
            )
        if index.device.type == "cpu":
            self._check_range(index, name)
        return index.to(self.device, torch.int64)

    def check_rows(self, k: Tensor, v: Tensor, num_tokens: int) -> None:
        """Raises InvalidArgumentError unless K and V of `num_tokens` tokens could be written."""
        right = (num_tokens, self.kv_heads, self.head_dim)
        for name, rows in (("k", k), ("v", v)):
            if rows.shape != right:
                raise InvalidArgumentError(
                    f"{name} must have shape {right} for these slots; got {tuple(rows.shape)}",
                    shape=tuple(rows.shape),
                )
            if not rows.is_floating_point():
                raise InvalidArgumentError(
                    f"{name} must be floating point; got {rows.dtype}", dtype=str(rows.dtype)
                )

    def _check_range(self, index: Tensor, name: str) -> None:
        low, high = self.page_size, self.num_slots + self.page_size - 1
        bad = ((index < low) | (index > high)).nonzero()
        if len(bad):
            at = int(bad[0])
            raise InvalidSlotsError(
                f"{name}[{at}] must be from {low} to {high}; got {int(index[at])}",
                index=at,
                slot=int(index[at]),
            )

    def _converted(self, rows: Tensor) -> Tensor:
        if self.dtype == torch.float8_e4m3fn != rows.dtype:
            # Whether the conversion saturates or gives NaN depends on the release of torch.
            largest = torch.finfo(self.dtype).max
            rows = rows.clamp(-largest, largest)
        return rows.to(self.device, self.dtype)

    def _layer(self, layer: int) -> int:
        if not 0 <= layer < self.num_layers:
            raise InvalidArgumentError(
                f"layer must be from 0 to {self.num_layers - 1}; got {layer}", layer=layer
            )
        return layer


def as_kv_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """The torch dtype of a name in KV_DTYPES, or `dtype` itself if K and V can have it."""
    known = KV_DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if known is None or known not in KV_DTYPES.values():
        raise InvalidArgumentError(
            f"dtype must be one of {', '.join(KV_DTYPES)}; got {dtype}", dtype=str(dtype)
        )
    return known


def _are_apart(source: Any, target: Any) -> bool:
    """Whether the host knows that no slot is in both."""
    on_host = not any(isinstance(slots, Tensor) and slots.is_cuda for slots in (source, target))
    return on_host and not np.isin(source, target).any()


def _copied(slots: Any, name: str) -> Tensor:
    # Copied because the rows that slots come from change while a device may still read them.
    try:
        copy = np.array(slots)
        return torch.from_numpy(copy if copy.size else copy.astype(np.int64))
    except (TypeError, ValueError):
        raise InvalidSlotsError(
            f"{name} must be an array or tensor of int32 or int64; got {type(slots).__name__}"
        ) from None
