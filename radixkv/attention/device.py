"""What the backends that run kernels of their own have in common: a step's arrays on the device."""

import math
from collections.abc import Hashable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from radixkv.attention.base import AttentionBackend, AttentionBatch
from radixkv.attention.device_table import DeviceTable, Int32Array, grown
from radixkv.errors import InvalidArgumentError
from radixkv.kernels.gpu.store import write_kv
from radixkv.memory.kv_pool import MHATokenToKVPool


class DeviceArrays:
    """Named int32 arrays on a device that are brought there together, in one copy.

    Each keeps its place while it fits, so that captured graphs find it; `generation` counts moves.
    """

    def __init__(self, device: torch.device) -> None:
        self.generation = 0
        self._device = device
        self._places: dict[str, slice] = {}
        self._buffer = torch.zeros(0, dtype=torch.int32, device=device)

    def put(self, **arrays: Int32Array) -> None:
        """Replace the arrays of these names, flattened. Always the same names."""
        if any(array.size > _size(self._places.get(name)) for name, array in arrays.items()):
            self._make_room(arrays)
        staging = torch.zeros(len(self._buffer), dtype=torch.int32, pin_memory=self._buffer.is_cuda)
        host = staging.numpy()
        for name, array in arrays.items():
            start = self._places[name].start
            host[start : start + array.size] = array.reshape(-1)
        self._buffer.copy_(staging, non_blocking=True)

    def __getitem__(self, name: str) -> Tensor:
        """The place of an array, which may be longer than it."""
        return self._buffer[self._places[name]]

    def _make_room(self, arrays: dict[str, Int32Array]) -> None:
        start = 0
        for name, array in arrays.items():
            size = max(_size(self._places.get(name)), 4, 1 << (array.size - 1).bit_length())
            self._places[name] = slice(start, start + size)
            start += size
        self._buffer = torch.zeros(start, dtype=torch.int32, device=self._device)
        self.generation += 1


def _size(place: slice | None) -> int:
    return place.stop - place.start if place else 0


class DeviceStep:
    """A planned step on the device.

    requests, tokens: of the batch, padding included. max_query, max_context: the longest.
    table: (requests, width) int32 pages. lengths: (requests,) int32, contexts with the new tokens.
    starts: (requests + 1,) int32, where each request's tokens begin. slots: (tokens,) int32.
    host_lengths, host_query_lens: (requests,) int32.
    """

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self.pool = pool
        self._table = DeviceTable(pool)
        self._arrays = DeviceArrays(pool.device)
        self.requests = self.tokens = self.max_query = self.max_context = 0
        self.host_lengths = self.host_query_lens = np.zeros(0, np.int32)

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room from the start, so that no captured graph is lost to a move."""
        self._table.reserve(requests, context_len)

    def update(self, batch: AttentionBatch, pad_to: int | None) -> None:
        """Bring `batch` to the device, as a batch of `pad_to` requests if that is given."""
        padding = max(0, (pad_to or 0) - len(batch.rows))
        self.requests, self.tokens = len(batch.rows) + padding, batch.num_tokens + padding
        self._table.update(batch, padding)
        # Padding is a token in slot 0 that sees itself.
        lengths = np.pad(batch.context_lens, (0, padding), constant_values=1)
        query_lens = np.array([*batch.query_lens] + [1] * padding, np.int32)
        slots = np.concatenate([batch.out_cache_loc, np.zeros(padding, np.int32)])
        starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
        self._arrays.put(lengths=lengths, starts=starts, slots=slots)
        self.host_lengths, self.host_query_lens = lengths, query_lens
        self.max_query, self.max_context = int(query_lens.max()), int(lengths.max())

    @property
    def table(self) -> Tensor:
        # The width shapes how kernels split; by powers of two, so that few graphs cover all.
        pages = -(-grown(256, self.max_context) // self.pool.page_size)
        return self._table.pages[: self.requests, :pages]

    @property
    def lengths(self) -> Tensor:
        return self._arrays["lengths"][: self.requests]

    @property
    def starts(self) -> Tensor:
        return self._arrays["starts"][: self.requests + 1]

    @property
    def slots(self) -> Tensor:
        return self._arrays["slots"][: self.tokens]

    @property
    def key(self) -> Hashable:
        """What a captured graph depends on, beside the contents of these arrays."""
        table = self.table
        return (
            self.requests,
            self.tokens,
            self.max_query,
            table.shape[1],
            table.stride(0),
            table.data_ptr(),
            self._arrays.generation,
        )


class DeviceAttention(AttentionBackend):
    """A backend whose plan lies on the device, where a captured CUDA graph finds it.

    Capture `write` and `run` of all layers after a `plan`, keep the graph under `graph_key`, and
    replay it after every later plan that gives the same key. Give each graph a memory pool of its
    own (`torch.cuda.graph(graph)` does): what kernels take for themselves must not shrink because a
    smaller batch was captured later. `pad_to` lets one graph serve all batches up to a size.
    """

    captures: ClassVar[bool] = True

    def __init__(
        self, pool: MHATokenToKVPool, *, k_scale: float = 1.0, v_scale: float = 1.0
    ) -> None:
        super().__init__(pool)
        self.step = DeviceStep(pool)
        self.k_scale = _checked_scale("k_scale", k_scale, pool)
        self.v_scale = _checked_scale("v_scale", v_scale, pool)

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room for so many requests of such contexts, so that graphs stay valid."""
        self.step.reserve(requests, context_len)

    @property
    def graph_key(self) -> Hashable:
        """Equal keys of two plans: what was captured under one serves the other."""
        return self.step.key

    def plan(self, batch: AttentionBatch, *, pad_to: int | None = None) -> None:
        """As `AttentionBackend.plan`; `pad_to` adds requests whose results mean nothing.

        Waits for no device. Cost on the host: O(slots) of what the device does not have yet,
        O(requests) of what it has.
        """
        self.batch = None
        self.step.update(batch, pad_to)
        self.prepare(batch)
        self.batch = batch

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self._planned()
        self.pool.check_rows(k, v, self.step.tokens)
        write_kv(
            self.pool.k(layer), self.pool.v(layer), self.step.slots, k, v,
            k_scale=self.k_scale, v_scale=self.v_scale,
        )  # fmt: skip

    def prepare(self, batch: AttentionBatch) -> None:
        """The rest of `plan`, once `step` is up to date."""

    def _expected_tokens(self) -> int:
        return self.step.tokens


def _checked_scale(name: str, scale: float, pool: MHATokenToKVPool) -> float:
    if not 0 < scale < math.inf:
        raise InvalidArgumentError(f"{name} is {scale}; it takes a positive number", scale=scale)
    if scale != 1 and pool.dtype != torch.float8_e4m3fn:
        raise InvalidArgumentError(
            f"{name} is {scale}; a pool of {pool.dtype} takes none, one of fp8_e4m3 does",
            scale=scale,
        )
    return scale
