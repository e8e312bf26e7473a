"""The token-to-KV allocator: which slots are free."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radixkv.errors import InvalidArgumentError, InvalidSlotsError, SlotNotAllocatedError

Int32Array: TypeAlias = NDArray[np.int32]


class TokenToKVAllocator:
    """Hands out slots `page_size` to `num_slots + page_size - 1` in whole pages; page 0 is padding.

    What was freed last is handed out first. Cost: O(1) a slot, O(n log n) for the duplicate check
    of a free.

    >>> allocator = TokenToKVAllocator(4)
    >>> allocator.allocate(3)
    array([1, 2, 3], dtype=int32)
    >>> allocator.free([2])
    >>> allocator.free_size
    2
    """

    def __init__(self, num_slots: int, page_size: int = 1) -> None:
        check_pool_shape(num_slots, page_size)
        self.num_slots = num_slots
        self.page_size = page_size
        num_pages = num_slots // page_size
        # A stack whose top is at the end; filled so that the first pages come out in order.
        self._stack = np.arange(num_pages, 0, -1, dtype=np.int32)
        self._top = num_pages
        self._is_held = np.zeros(num_pages + 1, np.bool_)

    @property
    def free_size(self) -> int:
        """Slots that `allocate` could hand out."""
        return self._top * self.page_size

    def allocate(self, n: int) -> Int32Array | None:
        """`n` slots, (n,) int32, page by page; None and nothing taken if fewer are free.

        Raises InvalidArgumentError if `n` is negative or no multiple of the page size.
        """
        if n < 0 or n % self.page_size:
            raise InvalidArgumentError(
                f"n is {n}; it takes 0 or more, a multiple of page size {self.page_size}", n=n
            )
        if n > self.free_size:
            return None
        count = n // self.page_size
        pages = self._stack[self._top - count : self._top][::-1]
        self._top -= count
        self._is_held[pages] = True
        return self._slots_of(pages)

    def free(self, slots: ArrayLike) -> None:
        """Take slots back, in whole pages.

        Raises InvalidSlotsError for slot 0 (or another of page 0), one out of range or a part of a
        page,
        SlotNotAllocatedError for one that is free already or comes twice; each names it, and then
        nothing
        was freed.
        """
        given = np.asarray(slots, np.int64)
        self._check_range(given)
        unique = np.unique(given)
        if len(unique) != len(given):
            twice = int(unique[np.unique(given, return_counts=True)[1].argmax()])
            raise SlotNotAllocatedError(f"slot {twice} comes twice in one free", slot=twice)
        pages = unique[:: self.page_size] // self.page_size
        self._check_whole_pages(unique, pages)
        is_free = ~self._is_held[pages]
        if is_free.any():
            slot = int(pages[is_free.argmax()]) * self.page_size
            raise SlotNotAllocatedError(f"slot {slot} is free already", slot=slot)
        self._is_held[pages] = False
        self._stack[self._top : self._top + len(pages)] = (
            given[:: self.page_size] // self.page_size
        )[::-1]
        self._top += len(pages)

    def free_slots(self) -> Int32Array:
        """The free slots, (free_size,) int32, for checks."""
        return self._slots_of(self._stack[: self._top])

    def _slots_of(self, pages: Int32Array) -> Int32Array:
        if self.page_size == 1:
            return pages.copy()
        within = np.arange(self.page_size, dtype=np.int32)
        return (pages[:, None] * np.int32(self.page_size) + within).reshape(-1)

    def _check_range(self, given: NDArray[np.int64]) -> None:
        low, high = self.page_size, self.num_slots + self.page_size - 1
        wrong = (given < low) | (given > high)
        if given.ndim != 1 or wrong.any():
            slot = (
                int(given.reshape(-1)[wrong.reshape(-1).argmax()])
                if wrong.any()
                else given.tolist()
            )
            raise InvalidSlotsError(
                f"slot {slot} is not in the pool; slots are {low} to {high}", slot=slot
            )

    def _check_whole_pages(self, unique: NDArray[np.int64], pages: NDArray[np.int64]) -> None:
        if self.page_size == 1:
            return
        whole = self._slots_of(pages.astype(np.int32))
        if len(whole) != len(unique) or (whole != unique).any():
            parts = np.setxor1d(whole, unique)
            raise InvalidSlotsError(
                f"slot {int(parts[0])}: slots are freed in whole pages of {self.page_size}",
                slot=int(parts[0]),
            )


def check_pool_shape(num_slots: int, page_size: int) -> None:
    """Raises InvalidArgumentError unless `num_slots` is a positive multiple of `page_size`."""
    if type(page_size) is not int or page_size < 1:
        raise InvalidArgumentError(f"page_size is {page_size!r}; it takes an int of 1 or more")
    if type(num_slots) is not int or num_slots < page_size or num_slots % page_size:
        raise InvalidArgumentError(
            f"num_slots is {num_slots!r}; it takes a positive multiple of page size {page_size}"
        )
    if num_slots + page_size > 2**31 - 1:
        raise InvalidArgumentError(
            f"num_slots is {num_slots}; slots are int32, so fewer than 2**31"
        )
