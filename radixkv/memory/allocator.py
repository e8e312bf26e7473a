"""The token-to-KV allocator: which slots are free."""

from typing import Any

from numpy.typing import ArrayLike, NDArray

from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError, InvalidSlotsError


class TokenToKVAllocator:
    """The slots `page_size` to `num_slots + page_size - 1`, in whole pages; page 0 is padding.

    What was freed last is handed out first. core: which one it is, "native" or "python".

    A contract: `new_allocator` makes one. Cost: O(1) a slot; `free` of the Python core O(n log n).
    """

    num_slots: int
    page_size: int
    core: str

    def __init__(self, num_slots: int, page_size: int = 1) -> None:
        """Only a core has one: see `radixkv.memory.new_allocator`."""
        raise TypeError(
            "TokenToKVAllocator is a contract; make one with radixkv.memory.new_allocator(...)"
        )

    @property
    def free_size(self) -> int:
        """How many slots are free."""
        raise NotImplementedError

    def allocate(self, n: int) -> Int32Array | None:
        """`n` slots, (n,) int32, page by page; None and nothing taken if fewer are free.

        Raises InvalidArgumentError if `n` is negative or no multiple of the page size.
        """
        raise NotImplementedError

    def free(self, slots: ArrayLike) -> None:
        """Take slots back, (n,) ints, in whole pages.

        Raises InvalidSlotsError for a slot of page 0, one out of range or a part of a page, and
        SlotNotAllocatedError for one that is free already or comes twice. The message names the
        slot; nothing was freed.
        """
        raise NotImplementedError

    def check_range(self, slots: Int32Array) -> None:
        """Raises InvalidSlotsError for the first slot that is not in the pool."""
        raise NotImplementedError

    def free_slots(self) -> Int32Array:
        """The free slots, (free_size,) int32, for checks."""
        raise NotImplementedError


def check_pool_shape(num_slots: int, page_size: int) -> None:
    """Raises InvalidArgumentError unless `num_slots` is a positive multiple of `page_size`."""
    if type(page_size) is not int or page_size < 1:
        raise InvalidArgumentError(f"page_size must be an int of at least 1; got {page_size!r}")
    if type(num_slots) is not int or num_slots < page_size or num_slots % page_size:
        raise InvalidArgumentError(
            f"num_slots must be a positive multiple of page size {page_size}; got {num_slots!r}"
        )
    if num_slots + page_size > 2**31 - 1:
        raise InvalidArgumentError(
            f"num_slots must leave every slot below 2**31 - 1; got {num_slots}"
        )


def check_range(slots: NDArray[Any], num_slots: int, page_size: int) -> None:
    """Raises InvalidSlotsError for a slot that no pool of this shape has."""
    low, high = page_size, num_slots + page_size - 1
    wrong = (slots < low) | (slots > high)
    if wrong.any():
        slot = int(slots[wrong.argmax()])
        raise InvalidSlotsError(f"slot {slot} must be in the pool, from {low} to {high}", slot=slot)
