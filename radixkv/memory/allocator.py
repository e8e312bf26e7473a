"""The token-to-KV allocator: which slots are free."""

from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from radixkv.cores import native_module
from radixkv.errors import InvalidArgumentError, InvalidSlotsError, SlotNotAllocatedError

Int32Array: TypeAlias = NDArray[np.int32]


class TokenToKVAllocator:
    """Hands out slots `page_size` to `num_slots + page_size - 1` in whole pages; page 0 is padding.

    What was freed last is handed out first. core: see `RadixTree`. Cost: O(1) a slot; the Python
    core's free takes O(n log n).

    >>> allocator = TokenToKVAllocator(4)
    >>> allocator.allocate(3)
    array([1, 2, 3], dtype=int32)
    >>> allocator.free([2])
    >>> allocator.free_size
    2
    """

    num_slots: int
    page_size: int
    core: str

    def __new__(
        cls, num_slots: int, page_size: int = 1, core: str | None = None
    ) -> "TokenToKVAllocator":
        if cls is TokenToKVAllocator:
            native = native_module(core, "radixkv.memory.native_core")
            chosen: type[TokenToKVAllocator] = native.NativeAllocator if native else PythonAllocator
            return chosen.__new__(chosen, num_slots, page_size, core)
        return super().__new__(cls)

    def __init__(self, num_slots: int, page_size: int = 1, core: str | None = None) -> None:
        """See the class. Raises InvalidArgumentError."""

    @property
    def free_size(self) -> int:
        """Slots that `allocate` could hand out."""
        raise NotImplementedError

    def allocate(self, n: int) -> Int32Array | None:
        """`n` slots, (n,) int32, page by page; None and nothing taken if fewer are free.

        Raises InvalidArgumentError if `n` is negative or no multiple of the page size.
        """
        raise NotImplementedError

    def free(self, slots: ArrayLike) -> None:
        """Take slots back, in whole pages.

        Raises InvalidSlotsError for slot 0 (or another of page 0), one out of range or a part of a
        page, SlotNotAllocatedError for one that is free already or comes twice; each names it, and
        then nothing was freed.
        """
        raise NotImplementedError

    def check_range(self, slots: Int32Array) -> None:
        """Raises InvalidSlotsError for a slot that is not in the pool."""
        raise NotImplementedError

    def free_slots(self) -> Int32Array:
        """The free slots, (free_size,) int32, for checks."""
        raise NotImplementedError


class PythonAllocator(TokenToKVAllocator):
    """See `TokenToKVAllocator`."""

    core = "python"

    def __init__(self, num_slots: int, page_size: int = 1, core: str | None = None) -> None:
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
        n = _as_int("n", n)
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
        given = _as_slots(slots)
        self.check_range(given)
        given = given.astype(np.int64)
        _check_once(given)
        pages = self._whole_pages(given)
        is_free = ~self._is_held[pages]
        if is_free.any():
            slot = int(pages[is_free.argmax()]) * self.page_size
            raise SlotNotAllocatedError(f"slot {slot} is free already", slot=slot)
        self._is_held[pages] = False
        self._stack[self._top : self._top + len(pages)] = pages[::-1]
        self._top += len(pages)

    def free_slots(self) -> Int32Array:
        return self._slots_of(self._stack[: self._top])

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
                f"slot {slot}: slots are freed in whole pages of {self.page_size}", slot=slot
            )
        return pages[np.argsort(first)]


def _as_int(name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} is {value!r}; it takes an int") from None


def _as_slots(slots: ArrayLike) -> NDArray[Any]:
    try:
        given = np.asarray(slots)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        raise InvalidSlotsError("slots are no ints in one dimension") from None
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise InvalidSlotsError(
            f"slots have dtype {given.dtype}, shape {given.shape}; free takes ints in one dimension"
        )
    return given


def _check_once(given: NDArray[np.int64]) -> None:
    slots, count = np.unique(given, return_counts=True)
    if len(slots) != len(given):
        twice = int(slots[count.argmax()])
        raise SlotNotAllocatedError(f"slot {twice} comes twice in one free", slot=twice)


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


def check_range(slots: NDArray[Any], num_slots: int, page_size: int) -> None:
    """Raises InvalidSlotsError for a slot that no pool of this shape has."""
    low, high = page_size, num_slots + page_size - 1
    wrong = (slots < low) | (slots > high)
    if wrong.any():
        slot = int(slots[wrong.argmax()])
        raise InvalidSlotsError(
            f"slot {slot} is not in the pool; slots are {low} to {high}", slot=slot
        )
