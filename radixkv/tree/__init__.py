"""The index: which token prefixes are cached, and in which slots.

`radix_tree.py` says what every core does, `python_tree.py` is the readable one, `namespace.py`,
`tokens.py` and `content.py` say what a key is, `policies.py` what is evicted first.
"""

from radixkv.tree.content import ContentSpan
from radixkv.tree.factory import new_tree
from radixkv.tree.namespace import DEFAULT, Namespace
from radixkv.tree.policies import POLICIES
from radixkv.tree.radix_tree import (
    Handle,
    InsertResult,
    MatchResult,
    NodeInfo,
    RadixTree,
    Stored,
    Trimmed,
)
from radixkv.tree.tokens import TokenIds, as_slots, as_token_ids

__all__ = [
    "DEFAULT",
    "POLICIES",
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
    "new_tree",
]
