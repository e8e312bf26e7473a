"""radixkv: a radix-tree, token-granular prefix cache for LLM serving."""

from radixkv.cache import PrefixCache
from radixkv.cache.request import Request
from radixkv.tree import DEFAULT, Namespace, RadixTree, new_tree

__version__ = "0.1.0.dev0"
__all__ = ["DEFAULT", "Namespace", "PrefixCache", "RadixTree", "Request", "__version__", "new_tree"]
