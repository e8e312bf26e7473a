"""What look-ups go by, as arrays with an item for each worker."""

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.router.column import Column
from radixkv.router.mirror import Mirror
from radixkv.router.pick_input import BoolArray, FloatArray, IntArray


class WorkerRows:
    """The n workers in the order in which they came, and of each what its mirror says."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._names: tuple[str, ...] | None = ()
        self._holders, self._page_sizes = Column(np.int64), Column(np.int32)
        self._is_stale, self._updated_at = Column(np.bool_), Column(np.float64)
        self._num_paged = 0  # workers with pages of more than a token

    @property
    def names(self) -> tuple[str, ...]:
        """O(n) once after workers came or went."""
        if self._names is None:
            self._names = tuple(self._place)
        return self._names

    @property
    def holders(self) -> IntArray:
        """(n,) int64."""
        return self._holders.items

    @property
    def page_sizes(self) -> Int32Array | None:
        """(n,) int32; None: all are 1."""
        return self._page_sizes.items if self._num_paged else None

    @property
    def is_stale(self) -> BoolArray:
        """(n,) bool."""
        return self._is_stale.items

    @property
    def updated_at(self) -> FloatArray:
        """(n,) float64, seconds by the clock."""
        return self._updated_at.items

    def add(self, worker: str, mirror: Mirror) -> None:
        """One more worker. Amortised O(1)."""
        self._place[worker], self._names = len(self._place), None
        self._holders.append(0)
        self._page_sizes.append(1)
        self._is_stale.append(False)
        self._updated_at.append(0.0)
        self.show(worker, mirror)

    def remove(self, worker: str) -> None:
        """The others move up. O(n)."""
        at = self._place.pop(worker)
        self._place, self._names = {name: i for i, name in enumerate(self._place)}, None
        self._num_paged -= int(self._page_sizes.items[at]) > 1
        for column in (self._holders, self._page_sizes, self._is_stale, self._updated_at):
            column.delete(at)

    def show(self, worker: str, mirror: Mirror) -> None:
        """The mirror has changed. O(1)."""
        at = self._place[worker]
        self._num_paged += (mirror.page_size > 1) - (int(self._page_sizes.items[at]) > 1)
        self._holders.items[at], self._page_sizes.items[at] = mirror.holder, mirror.page_size
        self._is_stale.items[at], self._updated_at.items[at] = mirror.is_stale, mirror.updated_at
