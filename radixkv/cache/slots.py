"""The slots of a cache: in the tree, or in the ledger, and moved between the two."""

from collections.abc import Iterable

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.ledger import Fence, SlotLedger
from radixkv.cache.stats import Totals
from radixkv.memory import TokenToKVAllocator
from radixkv.tree import RadixTree


class Slots:
    """Tree, ledger and what is counted of both. Runs inside a transaction.

    max_cached_tokens: most that the tree keeps besides what is locked; None: no bound.
    """

    def __init__(
        self, tree: RadixTree, ledger: SlotLedger, max_cached_tokens: int | None = None
    ) -> None:
        self.tree, self.ledger = tree, ledger
        self.allocator: TokenToKVAllocator = ledger.allocator
        self.num_slots, self.page_size = self.allocator.num_slots, self.allocator.page_size
        self.max_cached_tokens = max_cached_tokens
        self.totals = Totals()

    def take(self, n: int) -> Int32Array | None:
        """`n` slots, (n,) int32, in whole pages, evicting what is needed.

        None: no room now, nothing taken. Cost: as `RadixTree.evict`.
        """
        slots, evicted = self.tree.take(n, self.ledger)
        self.totals.evicted_tokens += evicted
        return slots

    def evict(self, num_tokens: int, fence: Fence | None = None) -> int:
        """Tokens evicted, whose slots are freed behind `fence`."""
        evicted = self.tree.evict_into(num_tokens, self.ledger, fence)
        self.totals.evicted_tokens += evicted
        return evicted

    def keep_bound(self, fence: Fence | None = None) -> None:
        """Evict what the tree keeps beyond its bound."""
        if self.max_cached_tokens is not None and self.tree.total_size > self.max_cached_tokens:
            self.evict(self.tree.total_size - self.max_cached_tokens, fence)

    def forget(self, read: Iterable[Int32Array]) -> None:
        """Drop the tree. read: the slots that each reader still reads of it.

        Those stay out of the free list until the last of their readers gives them back.
        """
        readers = np.zeros_like(self.ledger.sharers)
        for slots_read in read:
            readers[slots_read] += 1
        self.tree.reset_into(self.ledger, readers)
