"""The rows of a batch on a device, kept up from step to step."""

from collections.abc import Hashable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.attention.base import AttentionBatch
from radixkv.errors import InvalidSlotsError
from radixkv.kernels.gpu.store import write_rows
from radixkv.memory.kv_pool import MHATokenToKVPool
from radixkv.pages import ceil_div


class DeviceTable:
    """The rows of a batch on the device, as pages: `pages[i]` is row i of the last `load`.

    pages: (requests, width) int32. It moves only when `reserve` asks for more. A row that has moved
    in the batch, as all do when one before them ends, is copied and not sent again.
    """

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self._pool = pool
        self.pages = torch.zeros((0, 0), dtype=torch.int32, device=pool.device)
        self._versions: list[Hashable] = []
        self._lengths = np.zeros(0, np.int32)

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room for so many rows of so many slots; what it has is sent anew after a move."""
        have_rows, have_width = self.pages.shape
        width = ceil_div(context_len, self._pool.page_size)
        if requests <= have_rows and width <= have_width:
            return
        rows, width = grown(have_rows, requests), grown(have_width, width)
        self.pages = torch.zeros((rows, width), dtype=torch.int32, device=self._pool.device)
        self._forget()

    def load(self, batch: AttentionBatch, padding: int = 0) -> None:
        """Send what is new in the batch's rows, in one copy and one launch.

        padding: rows after them, of page 0. Raises InvalidSlotsError.
        """
        # K and V are written there; of the others only the first of each page is read.
        self._check(batch.out_cache_loc)
        self.reserve(len(batch.kv_indices) + padding, int(batch.context_lens.max()))
        known = self._settle(batch.versions, batch.context_lens)
        # Until it is done, nothing on the device may be relied on.
        self._forget()
        self._send(batch, known, padding)
        if batch.versions:
            self._versions, self._lengths = batch.versions, batch.context_lens

    def _forget(self) -> None:
        self._versions, self._lengths = [], np.zeros(0, np.int32)

    def _settle(self, versions: list[Hashable], lengths: Int32Array) -> Int32Array:
        """How many leading slots of each row the device has, where the batch has the row."""
        are_same = versions and versions == self._versions and None not in versions
        if are_same and (self._lengths <= lengths).all():
            return self._lengths
        places = {version: at for at, version in enumerate(self._versions) if version is not None}
        known, moves = np.zeros_like(lengths), []
        for at, version in enumerate(versions):
            place = places.get(version, -1)
            if place >= 0 and self._lengths[place] <= lengths[at]:
                known[at] = self._lengths[place]
                if place != at:
                    moves.append((place, at))
        if moves:
            self._move(np.array(moves), known)
        return known

    def _move(self, moves: NDArray[np.int64], known: Int32Array) -> None:
        """Copy rows, each (from, to), as wide as the longest known one; cheaper than sending."""
        here = self._sent(moves.T)
        pages = ceil_div(int(known[moves[:, 1]].max()), self._pool.page_size)
        self.pages[here[1], :pages] = self.pages[here[0], :pages]

    def _send(self, batch: AttentionBatch, known: Int32Array, padding: int) -> None:
        size = self._pool.page_size
        # A page that a slot was added to is there already.
        have, want = (ceil_div(n, size) for n in (known, batch.context_lens))
        entries = [
            row[first * size :: size]
            for row, first in zip(batch.kv_indices, have.tolist(), strict=True)
        ]
        slots = np.concatenate(entries)
        self._check(slots)
        have, counts = np.pad(have, (0, padding)), np.pad(want - have, (0, padding))
        counts[len(batch.kv_indices) :] = 1
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
                "kv_indices must be int32 arrays of one dimension; "
                f"got {slots.dtype} in {slots.ndim}",
                dtype=str(slots.dtype),
            )
        low, high = self._pool.page_size, self._pool.num_slots + self._pool.page_size - 1
        if not slots.size or (low <= slots.min() and slots.max() <= high):
            return
        slot = int(slots[((slots < low) | (slots > high)).argmax()])
        raise InvalidSlotsError(
            f"kv_indices must be slots {low} to {high} of this pool; got {slot}", slot=slot
        )


def grown(have: int, want: int) -> int:
    return max(have, 1 << (want - 1).bit_length())
