"""The numbers that stand in the tree for SGLang's slots, so that nothing waits for the device.

SGLang keeps slots as device tensors: the host never learns them, and reading them would wait for
all that the stream still has to do. So the tree gets tickets, numbers that are handed out here, and
a table on the device says which slot each stands for. Both ways are enqueued:

    checkpoint      table[tickets] = row[known:n]
    match, evict    slots = table[tickets]

A ticket stands for one cached slot, so there are as many as slots. On a CPU slots are read where
they are, and stand in the tree themselves.
"""

from typing import Protocol

import numpy as np
import torch

from radixkv.arrays import Int32Array


class SlotNumbers(Protocol):
    """Not thread-safe. Slots are tensors on SGLang's device, numbers int32 arrays on the host."""

    def issue(self, slots: torch.Tensor) -> Int32Array:
        """A number for each of (n,) int32 slots; stands for nothing before `bind`. Copy it, for it
        may be a view."""

    def bind(self, numbers: Int32Array, slots: torch.Tensor, begin: int = 0) -> None:
        """From `begin` on `numbers`, which were issued for `slots`, stand for them from now on."""

    def slots(self, numbers: Int32Array) -> torch.Tensor:
        """(n,) int64, new: the slots that they stand for."""

    def give_back(self, numbers: Int32Array) -> None:
        """They stand for nothing any more."""

    def clear(self) -> None:
        """None stands for anything."""


def slot_numbers(num_slots: int, device: str | torch.device) -> SlotNumbers:
    """For slots that lie on `device`."""
    is_on_host = torch.device(device).type == "cpu"
    return (HostSlots if is_on_host else TicketTable)(num_slots, device)


class HostSlots:
    """Each slot is its own number."""

    def __init__(self, num_slots: int, device: str | torch.device) -> None:
        assert torch.device(device).type == "cpu", device

    def issue(self, slots: torch.Tensor) -> Int32Array:
        """See `SlotNumbers`."""
        numbers: Int32Array = slots.numpy()
        return numbers

    def bind(self, numbers: Int32Array, slots: torch.Tensor, begin: int = 0) -> None:
        """They stand for them already."""

    def slots(self, numbers: Int32Array) -> torch.Tensor:
        """See `SlotNumbers`."""
        return torch.from_numpy(numbers.astype(np.int64))

    def give_back(self, numbers: Int32Array) -> None:
        """Nothing is kept of them."""

    def clear(self) -> None:
        """Nothing is kept."""


class TicketTable:
    """`num_slots` tickets. Its calls are enqueued on the current stream, as SGLang's own cache does
    it; none waits."""

    def __init__(self, num_slots: int, device: str | torch.device) -> None:
        self._table = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self.clear()

    def clear(self) -> None:
        """All tickets are free again."""
        self._free = np.arange(len(self._table), dtype=np.int32)
        self.free_size = len(self._free)

    def issue(self, slots: torch.Tensor) -> Int32Array:
        """See `SlotNumbers`. What is issued stands for slots that are allocated and not cached, so
        there is a ticket for each."""
        assert len(slots) <= self.free_size, (len(slots), self.free_size)
        self.free_size -= len(slots)
        return self._free[self.free_size : self.free_size + len(slots)].copy()

    def bind(self, numbers: Int32Array, slots: torch.Tensor, begin: int = 0) -> None:
        """See `SlotNumbers`."""
        if begin < len(numbers):
            places = self._upload(numbers[begin:].astype(np.int64))
            self._table.index_copy_(0, places, slots[begin:])

    def slots(self, numbers: Int32Array) -> torch.Tensor:
        """See `SlotNumbers`."""
        return self._table.index_select(0, self._upload(numbers)).to(torch.int64)

    def give_back(self, numbers: Int32Array) -> None:
        """See `SlotNumbers`."""
        self._free[self.free_size : self.free_size + len(numbers)] = numbers
        self.free_size += len(numbers)

    def _upload(self, numbers: np.ndarray) -> torch.Tensor:
        pageable = torch.from_numpy(numbers)
        if self._table.device.type == "cpu":  # to test and measure it without a device
            return pageable
        # From pinned memory, because a copy from pageable memory may wait for the stream.
        return pageable.pin_memory().to(self._table.device, non_blocking=True)
