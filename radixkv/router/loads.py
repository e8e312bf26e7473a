"""How much each worker has to do: of what was picked for it and has not ended."""

from collections.abc import Iterator, Mapping
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from radixkv.errors import InvalidArgumentError
from radixkv.router.policies import FloatArray, IntArray


class Numbered(Protocol):
    """A pick: what it is known by, and for whom it is."""

    @property
    def id(self) -> int: ...
    @property
    def worker(self) -> str: ...


P = TypeVar("P", bound=Numbered)


class _Open(NamedTuple, Generic[P]):
    pick: P
    cost: float
    ends_at: float


class Loads(Generic[P]):
    """Sums of costs by worker, as arrays with an item for each, in the order of `arrange`.

    turns: when each was picked last, as a count of picks. What nobody has finished within
    `window_s` counts as finished.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._open: dict[int, _Open[P]] = {}  # in the order in which they end
        self._place: dict[str, int] = {}
        self._turn = 0
        self.loads: FloatArray = np.zeros(0)
        self.turns: IntArray = np.zeros(0, np.int64)

    def arrange(self, workers: tuple[str, ...]) -> None:
        """These workers from now on; who was there keeps what it has."""
        loads, turns = np.zeros(len(workers)), np.zeros(len(workers), np.int64)
        for at, worker in enumerate(workers):
            if worker in self._place:
                before = self._place[worker]
                loads[at], turns[at] = self.loads[before], self.turns[before]
        self._place = {worker: at for at, worker in enumerate(workers)}
        self.loads, self.turns = loads, turns
        self._open = {id: one for id, one in self._open.items() if one.pick.worker in self._place}

    def add(self, pick: P, cost: float, now: float) -> None:
        """The pick's worker has `cost` more to do."""
        self._turn += 1
        at = self._place[pick.worker]
        self.loads[at] += cost
        self.turns[at] = self._turn
        self._open[pick.id] = _Open(pick, cost, now + self._window_s)

    def remove(self, pick: P) -> bool:
        """The pick has ended; False if it had before."""
        one = self._open.pop(pick.id, None)
        if one is not None:
            at = self._place[one.pick.worker]
            left = self.loads[at] - one.cost
            self.loads[at] = left if left > 1e-9 else 0.0  # nothing is left of rounding
        return one is not None

    def open_pick(self, pick_id: int) -> P | None:
        """The pick of that number; None if it has ended."""
        one = self._open.get(pick_id)
        return one.pick if one is not None else None

    def expire(self, now: float) -> Iterator[P]:
        """End what is overdue, and tell it."""
        while self._open:
            first = next(iter(self._open.values()))
            if first.ends_at > now:
                return
            self.remove(first.pick)
            yield first.pick

    def of(self, worker: str) -> float:
        return float(self.loads[self._place[worker]])

    def given(self, loads: Mapping[str, float]) -> tuple[IntArray, FloatArray]:
        """Positions of the workers that someone else names, and their loads, by position.

        Raises InvalidArgumentError for an unknown worker or what is no load.
        """
        present = np.zeros(len(self._place))
        for worker, load in loads.items():
            if worker not in self._place:
                raise InvalidArgumentError(f"worker {worker!r} is unknown", worker=worker)
            check_load(load, f"the load of {worker!r}")
            present[self._place[worker]] = load
        return np.array(sorted(self._place[worker] for worker in loads), np.int64), present


def check_load(value: object, name: str) -> None:
    """Raises InvalidArgumentError for what is no load."""
    if not (isinstance(value, int | float) and 0 <= value < inf):
        raise InvalidArgumentError(f"{name} is {value!r}; it takes a number from 0 on", value=value)
