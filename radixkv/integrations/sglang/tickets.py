"""Numbers that stand in the tree in place of slots, so that nothing waits for the device.

SGLang keeps slots as device tensors: the host never learns them, and reading them would wait for
all that the stream still has to do. So the tree gets tickets, numbers that are handed out here, and
a table on the device says which slot each stands for. Both ways are enqueued:

    checkpoint      table[tickets] = row[known:n]
    match, evict    slots = table[tickets]

A ticket stands for one cached slot, so there are as many as slots.
"""

import numpy as np
import torch

from radixkv.tree.tokens import Int32Array


class TicketTable:
    """`num_slots` tickets and the slots that they stand for. Not thread-safe.

    device: where SGLang has its slots. Its calls are enqueued on the current stream, as SGLang's
    own cache does it.
    """

    def __init__(self, num_slots: int, device: str | torch.device) -> None:
        self._device = torch.device(device)
        self._is_on_host = self._device.type == "cpu"
        self._slots = torch.zeros(num_slots, dtype=torch.int64, device=self._device)
        self.clear()

    def clear(self) -> None:
        """All tickets are free again."""
        self._free = np.arange(len(self._slots), dtype=np.int32)
        self.free_size = len(self._free)

    def take(self, n: int) -> Int32Array:
        """(n,) int32, tickets that stand for nothing yet. There must be so many: a tree that holds
        other slots than the pool's is the only way to want more."""
        assert n <= self.free_size, (n, self.free_size)
        self.free_size -= n
        return self._free[self.free_size : self.free_size + n].copy()

    def give_back(self, tickets: Int32Array) -> None:
        """They stand for nothing any more."""
        self._free[self.free_size : self.free_size + len(tickets)] = tickets
        self.free_size += len(tickets)

    def bind(self, tickets: Int32Array, slots: torch.Tensor) -> None:
        """Let each ticket stand for the slot at its place; slots: (n,), on the device."""
        if len(tickets):
            self._slots.index_copy_(0, self._upload(tickets).to(torch.int64), slots.to(torch.int64))

    def slots(self, tickets: Int32Array) -> torch.Tensor:
        """(n,) int64 on the device, new: the slots that they stand for."""
        return self._slots.index_select(0, self._upload(tickets))

    def _upload(self, tickets: Int32Array) -> torch.Tensor:
        indices = torch.from_numpy(tickets)
        if self._is_on_host:
            return indices
        # From pinned memory, because a copy from pageable memory may wait for the stream.
        return indices.pin_memory().to(self._device, non_blocking=True)
