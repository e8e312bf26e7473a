"""The policies that are no more than a key.

The same keys as SGLang's strategies of these names, with counters in place of clocks.
"""

from radixkv.tree.nodes import Node, OrderKey, Policy

SLRU_PROTECTED_HITS = 2


class LRU(Policy):
    """Least recently used first: what `Policy` does by itself."""


class LFU(Policy):
    """Least often used first."""

    def order_key(self, leaf: Node) -> OrderKey:
        return (leaf.hit_count, leaf.recency)


class FIFO(Policy):
    """Oldest first."""

    def order_key(self, leaf: Node) -> OrderKey:
        return (leaf.created,)


class MRU(Policy):
    """Most recently used first."""

    def order_key(self, leaf: Node) -> OrderKey:
        return (-leaf.recency,)


class FILO(Policy):
    """Newest first."""

    def order_key(self, leaf: Node) -> OrderKey:
        return (-leaf.created,)


class SLRU(Policy):
    """As LRU, but what was inserted through twice goes after all else."""

    def order_key(self, leaf: Node) -> OrderKey:
        return (leaf.hit_count >= SLRU_PROTECTED_HITS, leaf.recency)


class Priority(Policy):
    """Lowest priority first."""

    def order_key(self, leaf: Node) -> OrderKey:
        return (leaf.priority, leaf.recency)
