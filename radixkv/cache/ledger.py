"""Who holds each slot that is neither free nor in the tree.

free ──take──> private ───publish───> the tree
 ^                │                      │
 │            give_back            evict │  reset under live readers
 │                v                      v            v
 └──fence done── deferred <────────── free()       retired ──give_back──> ...
"""

from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from radixkv.memory import TokenToKVAllocator
from radixkv.tree.tokens import Int32Array


class Fence(Protocol):
    """Device work to be done before slots are handed out again, such as a torch.cuda.Event."""

    def query(self) -> bool:
        """Whether it is done."""


class SlotLedger:
    """The slots of an allocator, from the moment they are taken until they are free again.

    sharers: (num_slots + page_size,) int32, requests beyond the first that hold a slot outside the
    tree, as after a fork that may not publish or a reset. is_retired: the same shape, slots of a
    tree that is gone. deferred: what waits behind fences, the first to be done first.

    A native allocator gets a native ledger, which the tree's steps read without Python.
    """

    sharers: NDArray[np.int32]
    is_retired: NDArray[np.bool_]
    deferred: deque[tuple[Fence, Int32Array]]

    def __new__(cls, allocator: TokenToKVAllocator) -> "SlotLedger":
        if cls is SlotLedger and allocator.core == "native":
            from radixkv.cache.native_ledger import NativeLedger

            return NativeLedger.__new__(NativeLedger, allocator)
        return super().__new__(cls)

    def __init__(self, allocator: TokenToKVAllocator) -> None:
        self.allocator = allocator
        size = allocator.num_slots + allocator.page_size
        self.sharers = np.zeros(size, np.int32)
        self.is_retired = np.zeros(size, np.bool_)
        self.deferred = deque()

    @property
    def free_size(self) -> int:
        """Slots that are free now, those whose fences are done included."""
        self._collect()
        return self.allocator.free_size

    @property
    def deferred_size(self) -> int:
        """Slots that wait behind a fence."""
        return sum(len(slots) for _, slots in self.deferred)

    @property
    def waiting_size(self) -> int:
        """Slots that are deferred or retired. Cost: O(num_slots)."""
        return self.deferred_size + int(self.is_retired.sum())

    def check_range(self, slots: Int32Array) -> None:
        """Raises InvalidSlotsError for a slot that is not in the pool."""
        self.allocator.check_range(slots)

    def take(self, n: int) -> Int32Array | None:
        """`n` free slots for one request, or None and nothing taken."""
        self._collect()
        return self.allocator.allocate(n)

    def share(self, slots: Int32Array) -> None:
        """One more request holds them."""
        self.sharers[slots] += 1

    def retire(self, slots: Int32Array, readers: NDArray[np.int32]) -> None:
        """What a forgotten tree held: free it, or keep it for as many as read it, by slot."""
        is_read = readers[slots] > 0
        read = slots[is_read]
        self.is_retired[read] = True
        self.sharers[read] += readers[read] - 1
        self.free(slots[~is_read])

    def give_back(self, slots: Int32Array, fence: Fence | None) -> None:
        """A request holds them no more; they are freed with the last that did."""
        is_last = self.sharers[slots] == 0
        self.sharers[slots[~is_last]] -= 1
        done = slots[is_last]
        self.is_retired[done] = False
        self.free(done, fence)

    def free(self, slots: Int32Array, fence: Fence | None = None) -> None:
        """Free them behind `fence`, or the latest one: who read them before may still run."""
        if fence is None and self.deferred:
            fence = self.deferred[-1][0]
        if fence is not None:
            # Even without slots: what the tree gives up meanwhile waits behind this fence.
            self.deferred.append((fence, slots))
        elif len(slots):
            self.allocator.free(slots)

    def _collect(self) -> None:
        """Free what waits behind fences that are done, in the order they were given."""
        while self.deferred:
            first = self.deferred[0]
            if not first[0].query():
                return
            # A query that called the cache was overtaken by its own call.
            if self.deferred and self.deferred[0] is first:
                self.allocator.free(self.deferred.popleft()[1])
