"""How much a worker's matches count by the age of what the index knows, and who may be picked."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from radixkv.router.index import PrefixIndex, WorkerView
from radixkv.router.pick_input import FloatArray, IntArray

# What a match counts while a snapshot is missing, or where the watch is known to lag far behind.
_STALE_WEIGHT = 0.5
_LAG_ALLOWED = 100
# How long the weights are used again, unless the index changed.
_REFRESH_S = 0.1


class HasFailures(Protocol):
    """What follows a worker's watch; see `Feeder`."""

    @property
    def is_failing(self) -> bool: ...


class StalenessWeights:
    """Weights of workers, computed again when the index changed or after `_REFRESH_S`."""

    def __init__(self, index: PrefixIndex, silent_after_s: float, gone_after_s: float) -> None:
        self._index = index
        self._silent_after_s, self._gone_after_s = silent_after_s, gone_after_s
        self._known_at = -np.inf
        self._known_version = -1
        self.weights: FloatArray | None = None  # None: all weights are 1
        self.allowed: IntArray | None = None  # None: all workers may be picked

    def refresh(self, now: float, feeders: Mapping[str, HasFailures]) -> None:
        """Bring `weights` and `allowed` up to date, by position of the workers."""
        if self._known_version == self._index.version and now < self._known_at + _REFRESH_S:
            return
        self._known_at, self._known_version = now, self._index.version
        views = self._index.views()
        weights = np.array([self.weight(view) for view in views])
        self.weights = weights if (weights < 1).any() else None
        here = [at for at, view in enumerate(views) if self.is_here(view, feeders.get(view.worker))]
        self.allowed = np.array(here, np.int64) if 0 < len(here) < len(views) else None

    def weight(self, view: WorkerView) -> float:
        """What a token counts that the worker is known to hold: 0 to 1."""
        weight = 1.0
        if view.state != "current" or view.lag > _LAG_ALLOWED:
            weight = _STALE_WEIGHT
        if view.silent_s > self._silent_after_s:
            weight *= 0.5 ** (view.silent_s / self._silent_after_s - 1)
        return weight

    def is_here(self, view: WorkerView, feeder: HasFailures | None) -> bool:
        """Whether the worker is known to live."""
        is_failing = feeder is not None and feeder.is_failing
        return view.silent_s <= self._gone_after_s and not is_failing
