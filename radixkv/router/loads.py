"""How busy each worker is: what was picked for it and has not ended, and its work of late."""

from collections.abc import Mapping
from math import inf
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from radixkv.errors import InvalidArgumentError
from radixkv.router.arrays import FloatArray, IntArray

# Work fades in so many steps each half-life, so that most picks need not touch it.
_STEPS = 64
# Beyond it sums of loads would lose the small ones, and in the end be infinite for good.
LARGEST_LOAD = 1e12


class Numbered(Protocol):
    """A pick: what it is known by, for whom it is, and the tokens that it leaves to compute."""

    @property
    def id(self) -> int: ...
    @property
    def worker(self) -> str: ...
    @property
    def to_compute(self) -> int: ...


P = TypeVar("P", bound=Numbered)


class Loads(Generic[P]):
    """Arrays with an item for each worker, in the order of `arrange`.

    loads: sums of costs of picks that have not ended. What nobody has finished within `window_s`
    counts as finished.
    work: tokens that each has computed, and those that open picks leave it to compute; half as many
    after each `half_life_s`. Who comes is taken to have done as much as the others.
    turns: when each was picked last, as a count of picks.
    due_at: when `advance` has something to do.
    """

    def __init__(self, window_s: float, half_life_s: float, now: float) -> None:
        self._window_s, self._step_s = window_s, half_life_s / _STEPS
        # By number, in the order in which they end: the pick, its cost, when, the step it began at.
        self._open: dict[int, tuple[P, float, float, int]] = {}
        self._place: dict[str, int] = {}
        self._turn, self._step = 0, int(now / self._step_s)
        self.loads: FloatArray = np.zeros(0)
        self.work: FloatArray = np.zeros(0)
        self.turns: IntArray = np.zeros(0, np.int64)
        self.arrange(())
        self.due_at = -inf

    def arrange(self, workers: tuple[str, ...]) -> None:
        """These workers from now on; who was there keeps what it has."""
        before = np.array([self._place.get(worker, -1) for worker in workers], np.int64)
        usual = self.work.mean() if len(self.work) else 0.0
        self.loads = np.append(self.loads, 0.0)[before]
        self.work = np.append(self.work, usual)[before]
        self.turns = np.append(self.turns, 0)[before]
        # One item is read or written through these in half the time.
        self._loads: memoryview[Any] = self.loads.data
        self._work: memoryview[Any] = self.work.data
        self._turns: memoryview[Any] = self.turns.data
        self._place = {worker: at for at, worker in enumerate(workers)}
        self._open = {id: one for id, one in self._open.items() if one[0].worker in self._place}

    def advance(self, now: float) -> None:
        """Let work fade, and end the picks that are overdue."""
        step = int(now / self._step_s)
        if step != self._step:
            self.work *= 0.5 ** ((step - self._step) / _STEPS)
            self._step = step
        overdue: list[P] = []
        self.due_at = (step + 1) * self._step_s
        for pick, _, ends_at, _ in self._open.values():
            if ends_at > now:
                self.due_at = min(self.due_at, ends_at)
                break
            overdue.append(pick)
        for pick in overdue:
            self.remove(pick)

    def add(self, pick: P, cost: float, now: float) -> None:
        """The pick's worker has `cost` more to do."""
        self._turn += 1
        at, ends_at = self._place[pick.worker], now + self._window_s
        self._loads[at] += cost
        self._work[at] += pick.to_compute
        self._turns[at] = self._turn
        self._open[pick.id] = pick, cost, ends_at, self._step
        if ends_at < self.due_at:
            self.due_at = ends_at

    def remove(self, pick: P) -> bool:
        """The pick has ended; False if it had before."""
        if pick.id not in self._open:
            return False
        _, cost, _, step = self._open.pop(pick.id)
        at, faded = self._place[pick.worker], 0.5 ** ((self._step - step) / _STEPS)
        self._loads[at] = _rest(self._loads[at] - cost)
        self._work[at] = _rest(self._work[at] - pick.to_compute * faded)
        return True

    def computed(self, worker: str, tokens: int) -> None:
        """The worker has computed that many tokens; nothing for one that is not there."""
        if worker in self._place:
            self._work[self._place[worker]] += tokens

    def open_pick(self, pick_id: int) -> P | None:
        """The pick of that number; None if it has ended."""
        return self._open[pick_id][0] if pick_id in self._open else None

    def of(self, worker: str) -> tuple[float, float]:
        """A worker's load and its work."""
        at = self._place[worker]
        return self._loads[at], self._work[at]

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


def _rest(difference: float) -> float:
    """Nothing is left of rounding."""
    return difference if difference > 1e-6 else 0.0


def check_load(value: object, name: str) -> None:
    """Raises InvalidArgumentError for what is no load."""
    if not (isinstance(value, (int, float)) and 0 <= value <= LARGEST_LOAD):
        raise InvalidArgumentError(
            f"{name} is {value!r}; it takes a number from 0 to {LARGEST_LOAD:g}", value=value
        )
