"""The index: which token prefixes are cached, and in which slots.

    radix_tree.py    what every core does
    python_tree.py   the readable core: checks, over nodes.py, the tree itself
    native_tree.py   the fast core: `kernels/tree/`, bound to Python by `kernels/binding/`
    policies/        what is evicted first; nodes.Policy says when each hook is called
    namespace.py, reader.py, content.py    what a key is, and how it is read
    integrity.py     what must hold between any two calls

When something is evicted is decided above: `RadixTree.take` evicts what an admission is short of,
and `radixkv.cache.slots.Slots.keep_bound` what is kept beyond a bound. `docs/extending.md` adds a
policy, step by step.
"""

from radixkv.tree.content import ContentSpan
from radixkv.tree.factory import new_reader, new_tree
from radixkv.tree.namespace import DEFAULT, Namespace
from radixkv.tree.policies import POLICIES
from radixkv.tree.radix_tree import (
    NO_CHANGES,
    Changes,
    Handle,
    InsertResult,
    MatchResult,
    NodeInfo,
    RadixTree,
    Stored,
    Trimmed,
)
from radixkv.tree.reader import TokenIds
from radixkv.tree.show import format_tree
from radixkv.tree.tokens import as_slots, as_token_ids

__all__ = [
    "DEFAULT",
    "NO_CHANGES",
    "POLICIES",
    "Changes",
    "ContentSpan",
    "Handle",
    "InsertResult",
    "MatchResult",
    "Namespace",
    "NodeInfo",
    "RadixTree",
    "Stored",
    "TokenIds",
    "Trimmed",
    "as_slots",
    "as_token_ids",
    "format_tree",
    "new_reader",
    "new_tree",
]
