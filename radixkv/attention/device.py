"""What the backends that run kernels of their own have in common: a step's arrays on the device."""

import math
from collections.abc import Hashable
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixkv.attention.base import AttentionBackend, AttentionBatch
from radixkv.errors import InvalidArgumentError, InvalidSlotsError
from radixkv.kernels.gpu.store import write_kv, write_rows
from radixkv.memory.kv_pool import MHATokenToKVPool

Int32Array = NDArray[np.int32]


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


class DeviceTable:
    """The rows of a batch on the device, as pages: `pages[i]` is row i of the last `update`.

    pages: (requests, width) int32. It moves only when `reserve` asks for more. A row that has moved
    in the batch, as all do when one before them ends, is copied and not sent again.
    """

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self._pool = pool
        self.pages = torch.zeros((0, 0), dtype=torch.int32, device=pool.device)
        self._names: list[Hashable] = []
        self._lengths = np.zeros(0, np.int32)

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room for so many rows of so many slots; what it has is sent anew after a move."""
        have_rows, have_width = self.pages.shape
        width = -(-context_len // self._pool.page_size)
        if requests <= have_rows and width <= have_width:
            return
        rows, width = _grown(have_rows, requests), _grown(have_width, width)
        self.pages = torch.zeros((rows, width), dtype=torch.int32, device=self._pool.device)
        self._forget()

    def update(self, batch: AttentionBatch, padding: int = 0) -> None:
        """Send what is new in the batch's rows, in one copy and one launch.

        padding: rows after them that name page 0. Raises InvalidSlotsError.
        """
        # K and V are written there; of the others only the first of each page is read.
        self._check(batch.out_cache_loc)
        self.reserve(len(batch.rows) + padding, int(batch.context_lens.max()))
        names = list(batch.names or [])
        known = self._settle(names, batch.context_lens)
        # Until it is done, nothing on the device is to be relied on.
        self._forget()
        self._send(batch, known, padding)
        if names:
            self._names, self._lengths = names, batch.context_lens

    def _forget(self) -> None:
        self._names, self._lengths = [], np.zeros(0, np.int32)

    def _settle(self, names: list[Hashable], lengths: Int32Array) -> Int32Array:
        """How many leading slots of each row the device has, where the batch has the row."""
        if names and names == self._names and (self._lengths <= lengths).all():
            return self._lengths
        places = {name: at for at, name in enumerate(self._names) if name is not None}
        known, moves = np.zeros_like(lengths), []
        for at, name in enumerate(names):
            place = places.get(name, -1)
            if place >= 0 and self._lengths[place] <= lengths[at]:
                known[at] = self._lengths[place]
                if place != at:
                    moves.append((place, at))
        if moves:
            self._move(np.array(moves), int(known.max()))
        return known

    def _move(self, moves: NDArray[np.int64], slots: int) -> None:
        """Copy the first `slots` of rows, each (from, to); cheaper than to send them again."""
        here = self._sent(moves.T)
        pages = -(-slots // self._pool.page_size)
        self.pages[here[1], :pages] = self.pages[here[0], :pages]

    def _send(self, batch: AttentionBatch, known: Int32Array, padding: int) -> None:
        size = self._pool.page_size
        # A page that a slot was added to is there already.
        have, want = (-(-n // size) for n in (known, batch.context_lens))
        entries = [
            row[first * size :: size] for row, first in zip(batch.rows, have.tolist(), strict=True)
        ]
        slots = np.concatenate(entries)
        self._check(slots)
        have, counts = np.pad(have, (0, padding)), np.pad(want - have, (0, padding))
        counts[len(batch.rows) :] = 1
        slots = np.pad(slots, (0, padding))
        sources = np.cumsum(counts) - counts
        pieces = np.stack([np.arange(len(counts)), have, counts, sources], 1)
        n = int((counts > 0).sum())
        if n:
            sent = np.concatenate([pieces[counts > 0].reshape(-1), slots // size])
            here = self._sent(sent.astype(np.int32))
            write_rows(self.pages, here[: 4 * n].view(n, 4), here[4 * n :], int(counts.max()))

    def _sent(self, array: NDArray[np.generic]) -> Tensor:
        staging = torch.from_numpy(np.ascontiguousarray(array))
        if not self.pages.is_cuda:
            return staging
        return staging.pin_memory().to(self._pool.device, non_blocking=True)

    def _check(self, slots: Int32Array) -> None:
        if slots.ndim != 1 or slots.dtype not in (np.int32, np.int64):
            raise InvalidSlotsError(
                f"rows have dtype {slots.dtype} in {slots.ndim} dimensions; they take int32 in one",
                dtype=str(slots.dtype),
            )
        low, high = self._pool.page_size, self._pool.num_slots + self._pool.page_size - 1
        if not slots.size or (low <= slots.min() and slots.max() <= high):
            return
        slot = int(slots[((slots < low) | (slots > high)).argmax()])
        raise InvalidSlotsError(
            f"rows has the slot {slot}; this pool's slots are {low} to {high}", slot=slot
        )


def _grown(have: int, want: int) -> int:
    return max(have, 1 << (want - 1).bit_length())


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
        pages = -(-_grown(256, self.max_context) // self.pool.page_size)
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
        """As `AttentionBackend.plan`; `pad_to` adds requests whose results mean nothing."""
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
