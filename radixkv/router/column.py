"""An array with an item for each worker, where workers come and go one at a time."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Column:
    """items: (n,), to be written to as well; another array after each call here.

    >>> column = Column(np.int32)
    >>> column.append(7), column.append(8), column.append(9), column.delete(1)
    (None, None, None, None)
    >>> column.items.tolist()
    [7, 9]
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._room = np.zeros(16, dtype)
        self.items: NDArray[Any] = self._room[:0]

    def append(self, item: float) -> None:
        """Amortised O(1)."""
        size = len(self.items)
        if size == len(self._room):
            self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        self._room[size] = item
        self.items = self._room[: size + 1]

    def delete(self, at: int) -> None:
        """Those behind it move up: O(n)."""
        self.items[at:-1] = self.items[at + 1 :]
        self.items = self.items[:-1]
