"""Which allocator runs."""

from radixkv.cores import load
from radixkv.memory.allocator import TokenToKVAllocator


def new_allocator(
    num_slots: int, page_size: int = 1, core: str | None = None
) -> TokenToKVAllocator:
    """A full pool of `num_slots` free slots; see `TokenToKVAllocator`.

    Parameters
    ----------
    num_slots
        Slots of the pool, a multiple of the page size.
    page_size
        Tokens a page, 1 or more.
    core
        "native", "python", or None for the best there is; RADIXKV_CORE stands in for None.

    Returns
    -------
    TokenToKVAllocator
        With all slots free.

    Raises
    ------
    InvalidArgumentError
        For a value out of range.
    CoreUnavailableError
        If the native core is asked for and not built.

    Examples
    --------
    >>> allocator = new_allocator(4)
    >>> allocator.allocate(3)
    array([1, 2, 3], dtype=int32)
    >>> allocator.free([2])
    >>> allocator.free_size
    2
    """
    chosen: type[TokenToKVAllocator] = load(
        core,
        native="radixkv.memory.native_allocator:NativeAllocator",
        python="radixkv.memory.python_allocator:PythonAllocator",
    )
    return chosen(num_slots, page_size)
