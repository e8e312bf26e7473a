"""The cache: the tree, the pools and the life of a request, under one lock.

`prefix_cache.py` is what an engine embeds; the other files are its parts.
"""

from radixkv.cache.prefix_cache import PrefixCache
from radixkv.cache.request import Request

__all__ = ["PrefixCache", "Request"]
