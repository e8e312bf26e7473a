"""The allocator in C++: see `kernels/tree/allocator.hpp`."""

from radixkv.kernels._core import SlotAllocator
from radixkv.memory.allocator import TokenToKVAllocator


class NativeAllocator(SlotAllocator, TokenToKVAllocator):
    """See `TokenToKVAllocator`."""

    core = "native"
