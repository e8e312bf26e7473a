"""Which slots are on loan, to which borrower. All but `__init__` costs as much as is named."""

from itertools import count

import numpy as np

from radixkv.arrays import EMPTY, Int32Array

# Slots of one borrower that are listed although they are its own no longer, besides as many as are.
_STALE_ALLOWED = 1024


# Borrowers are numbers from 1 to this: they stand in an int32 for each slot.
MAX_BORROWER = 2**31 - 1


class Borrowers:
    """Numbers of borrowers, and the slots of each.

    of: (num_slots + page_size,) int32, the borrower of each slot; NONE: it is not on loan, ASIDE:
    set aside. num_loaned, num_aside: slots of all borrowers, and those set aside.
    """

    NONE, ASIDE = 0, -1

    def __init__(self, size: int) -> None:
        self.of: Int32Array = np.zeros(size, np.int32)
        self.num_loaned = self.num_aside = 0
        self._unused: list[int] = []  # numbers of borrowers that ended
        self._last = self.NONE
        # Of each borrower: what it was lent, in parts, some of it its own no longer; how much is.
        self._lent: dict[int, list[Int32Array]] = {}
        self._num_lent: dict[int, int] = {}
        self._num_of: dict[int, int] = {}

    def new(self) -> int:
        """A number that borrows nothing yet."""
        if self._unused:
            borrower = self._unused.pop()
        else:
            self._last = next(n for n in count(self._last + 1) if n not in self._lent)
            borrower = self._last
        self._lent[borrower], self._num_lent[borrower], self._num_of[borrower] = [], 0, 0
        return borrower

    def lend(self, borrower: int, slots: Int32Array) -> None:
        """`slots`, which are not on loan, are on loan to `borrower`."""
        if borrower not in self._lent:
            self._lent[borrower], self._num_lent[borrower], self._num_of[borrower] = [], 0, 0
        loaned, of = self.num_loaned + len(slots), self._num_of[borrower] + len(slots)
        lent = self._num_lent[borrower] + len(slots)
        # Where memory runs out before this, nothing is on loan: what is listed may be stale.
        self._lent[borrower].append(slots.copy())
        self.of[slots] = borrower
        self.num_loaned, self._num_of[borrower], self._num_lent[borrower] = loaned, of, lent
        if self._num_lent[borrower] > 2 * self._num_of[borrower] + _STALE_ALLOWED:
            self._lent[borrower] = [self.slots_of(borrower)]
            self._num_lent[borrower] = len(self._lent[borrower][0])

    def end_loan(self, borrower: int, slots: Int32Array) -> None:
        """`slots` of `borrower`, each once, are on loan no longer."""
        self.of[slots] = self.NONE
        self.num_loaned -= len(slots)
        self._num_of[borrower] -= len(slots)

    def slots_of(self, borrower: int) -> Int32Array:
        """What is on loan to `borrower`, (n,) int32, ascending."""
        lent = np.concatenate([EMPTY, *self._lent.get(borrower, [])])
        return np.unique(lent[self.of[lent] == borrower])

    def set_aside(self, borrower: int) -> Int32Array:
        """End a borrower; its slots are set aside. Nothing for one that ended."""
        if borrower not in self._lent:
            return EMPTY
        slots = self.slots_of(borrower)
        self.of[slots] = self.ASIDE
        self.num_loaned -= len(slots)
        self.num_aside += len(slots)
        for kept in (self._lent, self._num_lent, self._num_of):
            kept.pop(borrower, None)
        self._unused.append(borrower)
        return slots

    def end_aside(self, slots: Int32Array) -> None:
        """`slots` are set aside no longer."""
        self.of[slots] = self.NONE
        self.num_aside -= len(slots)
