"""What the host knows of the rows of SGLang's `req_to_token`.

SGLang never reads its slots on the host. To plan a step, which requests share slots must be known
there, so rows are copied to the host as requests appear. The copies are enqueued; a plan takes what
has arrived, and what it does not know it takes as not shared.

    row    [ slots, as they arrived | UNKNOWN, another number in each row ]
            0                      known                              length

A copy must stay true while its request runs. What a request found cached is locked, so that is
copied as its prompt is computed. The rest is stored in the cache then, and slots of it may be
replaced by those that the cache has already: with overlap, when the first decode step is under way.
It is copied a few steps later; from there on no slot of a row is replaced.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.pages import round_down

RowVersion: TypeAlias = tuple[str, int, int]

# Below every slot: one number for each row that the host holds.
UNKNOWN = -1
# Decode steps of a request before its whole row is copied.
SETTLED = 3
LEAST = 256


class Arriving(NamedTuple):
    """A copy under way of several rows. ready: None where it need not be waited for."""

    slots: Tensor
    ready: "torch.cuda.Event | None"

    @property
    def is_here(self) -> bool:
        return self.ready is None or bool(self.ready.query())  # type: ignore[no-untyped-call]


class Row:
    """One request's row. number: of the row among all that ever were. steps: decode steps that it
    was in. length: in the last of them."""

    def __init__(self, number: int) -> None:
        self.number, self.known, self.steps, self.length = number, 0, 0, 0
        self.slots = np.zeros(0, np.int32)
        self.arriving: tuple[Arriving, int, int] | None = None

    def is_followed_by(self, length: int) -> bool:
        """Whether its request can have a row of so many slots in the next step."""
        return not self.steps or length == self.length + 1

    def expect(self, arriving: Arriving, at: int, count: int) -> None:
        """Its first `count` slots are row `at` of a copy."""
        self.arriving = arriving, at, count

    def take(self) -> None:
        """What has arrived."""
        if self.arriving is None or not self.arriving[0].is_here:
            return
        (copied, _), at, count = self.arriving
        self.arriving = None
        if count > self.known:
            self._reach(count)
            self.slots[:count] = copied[at, :count].numpy()
            self.known = count

    def first(self, length: int) -> Int32Array:
        """(length,) int32."""
        self._reach(length)
        return self.slots[:length]

    def _reach(self, length: int) -> None:
        if length > len(self.slots):
            unknown = UNKNOWN - self.number % 2**30
            grown = np.full(max(LEAST, 1 << length.bit_length()), unknown, np.int32)
            grown[: self.known] = self.slots[: self.known]
            self.slots = grown


class HostRows:
    """The rows of the requests that run, by their `rid`.

    req_to_token: (rows, width) int32. page_size: of the KV pool.
    """

    def __init__(self, req_to_token: Tensor, page_size: int) -> None:
        self._req_to_token, self._page_size = req_to_token, page_size
        self._rows: dict[str, Row] = {}
        self._num_rows = 0

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, rids: Sequence[str], places: Tensor, prefix_lens: Sequence[int]) -> None:
        """A step computes prompts, or chunks of them.

        places: (requests,) int64 on the device, their rows. prefix_lens: tokens before the chunk;
        whole pages of them are locked. Both may have padding behind the requests'.
        """
        counts = [round_down(each, self._page_size) for each in prefix_lens[: len(rids)]]
        for rid in rids:
            self._rows.pop(rid, None)
            self._rows[rid] = self._new_row()
        self._forget()
        self._ask([*zip(rids, range(len(rids)), counts, strict=True)], places)

    def of(
        self, rids: Sequence[str], places: Tensor, lengths: Sequence[int]
    ) -> tuple[list[Int32Array], list[RowVersion]]:
        """The rows of a decode step, and a version of each, see `AttentionBatch`.

        lengths: with the new token.
        """
        wanted = []
        for at, (rid, length) in enumerate(zip(rids, lengths, strict=True)):
            row = self._rows.pop(rid, None)
            if row is None or not row.is_followed_by(length):
                row = self._new_row()
            self._rows[rid] = row  # at the end, so that it is the last to go
            row.take()
            row.steps, row.length = row.steps + 1, length
            if row.steps == SETTLED:
                wanted.append((rid, at, length - 1))
        self._ask(wanted, places)
        rows = [self._rows[rid] for rid in rids]
        versions = [(rid, row.number, row.known) for rid, row in zip(rids, rows, strict=True)]
        return [row.first(n) for row, n in zip(rows, lengths, strict=True)], versions

    def _new_row(self) -> Row:
        self._num_rows += 1
        return Row(self._num_rows)

    def _forget(self) -> None:
        # No more requests run than there are rows, and those that ended are the oldest.
        while len(self._rows) > len(self._req_to_token):
            del self._rows[next(iter(self._rows))]

    def _ask(self, wanted: Sequence[tuple[str, int, int]], places: Tensor) -> None:
        """Have the first slots of rows copied to the host: each (rid, its index in `places`,
        count)."""
        width = max((count for _, _, count in wanted), default=0)
        if not width:
            return
        # Neighbours, as those that join are as a rule, are a slice: an index would be sent first.
        first, last = wanted[0][1], wanted[-1][1]
        copied = self._copied(places[first : last + 1], width)
        for rid, at, count in wanted:
            if count:
                self._rows[rid].expect(copied, at - first, count)

    def _copied(self, places: Tensor, width: int) -> Arriving:
        slots = self._req_to_token[:, :width].index_select(0, places)
        if slots.device.type == "cpu":
            return Arriving(slots, None)
        here = torch.empty(slots.shape, dtype=slots.dtype, pin_memory=True)
        here.copy_(slots, non_blocking=True)
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()
        return Arriving(here, ready)
