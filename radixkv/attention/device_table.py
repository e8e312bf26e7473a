"""The rows of a batch on a device, kept up from step to step."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.attention.base import AttentionBatch
from radixkv.attention.device_arrays import staging
from radixkv.errors import InvalidSlotsError
from radixkv.kernels.gpu.store import move_rows, write_rows
from radixkv.memory.kv_pool import TokenToKVPool
from radixkv.pages import ceil_div


class DeviceTable:
    """The rows of a batch on the device, as pages: `pages[i]` is row i of the last `load`.

    pages: (requests, width) int32. It moves only when `reserve` asks for more. A row that has moved
    in the batch, as all do when one before them ends, is copied and not sent again.
    """

    def __init__(self, pool: TokenToKVPool) -> None:
        self._pool = pool
        self.pages = torch.zeros((0, 0), dtype=torch.int32, device=pool.device)
        self._versions: list[Hashable] = []
        self._lengths = np.zeros(0, np.int32)

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room for so many rows of so many slots; all is sent again after a move."""
        have_rows, have_width = self.pages.shape
        width = ceil_div(context_len, self._pool.page_size)
        if requests <= have_rows and width <= have_width:
            return
        rows, width = grown(have_rows, requests), grown(have_width, width)
        self.pages = torch.zeros((rows, width), dtype=torch.int32, device=self._pool.device)
        self._forget()

    def load(self, batch: AttentionBatch, padding: int = 0) -> None:
        """Send what is new in the batch's rows, in one copy.

        padding: rows after them, of page 0. Raises InvalidSlotsError.
        """
        # K and V are written there; of the others only the first of each page is read.
        self._check(batch.out_cache_loc)
        self.reserve(len(batch.rows) + padding, int(batch.context_lens.max()))
        known, moves = self._settle(batch.versions, batch.context_lens)
        # Until it is done, nothing on the device may be relied on.
        self._forget()
        self._send(batch, known, moves, padding)
        if batch.versions:
            self._versions, self._lengths = batch.versions, batch.context_lens

    def _forget(self) -> None:
        self._versions = []
        self._lengths = np.zeros(0, np.int32)

    def _settle(
        self, versions: list[Hashable], lengths: Int32Array
    ) -> tuple[Int32Array, NDArray[np.int64]]:
        """How many leading slots of each row the device has, and the rows of which it has any that
        move: (n, 2), each (from, to)."""
        if versions and versions == self._versions and None not in versions:
            known = np.where(self._lengths <= lengths, self._lengths, 0).astype(np.int32)
            return known, np.zeros((0, 2), np.int64)
        places = {version: at for at, version in enumerate(self._versions)}
        places.pop(None, None)
        found = np.array([places.get(version, -1) for version in versions], np.int64)
        if not len(found) or not len(self._lengths):
            return np.zeros_like(lengths), np.zeros((0, 2), np.int64)
        known = np.where(found >= 0, self._lengths[found], 0)
        known[known > lengths] = 0
        moved = ((known > 0) & (found != np.arange(len(found)))).nonzero()[0]
        return known.astype(np.int32), np.stack([found[moved], moved], 1)

    def _send(
        self, batch: AttentionBatch, known: Int32Array, moves: NDArray[np.int64], padding: int
    ) -> None:
        """In one copy: moves, pieces of rows (see `write_rows`), and the pages of the pieces."""
        size, num_rows = self._pool.page_size, len(batch.rows)
        # A page that a slot was added to is there already.
        have, counts = np.zeros(num_rows + padding, np.int32), np.ones(num_rows + padding, np.int32)
        have[:num_rows] = ceil_div(known, size)
        counts[:num_rows] = ceil_div(batch.context_lens, size) - have[:num_rows]
        new = counts.nonzero()[0]
        pieces = np.empty((len(new), 4), np.int32)
        pieces[:, 0], pieces[:, 1], pieces[:, 2] = new, have[new], counts[new]
        pieces[:, 3] = np.cumsum(counts[new]) - counts[new]
        at, total = moves.size + pieces.size, int(counts.sum())
        sent = staging(at + total, self._pool.device)
        host = sent.numpy()
        host[: moves.size], host[moves.size : at] = moves.reshape(-1), pieces.reshape(-1)
        first = have[:num_rows].tolist()
        entries = [row[begin * size :: size] for row, begin in zip(batch.rows, first, strict=True)]
        self._fill(host[at : at + total - padding], entries)
        host[at + total - padding :] = 0
        here = sent.to(self._pool.device, non_blocking=True)
        if len(moves):
            # Cheaper than to send them again.
            width = ceil_div(int(known[moves[:, 1]].max()), size)
            move_rows(self.pages, here[: moves.size].view(-1, 2), width)
        if len(new):
            write_rows(self.pages, here[moves.size : at].view(-1, 4), here[at:], int(counts.max()))

    def _fill(self, pages: Int32Array, entries: Sequence[NDArray[Any]]) -> None:
        """The pages of the slots `entries`, each the first of its page."""
        if all(entry.dtype == np.int32 and entry.ndim == 1 for entry in entries):
            # The one time that they are copied.
            np.concatenate(entries, out=pages)
            self._check(pages)
        else:
            slots = np.concatenate(entries)
            self._check(slots)
            pages[:] = slots
        if self._pool.page_size > 1:
            pages //= self._pool.page_size

    def _check(self, slots: NDArray[Any]) -> None:
        if slots.ndim != 1 or slots.dtype not in (np.int32, np.int64):
            raise InvalidSlotsError(
                f"rows must be int32 arrays of one dimension; got {slots.dtype} in {slots.ndim}",
                dtype=str(slots.dtype),
            )
        low, high = self._pool.page_size, self._pool.num_slots + self._pool.page_size - 1
        if not slots.size or (low <= slots.min() and slots.max() <= high):
            return
        slot = int(slots[((slots < low) | (slots > high)).argmax()])
        raise InvalidSlotsError(
            f"rows must be slots {low} to {high} of this pool; got {slot}", slot=slot
        )


def grown(have: int, want: int) -> int:
    """A size of at least `have` and `want`, the next power of two where it grows."""
    return max(have, 1 << (want - 1).bit_length())
