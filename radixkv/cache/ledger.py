"""The contract of the ledger: who holds each slot that is neither free nor in the tree.

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

from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.memory import TokenToKVAllocator


class Fence(Protocol):
    """Device work to be done before slots are handed out again, such as a torch.cuda.Event."""

    def query(self) -> bool:
        """Whether it is done."""


def check_fence(fence: Fence | None) -> None:
    """Raises InvalidArgumentError for what has no `query`."""
    if fence is not None and not callable(getattr(fence, "query", None)):
        raise InvalidArgumentError(f"fence must have query(), or be None; got {fence!r}")


class SlotLedger:
    """The slots of an allocator, from the moment they are taken until they are free again.

    sharers: (num_slots + page_size,) int32, requests beyond the first that hold a slot outside the
    tree, as after a fork that may not publish or a reset. is_retired: the same shape, slots of a
    tree that is gone. deferred: what waits behind fences, the first to be done first.
    """

    allocator: TokenToKVAllocator
    sharers: NDArray[np.int32]
    is_retired: NDArray[np.bool_]
    deferred: deque[tuple[Fence, Int32Array]]

    def __init__(self, allocator: TokenToKVAllocator) -> None:
        """Only a core has one: see `radixkv.cache.factory.new_ledger`."""
        raise TypeError(
            "SlotLedger is a contract; make one with radixkv.cache.factory.new_ledger(...)"
        )

    @property
    def free_size(self) -> int:
        """Slots that are free now, those whose fences are done included."""
        raise NotImplementedError

    @property
    def deferred_size(self) -> int:
        """Slots that wait behind a fence."""
        raise NotImplementedError

    def take(self, n: int) -> Int32Array | None:
        """`n` free slots, (n,) int32, in whole pages, for one request.

        None: no room now, nothing taken. Cost: O(n), and that of slots whose fences are done now.
        """
        raise NotImplementedError

    def give_back(self, slots: Int32Array, fence: Fence | None) -> None:
        """A request no longer holds `slots`, (n,) int32, each once; the last holder frees them.

        Freed behind `fence`, or the latest one; see `free`. Cost: O(n).
        """
        raise NotImplementedError

    def free(self, slots: Int32Array, fence: Fence | None = None) -> None:
        """Free `slots`, (n,) int32, each once, behind `fence`, or else behind the latest one.

        What read them before may still run. Raises what `fence.query` raises. Cost: O(n).
        """
        raise NotImplementedError

    # ---- the same on every core ----

    @property
    def waiting_size(self) -> int:
        """Slots that are deferred or retired. Cost: O(num_slots)."""
        return self.deferred_size + int(np.count_nonzero(self.is_retired))

    def check_range(self, slots: Int32Array) -> None:
        """Raises InvalidSlotsError for a slot that is not in the pool."""
        self.allocator.check_range(slots)

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
