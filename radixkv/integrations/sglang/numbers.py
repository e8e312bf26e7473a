"""The numbers that stand in the tree for SGLang's slots, so that nothing waits for the device.

SGLang keeps slots as device tensors: the host never learns them, and reading them would wait for
all that the stream still has to do. So the tree gets tickets, numbers that are handed out here, and
a table on the device says which slot each stands for. Both ways are enqueued:

    checkpoint      table[tickets] = row[known:n]
    path, evict     slots = table[tickets]

A ticket stands for one cached slot. There are twice as many as slots, so that most tokens that are
stored together get tickets that follow one another: these are slices of the table, and no list of
tickets goes to the device. That is 16 bytes a slot. On a CPU slots are read where they are, and
stand in the tree themselves.
"""

from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from radixkv.arrays import Int32Array, Int64Array
from radixkv.tree import Handle, InsertResult, Namespace, RadixTree
from radixkv.tree.factory import new_tickets
from radixkv.tree.radix_tree import InsertFromResult

Inserted: TypeAlias = InsertResult | InsertFromResult

# A path of so many rows takes the host as long as one list of tickets: on an H200 a list takes
# 25 us to send, each slice 1.6.
MOST_ROWS = 10


class SlotNumbers(Protocol):
    """What stands for slots in one tree. Not thread-safe. Slots are tensors on SGLang's device,
    numbers arrays on the host."""

    def insert(
        self,
        path: Any,
        row: torch.Tensor,
        namespace: Namespace,
        after: Handle | None,
        priority: int,
        chunked: bool,
    ) -> Inserted:
        """`RadixTree.insert` with numbers that stand for the slots of `row`.

        row: (n,) int32, those of the tokens behind `after`.
        """

    def path_slots(self, handle: Handle) -> torch.Tensor:
        """(handle.length,) int64, new: the slots of a handle's tokens."""

    def slots(self, numbers: Int32Array | Int64Array) -> torch.Tensor:
        """(n,) int64: the slots that they stand for. May share memory with `numbers`."""

    def evict(self, num_tokens: int) -> torch.Tensor:
        """`RadixTree.evict`: (n,) int64, the slots that became free."""

    def evict_beyond_caps(self) -> torch.Tensor:
        """`RadixTree.evict_beyond_caps`: (n,) int64, the slots that became free."""

    def clear(self) -> None:
        """The tree was reset: no number stands for anything."""


def slot_numbers(tree: RadixTree, num_slots: int, device: str | torch.device) -> SlotNumbers:
    """For a tree of slots that lie on `device`."""
    is_on_host = torch.device(device).type == "cpu"
    return (HostSlots if is_on_host else TicketTable)(tree, num_slots, device)


class HostSlots:
    """Each slot is its own number."""

    def __init__(self, tree: RadixTree, num_slots: int, device: str | torch.device) -> None:
        assert torch.device(device).type == "cpu", device
        self._tree = tree

    def insert(
        self,
        path: Any,
        row: torch.Tensor,
        namespace: Namespace,
        after: Handle | None,
        priority: int,
        chunked: bool,
    ) -> InsertResult:
        """See `SlotNumbers`."""
        return self._tree.insert(
            path, row.numpy(), namespace, priority=priority, chunked=chunked, after=after
        )

    def path_slots(self, handle: Handle) -> torch.Tensor:
        """See `SlotNumbers`."""
        return torch.from_numpy(self._tree.path_slots(handle))

    def slots(self, numbers: Int32Array | Int64Array) -> torch.Tensor:
        """See `SlotNumbers`."""
        return torch.from_numpy(numbers.astype(np.int64, copy=False))

    def evict(self, num_tokens: int) -> torch.Tensor:
        """See `SlotNumbers`."""
        return self.slots(self._tree.evict(num_tokens))

    def evict_beyond_caps(self) -> torch.Tensor:
        """See `SlotNumbers`."""
        return self.slots(self._tree.evict_beyond_caps())

    def clear(self) -> None:
        """Nothing is kept."""


class TicketTable:
    """Tickets, and a table of the slots that they stand for. Its calls are enqueued on the current
    stream, as SGLang's own cache does it; none waits.

    What becomes cached stands for slots that are allocated and were not cached, so there is always
    a ticket for each.
    """

    def __init__(self, tree: RadixTree, num_slots: int, device: str | torch.device) -> None:
        self._tree = tree
        self._table = torch.zeros(2 * num_slots, dtype=torch.int64, device=device)
        self.clear()

    def clear(self) -> None:
        """All tickets are free again."""
        self._tickets = new_tickets(len(self._table), self._tree.core)

    def insert(
        self,
        path: Any,
        row: torch.Tensor,
        namespace: Namespace,
        after: Handle | None,
        priority: int,
        chunked: bool,
    ) -> InsertFromResult:
        """See `SlotNumbers`."""
        stored = self._tree.insert_from(
            path, self._tickets, namespace, priority=priority, chunked=chunked, after=after
        )
        taken, known = stored.taken, 0 if after is None else after.length
        new = row[stored.prefix_length - known :] if stored.prefix_length > known else row
        if not isinstance(taken, slice):
            self._table.index_copy_(0, self._upload(taken), new.to(torch.int64))
        elif len(new):
            self._table[taken] = new
        return stored

    def path_slots(self, handle: Handle) -> torch.Tensor:
        """See `SlotNumbers`."""
        rows = self._tree.path_slices(handle, MOST_ROWS)
        return self._read(self._tree.path_slots(handle) if rows is None else rows)

    def slots(self, numbers: Int32Array | Int64Array) -> torch.Tensor:
        """See `SlotNumbers`."""
        return self._table.index_select(0, self._upload(numbers))

    def evict(self, num_tokens: int) -> torch.Tensor:
        """See `SlotNumbers`."""
        return self._read(self._tree.evict_to(self._tickets, num_tokens, MOST_ROWS))

    def evict_beyond_caps(self) -> torch.Tensor:
        """See `SlotNumbers`."""
        evicted = self._tree.evict_beyond_caps()
        slots = self.slots(evicted)
        self._tickets.free(evicted)
        return slots

    def _read(self, tickets: list[slice] | Int64Array) -> torch.Tensor:
        if isinstance(tickets, list):
            return torch.cat([self._table[row] for row in tickets or [slice(0)]])
        return self.slots(tickets)

    def _upload(self, numbers: Int32Array | Int64Array) -> torch.Tensor:
        pageable = torch.from_numpy(numbers)
        if self._table.device.type == "cpu":  # to test and measure it without a device
            return pageable
        # From pinned memory, because a copy from pageable memory may wait for the stream.
        return pageable.pin_memory().to(self._table.device, non_blocking=True)
