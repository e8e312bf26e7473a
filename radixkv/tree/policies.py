"""What is evicted first: a key for each evictable leaf, the smallest goes first.

The same keys as SGLang's strategies of these names, with counters in place of clocks. `hit_count`
counts inserts that passed through the node; `slru` protects what was inserted through twice.
`adaptive` is our own: of its order it looks at both ends of each kind, see `adaptive.py`.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from radixkv.errors import InvalidArgumentError

SLRU_PROTECTED_HITS = 2


class Aged(Protocol):
    """What a policy may look at."""

    recency: int
    created: int
    hit_count: int
    priority: int
    used: int

    @property
    def kind(self) -> int: ...


Policy: TypeAlias = Callable[[Aged], tuple[int, ...]]

POLICIES: dict[str, Policy] = {
    "lru": lambda node: (node.recency,),
    "lfu": lambda node: (node.hit_count, node.recency),
    "fifo": lambda node: (node.created,),
    "mru": lambda node: (-node.recency,),
    "filo": lambda node: (-node.created,),
    "slru": lambda node: (int(node.hit_count >= SLRU_PROTECTED_HITS), node.recency),
    "priority": lambda node: (node.priority, node.recency),
    "adaptive": lambda node: (node.kind, node.used, node.recency),
}


def get_policy(name: str) -> Policy:
    """The policy of that name; InvalidArgumentError lists those there are."""
    if not isinstance(name, str) or name not in POLICIES:
        raise InvalidArgumentError(
            f"policy is {name!r}; it takes {', '.join(POLICIES)}", policy=name
        )
    return POLICIES[name]
