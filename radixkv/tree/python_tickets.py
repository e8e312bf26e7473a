"""The readable tickets: a byte for each, 1 where it is taken."""

import numpy as np

from radixkv.arguments import at_least, between
from radixkv.arrays import INT32_MAX, Int32Array
from radixkv.errors import SlotNotAllocatedError
from radixkv.tree.reader import PYTHON_READER, TokenIds
from radixkv.tree.tickets import Tickets


class PythonTickets(Tickets):
    """See `Tickets`."""

    core = "python"

    def __init__(self, num_tickets: int) -> None:
        self.num_tickets = between(0, INT32_MAX, num_tickets=num_tickets)
        self._is_taken = bytearray(self.num_tickets)
        self._free_size = self.num_tickets
        self._next = 0

    @property
    def free_size(self) -> int:
        return self._free_size

    def take(self, n: int) -> Int32Array | None:
        if at_least(0, n=n) > self._free_size:
            return None
        tickets = self._row(n)
        if n:
            np.frombuffer(self._is_taken, np.uint8)[tickets] = 1
            self._next = int(tickets[-1]) + 1
        self._free_size -= n
        return tickets

    def _row(self, n: int) -> Int32Array:
        row = bytes(n)
        first = self._is_taken.find(row, self._next)
        if first < 0:
            first = self._is_taken.find(row)
        if first >= 0:
            return np.arange(first, first + n, dtype=np.int32)
        free = np.flatnonzero(np.frombuffer(self._is_taken, np.uint8) == 0)
        return np.roll(free, -np.searchsorted(free, self._next))[:n].astype(np.int32)

    def free(self, tickets: TokenIds) -> None:
        given = PYTHON_READER.slots(tickets, "tickets")
        is_taken = np.frombuffer(self._is_taken, np.uint8)
        is_good = (given < self.num_tickets) & _is_first(given)
        is_good[is_good] = is_taken[given[is_good]] == 1
        if not is_good.all():
            ticket = int(given[is_good.argmin()])
            raise SlotNotAllocatedError(
                f"tickets must be distinct and taken; got {ticket}", slot=ticket
            )
        is_taken[given] = 0
        self._free_size += len(given)


def _is_first(tickets: Int32Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which of them did not come before."""
    is_first = np.zeros(len(tickets), np.bool_)
    is_first[np.unique(tickets, return_index=True)[1]] = True
    return is_first
