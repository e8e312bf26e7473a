"""How far what the index says of a worker is to be believed, and whether to send it anything."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from radixkv.router.arrays import FloatArray, IntArray
from radixkv.router.index import PrefixIndex, WorkerView

# What a match counts while a snapshot is missing, or where the watch is known to lag far behind.
_DOUBTFUL = 0.5
_LAG_ALLOWED = 100
# How long what was found out is used again.
_FRESH_S = 0.1


class Failing(Protocol):
    """What follows a worker's watch; see `Feeder`."""

    @property
    def is_failing(self) -> bool: ...


class Trust:
    """Weights of workers, found out anew when the index changed or some time went by."""

    def __init__(self, index: PrefixIndex, silent_after_s: float, gone_after_s: float) -> None:
        self._index = index
        self._silent_after_s, self._gone_after_s = silent_after_s, gone_after_s
        self._known_at = -np.inf
        self._known_version = -1
        self.weights: FloatArray | None = None  # None: all are trusted in full
        self.allowed: IntArray | None = None  # None: all may be picked

    def refresh(self, now: float, feeders: Mapping[str, Failing]) -> None:
        """Bring `weights` and `allowed` up to date, by position of the workers."""
        if self._known_version == self._index.version and now < self._known_at + _FRESH_S:
            return
        self._known_at, self._known_version = now, self._index.version
        views = self._index.views()
        weights = np.array([self.weight(view) for view in views])
        self.weights = weights if (weights < 1).any() else None
        here = [at for at, view in enumerate(views) if self.is_here(view, feeders.get(view.worker))]
        self.allowed = np.array(here, np.int64) if 0 < len(here) < len(views) else None

    def weight(self, view: WorkerView) -> float:
        """What a token that the worker is said to hold counts: 0 to 1."""
        weight = 1.0
        if view.state != "current" or view.lag > _LAG_ALLOWED:
            weight = _DOUBTFUL
        if view.silent_s > self._silent_after_s:
            weight *= 0.5 ** (view.silent_s / self._silent_after_s - 1)
        return weight

    def is_here(self, view: WorkerView, feeder: Failing | None) -> bool:
        """Whether the worker is known to live."""
        is_failing = feeder is not None and feeder.is_failing
        return view.silent_s <= self._gone_after_s and not is_failing
