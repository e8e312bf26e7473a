"""The index: which token prefixes are cached, and in which slots.

`radix_tree.py` says what every core does. The readable one is `python_tree.py` (checks) over
`nodes.py` (the tree itself). `namespace.py`, `tokens.py` and `content.py` say what a key is,
`policies/` what is evicted first.
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
