"""What is evicted first: the table of all policies. `nodes.Policy` says what a policy is."""

from radixkv.errors import InvalidArgumentError
from radixkv.tree.nodes import Policy
from radixkv.tree.policies.adaptive import Adaptive
from radixkv.tree.policies.hits_per_token import HitsPerToken
from radixkv.tree.policies.key_policies import FIFO, FILO, LFU, LRU, MRU, SLRU, Priority

POLICIES: dict[str, type[Policy]] = {
    "lru": LRU,
    "lfu": LFU,
    "fifo": FIFO,
    "mru": MRU,
    "filo": FILO,
    "slru": SLRU,
    "priority": Priority,
    "adaptive": Adaptive,
    "hits_per_token": HitsPerToken,
}


def get_policy(name: str) -> type[Policy]:
    """The policy of that name; InvalidArgumentError lists those there are."""
    if not isinstance(name, str) or name not in POLICIES:
        raise InvalidArgumentError(
            f"policy must be one of {', '.join(POLICIES)}; got {name!r}", policy=name
        )
    return POLICIES[name]
