"""Slots and bytes: who holds which slot, and where a request's tokens are.

`kv_pool` needs torch, the rest does not.
"""

from radixkv.memory.allocator import TokenToKVAllocator
from radixkv.memory.factory import new_allocator
from radixkv.memory.req_to_token import ReqToTokenPool

__all__ = ["ReqToTokenPool", "TokenToKVAllocator", "new_allocator"]
