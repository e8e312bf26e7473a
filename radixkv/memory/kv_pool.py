"""The tensors that slots point into: K and V, or the latents that models make them of."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

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
    """What kernels are chosen by, of a pool: see `TokenToKVPool`."""

    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def v_head_dim(self) -> int: ...
    @property
    def is_latent(self) -> bool: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def page_size(self) -> int: ...


class TokenToKVPool(ABC):
    """What attention keeps of the token in every slot, in every layer.

    Page 0 is padding: tokens live in slots page_size to num_slots + page_size - 1.
    kv_heads, head_dim, v_head_dim: of the keys and values that queries see. dtype: a torch dtype or
    its name, one of KV_DTYPES.
    part_names: of the two arrays that are written of each token, see `parts`. is_latent: whether
    values are the beginnings of keys.
    """

    kv_heads: int
    head_dim: int
    v_head_dim: int
    part_names: ClassVar[tuple[str, str]]
    is_latent: ClassVar[bool] = False

    def __init__(
        self,
        num_slots: int,
        num_layers: int,
        planes: int,
        dtype: torch.dtype | str,
        device: torch.device | str,
        page_size: int,
    ) -> None:
        check_pool_shape(num_slots, page_size)
        self.num_slots, self.page_size = num_slots, page_size
        self.num_layers = at_least(1, num_layers=num_layers)
        self.dtype = as_kv_dtype(dtype)
        # Zeros, for a kernel may read the padding page and must find finite numbers there.
        shape = (planes, num_layers, num_slots + page_size, self.kv_heads, self.head_dim)
        self._kv = torch.zeros(shape, dtype=self.dtype, device=device)
        self.device = self._kv.device

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one token takes in all layers."""
        return self._kv[:, :, 0].numel() * self.dtype.itemsize

    @abstractmethod
    def k(self, layer: int) -> Tensor:
        """Keys of one layer, a view: [num_slots + page_size, kv_heads, head_dim]."""

    @abstractmethod
    def v(self, layer: int) -> Tensor:
        """Values of one layer, a view: [num_slots + page_size, kv_heads, v_head_dim]."""

    @abstractmethod
    def parts(self, layer: int) -> tuple[Tensor, Tensor]:
        """Where `write` puts the arrays of `part_names`: views, [num_slots + page_size, ...]."""

    def write(self, layer: int, slots: Any, k: Tensor, v: Tensor) -> None:
        """Store the two parts of n tokens at `slots`, converted to the pool's dtype.

        slots: (n,) int32 or int64, an array or a tensor. k, v: one row a token, see `parts`.
        fp8 saturates at the largest value. Nothing is written on an error.
        The range of slots is checked where they lie on the host: reading them back from a GPU
        would stall it once a layer, so check device slots once, before they are sent there.
        """
        index = self.as_index(slots)
        self.check_rows(k, v, len(index))
        for part, rows in zip(self.parts(layer), (k, v), strict=True):
            part[index] = self._converted(rows)

    def copy(self, source: Any, target: Any) -> None:
        """Copy what all layers keep from the slots `source` to the slots `target`, one to one.

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
        """Raises InvalidArgumentError unless such parts of `num_tokens` tokens can be written."""
        for name, part, rows in zip(self.part_names, self.parts(0), (k, v), strict=True):
            right = (num_tokens, *part.shape[1:])
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


class MHATokenToKVPool(TokenToKVPool):
    """K and V of every head, for multi-head and grouped-query attention."""

    part_names = "k", "v"

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
        self.kv_heads = at_least(1, kv_heads=kv_heads)
        self.head_dim = self.v_head_dim = at_least(1, head_dim=head_dim)
        super().__init__(num_slots, num_layers, 2, dtype, device, page_size)

    def k(self, layer: int) -> Tensor:
        return self._kv[0, self._layer(layer)]

    def v(self, layer: int) -> Tensor:
        return self._kv[1, self._layer(layer)]

    def parts(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.k(layer), self.v(layer)


class MLATokenToKVPool(TokenToKVPool):
    """One row a token for all heads, for multi-head latent attention (DeepSeek's MLA).

        [ latent: kv_lora_rank | rotary key: qk_rope_head_dim ]
          <------ value ------>
          <------------------- key ------------------------->

    Queries see one KV head, whose values are the first kv_lora_rank numbers of its keys: the query
    of a head is its own, multiplied by the matrix that would make its keys of latents, and the
    output is still to be multiplied by the one that makes values ("absorbed").
    """

    part_names = "latent", "rope"
    is_latent = True

    def __init__(
        self,
        num_slots: int,
        num_layers: int,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        dtype: torch.dtype | str,
        device: torch.device | str = "cpu",
        *,
        page_size: int = 1,
    ) -> None:
        self.kv_heads = 1
        self.v_head_dim = at_least(1, kv_lora_rank=kv_lora_rank)
        self.head_dim = kv_lora_rank + at_least(1, qk_rope_head_dim=qk_rope_head_dim)
        super().__init__(num_slots, num_layers, 1, dtype, device, page_size)

    def k(self, layer: int) -> Tensor:
        return self._kv[0, self._layer(layer)]

    def v(self, layer: int) -> Tensor:
        return self.k(layer)[..., : self.v_head_dim]

    def parts(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.v(layer), self.k(layer)[..., self.v_head_dim :]


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
