"""The smallest capacity that reaches a hit rate, or a time to the first token."""

from dataclasses import replace

import numpy as np

from radixkv.lab.logs.requests import RequestLog
from radixkv.lab.replay.curve import lru_curve
from radixkv.lab.replay.paths import Paths, find_paths
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.rates import Rates
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.timed import timed_replay
from radixkv.pages import round_up

PRECISION = 0.01  # of the capacity
_STEP = 1.1  # between guesses


class TargetSearch:
    """Replays of one log at capacities that come nearer; each is made once.

    In one pass alone where that is exact: LRU, one request in flight, in order of arrival, and the
    capacity that of the cache next to it. A pool is searched by replays from there on.
    """

    def __init__(self, log: RequestLog, setting: Setting, paths: Paths | None = None) -> None:
        self._log, self._setting = log, setting
        self._curve = lru_curve(
            paths or find_paths(log, page_size=setting.page_size, outputs=setting.outputs)
        )
        self._least = (
            longest_request(log, setting.page_size) if setting.capacity_of == "pool" else 0
        )
        self._rates: dict[int | None, float] = {}

    def hit_rate(self, capacity: int | None) -> float:
        """Of the setting at this capacity."""
        if self.is_exact and capacity is not None:
            return self._curve.hit_rate(capacity)
        if capacity not in self._rates:
            found = replay(self._log, replace(self._setting, capacity=capacity))
            self._rates[capacity] = found.hit_rate
        return self._rates[capacity]

    @property
    def is_exact(self) -> bool:
        """Whether one pass answers for every capacity."""
        how = self._setting
        return (
            how.capacity_of == "cache"
            and how.policy == "lru"
            and how.in_flight == how.scheduling.waiting == 1
        )

    def capacity_for(self, hit_rate: float) -> int | None:
        """The least capacity that reaches `hit_rate`, within 1 % where it is replayed.

        A pool holds the longest request at least. None if an infinite cache does not reach it.
        """
        if self.is_exact:
            return self._curve.capacity_for(hit_rate)
        if self.hit_rate(None) < hit_rate:
            return None
        low, high = self._bracket(hit_rate)
        while high - low > max(PRECISION * high, self._setting.page_size):
            middle = self._whole((low + high) / 2)
            if middle in (low, high):
                break
            if self.hit_rate(middle) < hit_rate:
                low = middle
            else:
                high = middle
        return high

    def _bracket(self, hit_rate: float) -> tuple[int, int]:
        """A capacity that is too small, or the least one, and one that is large enough."""
        guess = self._curve.capacity_for(hit_rate) or self._curve.largest_useful
        high = self._whole(max(guess, self._least, 1))
        while self.hit_rate(high) < hit_rate:
            high = self._whole(high * _STEP + 1)
        low = high
        while low > self._least and self.hit_rate(low) >= hit_rate:
            high, low = low, max(self._whole(low / _STEP) - self._setting.page_size, self._least)
        return (low, high) if self.hit_rate(low) < hit_rate else (low, low)

    def _whole(self, capacity: float) -> int:
        return round_up(int(capacity), self._setting.page_size)


def pool_for_first_token(
    log: RequestLog, setting: Setting, rates: Rates, seconds: float
) -> int | None:
    """The least pool, within 1 %, with which 95 % of first tokens come within `seconds`.

    None where not even unlimited room does. Raises InvalidArgumentError as `timed_replay` does.
    """

    def is_enough(capacity: int | None) -> bool:
        found = timed_replay(log, replace(setting, capacity=capacity), rates)
        waits = (found.first_token_s - found.arrived_s)[~np.isnan(found.first_token_s)]
        return bool(np.quantile(waits, 0.95) <= seconds) if len(waits) else True

    page_size = setting.page_size
    if not is_enough(None):
        return None
    low = high = longest_request(log, page_size)
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > max(PRECISION * high, page_size):
        middle = round_up((low + high) // 2, page_size)
        if middle in (low, high):
            break
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
