"""The slots of a cache: in the tree, or in the ledger, and moved between the two.

Everything that evicts from a cache comes through here, but for an admission, whose one call of
`RadixTree.admit` matches, locks, evicts and takes. What goes first is the tree's policy. Each verb
after which more may be kept, or less is locked, ends with `keep_bound`.
"""

from collections.abc import Iterable

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.ledger import Fence, SlotLedger
from radixkv.cache.stats import Totals
from radixkv.memory import TokenToKVAllocator
from radixkv.tree import Namespace, RadixTree, TokenIds
from radixkv.tree.content import Content


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
        self._has_shares = bool(tree.shares)
        self.is_bounded = self._has_shares or max_cached_tokens is not None

    def take(self, n: int, namespace: Namespace | None = None) -> Int32Array | None:
        """`n` slots, (n,) int32, in whole pages, evicting what is needed.

        namespace: for which the eviction is, see `RadixTree.evict`. None: no room now, nothing
        taken. Cost: as `RadixTree.evict`.
        """
        slots, evicted = self.tree.take(n, self.ledger, namespace)
        self.totals.evicted_tokens += evicted
        return slots

    def evict(self, num_tokens: int, fence: Fence | None = None) -> int:
        """Tokens evicted, whose slots are freed behind `fence`."""
        evicted = self.tree.evict_into(num_tokens, self.ledger, fence)
        self.totals.evicted_tokens += evicted
        return evicted

    def evict_below(self, token_ids: TokenIds, namespace: Namespace, content: Content) -> int:
        """As `RadixTree.evict_below`; how many tokens were evicted."""
        evicted = self.tree.evict_below_into(token_ids, self.ledger, namespace, content=content)
        self.totals.evicted_tokens += evicted
        return evicted

    def keep_bound(self, fence: Fence | None = None) -> None:
        """Evict what the tree keeps beyond its bound, and what shares keep beyond their caps."""
        if self._has_shares:
            self.totals.evicted_tokens += self.tree.evict_beyond_caps_into(self.ledger, fence)
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
