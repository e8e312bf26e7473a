"""Tree-aware decode: what requests share is read once."""

from radixkv.attention.tree.backend import TreeAttention
from radixkv.attention.tree.explain import Explanation

__all__ = ["Explanation", "TreeAttention"]
