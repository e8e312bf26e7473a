"""The contract of tickets: numbers that stand in a tree for slots that the host does not know."""

from radixkv.arrays import Int32Array
from radixkv.tree.reader import TokenIds


class Tickets:
    """The numbers 0 to `num_tickets - 1`, handed out in a row where one is free.

    The search goes on where the last one ended, and begins again at 0. With twice as many as are
    ever taken at once there mostly is a row, however they come back.
    core: which one it is, "native" or "python".

    A contract: `radixkv.tree.factory.new_tickets` makes one. Not thread-safe.
    """

    num_tickets: int
    core: str

    def __init__(self, num_tickets: int) -> None:
        """Only a core has one: see `radixkv.tree.factory.new_tickets`."""
        raise TypeError(
            "Tickets is a contract; make one with radixkv.tree.factory.new_tickets(...)"
        )

    @property
    def free_size(self) -> int:
        """Tickets that are free."""
        raise NotImplementedError

    def take(self, n: int) -> Int32Array | None:
        """(n,) int32: the next row of `n`; where none is long enough, the next `n` that are free.

        None where fewer are free. Cost: O(n), where no row is free O(num_tickets).
        Raises InvalidArgumentError for a negative number.
        """
        raise NotImplementedError

    def free(self, tickets: TokenIds) -> None:
        """Take `tickets` back, (n,) ints. Cost: O(n).

        Raises InvalidSlotsError, or SlotNotAllocatedError for one that is free or comes twice, and
        then none is taken back.
        """
        raise NotImplementedError
