"""Which ledger runs."""

from radixkv.cache.ledger import SlotLedger
from radixkv.cores import load
from radixkv.memory import TokenToKVAllocator


def new_ledger(allocator: TokenToKVAllocator) -> SlotLedger:
    """The ledger of these slots, all free: of the core that the allocator is of.

    The native tree reads a native ledger without Python.

    >>> from radixkv.memory import new_allocator
    >>> ledger = new_ledger(new_allocator(4))
    >>> ledger.take(3).tolist(), ledger.free_size
    ([1, 2, 3], 1)
    """
    chosen: type[SlotLedger] = load(
        allocator.core,
        native="radixkv.cache.native_ledger:NativeLedger",
        python="radixkv.cache.python_ledger:PythonLedger",
    )
    return chosen(allocator)
