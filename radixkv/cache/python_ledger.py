"""The readable ledger: counts in NumPy, a deque of fences."""

from collections import deque

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.ledger import Fence, SlotLedger
from radixkv.memory import TokenToKVAllocator


class PythonLedger(SlotLedger):
    """See `SlotLedger`."""

    def __init__(self, allocator: TokenToKVAllocator) -> None:
        self.allocator = allocator
        size = allocator.num_slots + allocator.page_size
        self.sharers = np.zeros(size, np.int32)
        self.is_retired = np.zeros(size, np.bool_)
        self.deferred = deque()
        self._is_collecting = False

    @property
    def free_size(self) -> int:
        self._collect()
        return self.allocator.free_size

    @property
    def deferred_size(self) -> int:
        return sum(len(slots) for _, slots in self.deferred)

    def take(self, n: int) -> Int32Array | None:
        self._collect()
        return self.allocator.allocate(n)

    def give_back(self, slots: Int32Array, fence: Fence | None) -> None:
        is_last = self.sharers[slots] == 0
        self.sharers[slots[~is_last]] -= 1
        done = slots[is_last]
        self.is_retired[done] = False
        self.free(done, fence)

    def free(self, slots: Int32Array, fence: Fence | None = None) -> None:
        if fence is None and self.deferred:
            fence = self.deferred[-1][0]
        if fence is not None:
            # Even without slots: what the tree gives up meanwhile waits behind this fence.
            self.deferred.append((fence, slots))
        elif len(slots):
            self.allocator.free(slots)

    def _collect(self) -> None:
        """Free what waits behind fences that are done, in the order they were given.

        A query may call the cache: nothing is collected within that, and what it frees waits for
        the next time.
        """
        if not self.deferred or self._is_collecting:
            return
        self._is_collecting = True
        try:
            for _ in range(len(self.deferred)):
                if not self.deferred[0][0].query():
                    return
                self.allocator.free(self.deferred.popleft()[1])
        finally:
            self._is_collecting = False
