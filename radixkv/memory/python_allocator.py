"""The readable allocator: a stack of free pages."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radixkv.arguments import as_int
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError, InvalidSlotsError, SlotNotAllocatedError
from radixkv.memory.allocator import (
    TokenToKVAllocator,
    check_distinct,
    check_pool_shape,
    check_range,
)


class PythonAllocator(TokenToKVAllocator):
    """See `TokenToKVAllocator`."""

    core = "python"

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
        return self._top * self.page_size

    def allocate(self, n: int) -> Int32Array | None:
        n = n if type(n) is int else as_int(n, "n")
        if n < 0 or n % self.page_size:
            raise InvalidArgumentError(
                f"n must be 0 or a positive multiple of page size {self.page_size}; got {n}", n=n
            )
        if n > self.free_size:
            return None
        count = n // self.page_size
        pages = self._stack[self._top - count : self._top][::-1]
        self._top -= count
        self._is_held[pages] = True
        return self._slots_of(pages)

    def free(self, slots: ArrayLike) -> None:
        given = _as_slots(slots)
        self.check_range(given)
        given = given.astype(np.int64)
        check_distinct(given)
        pages = self._whole_pages(given)
        is_free = ~self._is_held[pages]
        if is_free.any():
            slot = int(pages[is_free.argmax()]) * self.page_size
            raise SlotNotAllocatedError(
                f"slots must be allocated; got {slot}, which is free", slot=slot
            )
        self._is_held[pages] = False
        self._stack[self._top : self._top + len(pages)] = pages[::-1]
        self._top += len(pages)

    def free_slots(self) -> Int32Array:
        return self._slots_of(self._stack[: self._top])

    def check_integrity(self) -> list[str]:
        listed, count = np.unique(self._stack[: self._top], return_counts=True)
        is_whole = np.array_equal(listed, np.flatnonzero(~self._is_held[1:]) + 1)
        if is_whole and (count == 1).all():
            return []
        return ["I1 partition: the list of free pages is not that of the pages not held"]

    def free_marks(self, first: int, end: int) -> NDArray[np.bool_]:
        pages = np.arange(first, end) // self.page_size
        in_pool = (pages >= 1) & (pages < len(self._is_held))
        return in_pool & ~self._is_held[np.where(in_pool, pages, 0)]

    def _slots_of(self, pages: Int32Array) -> Int32Array:
        if self.page_size == 1:
            return pages.copy()
        within = np.arange(self.page_size, dtype=np.int32)
        return (pages[:, None] * np.int32(self.page_size) + within).reshape(-1)

    def check_range(self, slots: NDArray[Any]) -> None:
        check_range(slots, self.num_slots, self.page_size)

    def _whole_pages(self, given: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pages that distinct slots make up, in the order of their first slots in `given`."""
        if self.page_size == 1:
            return given
        pages, first, count = np.unique(
            given // self.page_size, return_index=True, return_counts=True
        )
        is_part = count < self.page_size
        if is_part.any():
            slot = int(given[first[is_part.argmax()]])
            raise InvalidSlotsError(
                f"slots must be whole pages of {self.page_size}; "
                f"got {slot} without the rest of its page",
                slot=slot,
            )
        return pages[np.argsort(first)]


def _as_slots(slots: ArrayLike) -> NDArray[Any]:
    try:
        given = np.asarray(slots)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        raise InvalidSlotsError(
            f"slots must be ints in one dimension; got {type(slots).__name__}"
        ) from None
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InvalidSlotsError(
            f"slots must be ints in one dimension; got dtype {given.dtype}, shape {given.shape}"
        )
    return given
