"""The token-to-KV allocator: which slots are free."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radixkv.arguments import check_page_size
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError, InvalidSlotsError, SlotNotAllocatedError


class TokenToKVAllocator:
    """The slots `page_size` to `num_slots + page_size - 1`, in whole pages; page 0 is padding.

    What was freed last is handed out first.

    A contract: `new_allocator` makes one. Cost: O(1) a slot; `free` of the Python core O(n log n).

    Parameters
    ----------
    num_slots
        Slots of the pool, a multiple of the page size.
    page_size
        Tokens a page, 1 or more.

    Attributes
    ----------
    core
        Which one it is, "native" or "python".
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

        Parameters
        ----------
        n
            Slots, a multiple of the page size.

        Returns
        -------
        Int32Array | None
            (n,) int32; None: fewer are free, and nothing was taken.

        Raises
        ------
        InvalidArgumentError
            If `n` is negative or no multiple of the page size.
        """
        raise NotImplementedError

    def free(self, slots: ArrayLike) -> None:
        """Take slots back, (n,) ints, in whole pages.

        The message names the slot; nothing was freed.

        Parameters
        ----------
        slots
            (n,) ints, in whole pages.

        Raises
        ------
        InvalidSlotsError
            For a slot of page 0, one out of range or a part of a page.
        SlotNotAllocatedError
            For one that is free already or comes twice.
        """
        raise NotImplementedError

    def check_range(self, slots: Int32Array) -> None:
        """Check that slots are in the pool.

        Parameters
        ----------
        slots
            (n,) int32.

        Raises
        ------
        InvalidSlotsError
            For the first slot that is not in the pool.
        """
        raise NotImplementedError

    def free_slots(self) -> Int32Array:
        """The free slots, (free_size,) int32, for checks: those that would be handed out.

        Returns
        -------
        Int32Array
            (free_size,) int32.
        """
        raise NotImplementedError

    def check_integrity(self) -> list[str]:
        """A line unless exactly the free slots would be handed out. Cost: O(free pages), and a scan
        of all.

        Returns
        -------
        list[str]
            Empty when all is well.
        """
        raise NotImplementedError

    def free_marks(self, first: int, end: int) -> NDArray[np.bool_]:
        """(end - first,) bool, for checks: which slots from `first` to `end` may not be freed, as
        they are free. Cost: O(end - first).

        Parameters
        ----------
        first
            The first slot.
        end
            One more than the last.

        Returns
        -------
        NDArray[np.bool_]
            (end - first,) bool.
        """
        raise NotImplementedError


def check_pool_shape(num_slots: int, page_size: int) -> None:
    """Raises InvalidArgumentError unless `num_slots` is a positive multiple of `page_size`."""
    check_page_size(page_size)
    if type(num_slots) is not int or num_slots < page_size or num_slots % page_size:
        raise InvalidArgumentError(
            f"num_slots must be a positive multiple of page size {page_size}; got {num_slots!r}",
            num_slots=num_slots,
            page_size=page_size,
        )
    if num_slots + page_size > 2**31 - 1:
        raise InvalidArgumentError(
            f"num_slots must be at most 2**31 - 1 less the page size {page_size}; got {num_slots}"
        )


def check_range(slots: NDArray[Any], num_slots: int, page_size: int) -> None:
    """Raises InvalidSlotsError for a slot that no pool of this shape has."""
    low, high = page_size, num_slots + page_size - 1
    wrong = (slots < low) | (slots > high)
    if wrong.any():
        slot = int(slots[wrong.argmax()])
        raise InvalidSlotsError(f"slots must be from {low} to {high}; got {slot}", slot=slot)


def check_distinct(slots: NDArray[np.integer[Any]]) -> None:
    """Raises SlotNotAllocatedError for the slot that comes most often, if one comes twice."""
    distinct, count = np.unique(slots, return_counts=True)
    if len(distinct) != len(slots):
        slot = int(distinct[count.argmax()])
        raise SlotNotAllocatedError(f"slots must be distinct; got {slot} twice", slot=slot)
