"""How busy each worker is: the picks for it that have not ended, and its recent load."""

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from radixkv.errors import InvalidArgumentError
from radixkv.router.column import Column
from radixkv.router.pick_input import FloatArray, IntArray

# Recent load fades in so many steps each half-life, so that most picks need not touch it.
_STEPS = 64
# An answer's tokens take longer than a prompt's; measured, see `bench/routing.py`.
_ANSWER_WEIGHT = 1.5
# Picks that have not ended; beyond it the oldest count as finished.
MAX_OPEN_PICKS = 1 << 20
# Beyond it sums of loads would lose the small ones, and in the end stay infinite.
LARGEST_LOAD = 1e12


class Numbered(Protocol):
    """A pick: its number, its worker, its caller, and the tokens that it leaves to compute."""

    @property
    def id(self) -> int: ...
    @property
    def worker(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def to_compute(self) -> int: ...


P = TypeVar("P", bound=Numbered)


class OpenPick(NamedTuple, Generic[P]):
    """A pick that has not ended. load_weight: what it adds to its worker's load. work: what it adds
    to its pending work. ends_at: seconds by the clock, when it counts as finished. step: of fading,
    in which it began.
    """

    pick: P
    load_weight: float
    work: float
    ends_at: float
    step: int


class WorkerLoads(Generic[P]):
    """Arrays with an item for each worker, in the order in which they came.

    loads: sums of the load weights of picks that have not ended. A pick that is not finished within
    `window_s` counts as finished.
    pending: tokens that open picks leave each worker to compute, and 1.5 x what a pick is usually
    answered with, for each. Answers are seen in what workers report beyond what picks left
    them to compute.
    recent_loads: tokens that each worker has computed, and those that open picks leave it to
    compute; half as many after each `half_life_s`. A new worker starts with the mean of the others.
    last_picked: when each was picked last, as a count of picks.
    due_at: when `advance` has something to do.
    """

    def __init__(self, window_s: float, half_life_s: float, now: float) -> None:
        self._window_s, self._step_s = window_s, half_life_s / _STEPS
        # By number, in the order in which they end.
        self._open: dict[int, OpenPick[P]] = {}
        self.num_open_of: Counter[str] = Counter()  # by owner
        self._place: dict[str, int] = {}
        self._num_picks, self._step = 0, int(now / self._step_s)
        self._columns = [Column(dtype) for dtype in (float, float, float, np.int64)]
        self._view()
        self.due_at = -inf
        # Of recent picks, fading as recent loads do: how many, what they left, what was computed.
        self._picked = self._left = self._computed = 0.0

    def add_worker(self, worker: str) -> None:
        """One more worker, behind the others. Cost: their mean."""
        usual = self.recent_loads.mean() if len(self.recent_loads) else 0.0
        self._place[worker] = len(self._place)
        for column, item in zip(self._columns, (0.0, 0.0, usual, 0), strict=True):
            column.append(item)
        self._view()

    def remove_worker(self, worker: str) -> None:
        """A worker leaves, with its picks; those behind it move up. O(workers), O(open picks)."""
        at = self._place.pop(worker)
        self._place = {name: i for i, name in enumerate(self._place)}
        for column in self._columns:
            column.delete(at)
        self._view()
        left = {id: one for id, one in self._open.items() if one.pick.worker != worker}
        if len(left) < len(self._open):
            self._open = left
            self.num_open_of = Counter(one.pick.owner for one in left.values())

    def _view(self) -> None:
        self.loads: FloatArray
        self.last_picked: IntArray
        self.loads, self.pending, self.recent_loads, self.last_picked = (
            column.items for column in self._columns
        )
        # One item is read or written through these in half the time.
        self._loads: memoryview[Any] = self.loads.data
        self._pending: memoryview[Any] = self.pending.data
        self._recent_loads: memoryview[Any] = self.recent_loads.data
        self._last_picked: memoryview[Any] = self.last_picked.data

    def advance(self, now: float) -> None:
        """Fade recent loads, and end the picks that are overdue."""
        step = int(now / self._step_s)
        if step != self._step:
            self._fade(0.5 ** ((step - self._step) / _STEPS))
            self._step = step
        overdue: list[P] = []
        self.due_at = (step + 1) * self._step_s
        for one in self._open.values():
            if one.ends_at > now:
                self.due_at = min(self.due_at, one.ends_at)
                break
            overdue.append(one.pick)
        for pick in overdue:
            self.remove(pick)

    def _fade(self, by: float) -> None:
        self.recent_loads *= by
        self._picked, self._left, self._computed = (
            value * by for value in (self._picked, self._left, self._computed)
        )

    def usual_answer(self) -> float:
        """Tokens of a recent pick's answer, in the mean; 0 where no worker caches answers."""
        return max(self._computed - self._left, 0.0) / max(self._picked, 1.0)

    def usual_work(self, prompt_length: int) -> float:
        """What a pick adds to the pending work, in the mean; a prompt before there were any."""
        if self._picked < 1:
            return float(prompt_length)
        return self._left / self._picked + _ANSWER_WEIGHT * self.usual_answer()

    def add(self, pick: P, load_weight: float, now: float) -> None:
        """The pick's worker has `load_weight` more to do."""
        self._num_picks += 1
        at, ends_at = self._place[pick.worker], now + self._window_s
        work = load_weight * (pick.to_compute + _ANSWER_WEIGHT * self.usual_answer())
        self._picked += 1
        self._left += pick.to_compute
        self._loads[at] += load_weight
        self._pending[at] += work
        self._recent_loads[at] += pick.to_compute
        self._last_picked[at] = self._num_picks
        self._open[pick.id] = OpenPick(pick, load_weight, work, ends_at, self._step)
        self.num_open_of[pick.owner] += 1
        if len(self._open) > MAX_OPEN_PICKS:
            self.remove(next(iter(self._open.values())).pick)
        if ends_at < self.due_at:
            self.due_at = ends_at

    def remove(self, pick: P) -> bool:
        """The pick has ended; False if it had before."""
        one = self._open.pop(pick.id, None)
        if one is None:
            return False
        self.num_open_of[pick.owner] -= 1
        at, faded = self._place[pick.worker], 0.5 ** ((self._step - one.step) / _STEPS)
        self._loads[at] = _rest(self._loads[at] - one.load_weight)
        self._pending[at] = _rest(self._pending[at] - one.work)
        self._recent_loads[at] = _rest(self._recent_loads[at] - pick.to_compute * faded)
        return True

    def add_computed(self, worker: str, tokens: int) -> None:
        """The worker has computed that many tokens; nothing for one that is not there."""
        self._computed += tokens
        if worker in self._place:
            self._recent_loads[self._place[worker]] += tokens

    def open_pick(self, pick_id: int) -> P | None:
        """The pick of that number; None if it has ended."""
        return self._open[pick_id].pick if pick_id in self._open else None

    def of(self, worker: str) -> tuple[float, float]:
        """A worker's load and its recent load."""
        at = self._place[worker]
        return self._loads[at], self._recent_loads[at]

    def given(self, loads: Mapping[str, float]) -> tuple[IntArray, FloatArray]:
        """Positions of the workers that `loads` names, and the loads of all, by position.

        Ascending, (named,) int64, and (workers,) float64, 0 for a worker that is not named.
        Raises InvalidArgumentError for an unknown worker or a load out of range.
        """
        present = np.zeros(len(self._place))
        if not isinstance(loads, Mapping):
            raise InvalidArgumentError(f"loads must be a mapping of workers; got {loads!r}")
        for worker, load in loads.items():
            if worker not in self._place:
                raise InvalidArgumentError(
                    f"loads must name known workers; got {worker!r}", worker=worker
                )
            check_load(load, f"loads[{worker!r}]")
            present[self._place[worker]] = load
        return np.array(sorted(self._place[worker] for worker in loads), np.int64), present


def _rest(difference: float) -> float:
    """The difference, without what rounding leaves."""
    return difference if difference > 1e-6 else 0.0


def check_load(value: object, name: str) -> None:
    """Raises InvalidArgumentError unless `value` is a number from 0 to `LARGEST_LOAD`."""
    is_load = isinstance(value, int | float) and 0 <= value <= LARGEST_LOAD
    if not is_load or isinstance(value, bool):
        raise InvalidArgumentError(
            f"{name} must be a number from 0 to {LARGEST_LOAD:g}; got {value!r}", value=value
        )
