"""How much a worker's matches count by the age of what the index knows, and who may be picked."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from radixkv.router.index import PrefixIndex, WorkerView
from radixkv.router.pick_input import BoolArray, FloatArray, IntArray

# What a match counts of a worker that is stale.
_STALE_WEIGHT = 0.5
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
        """Bring `weights` and `allowed` up to date, by position of the workers. O(workers)."""
        if self._known_version == self._index.version and now < self._known_at + _REFRESH_S:
            return
        self._known_at, self._known_version = now, self._index.version
        is_stale, silent_s = self._index.freshness()
        weights = self._weights(is_stale, silent_s)
        self.weights = weights if (weights < 1).any() else None
        is_here = silent_s <= self._gone_after_s
        failing = [worker for worker, feeder in feeders.items() if feeder.is_failing]
        if failing:
            is_here &= ~np.isin(self._index.workers, failing)
        here = is_here.nonzero()[0]
        self.allowed = here if 0 < len(here) < len(is_here) else None

    def _weights(self, is_stale: BoolArray, silent_s: FloatArray) -> FloatArray:
        weights = np.where(is_stale, _STALE_WEIGHT, 1.0)
        too_silent = np.maximum(silent_s / self._silent_after_s - 1, 0.0)
        # Mostly no worker is, and a power of each takes a millisecond at 10,000.
        return weights * 0.5**too_silent if too_silent.any() else weights

    def weight(self, view: WorkerView) -> float:
        """What a token counts that the worker is known to hold: 0 to 1."""
        return self._weights(np.array([view.is_stale]), np.array([view.silent_s])).item()

    def is_here(self, view: WorkerView, feeder: HasFailures | None) -> bool:
        """Whether the worker is known to live."""
        is_failing = feeder is not None and feeder.is_failing
        return view.silent_s <= self._gone_after_s and not is_failing
