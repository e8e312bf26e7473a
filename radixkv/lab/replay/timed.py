"""Replays a log by its times, on one server or on several behind a router."""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import Indices, Progress, RequestLog
from radixkv.lab.replay.fleet import Fleet, Placement
from radixkv.lab.replay.rates import Rates
from radixkv.lab.replay.server import Served, Server
from radixkv.lab.replay.setting import Setting

_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
_ONE = Fleet()


@dataclass(frozen=True, slots=True, eq=False)
class TimedReplay:
    """(n,) each, in the order of the log: seconds since the first arrival, and tokens.

    first_token_s, finished_s: NaN for requests that are longer than the pool. servers: the number
    of each request's server, -1 for those. peak_in_flight: the most slots that requests in flight
    held at a time, on one server.
    """

    setting: Setting
    rates: Rates
    fleet: Fleet
    arrived_s: NDArray[np.float64]
    admitted_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finished_s: NDArray[np.float64]
    prompt_tokens: Indices
    cached_tokens: Indices
    output_tokens: Indices
    servers: Indices
    peak_in_flight: int

    def to_dict(self) -> dict[str, Any]:
        """Percentiles of the time to the first token, throughput and hit rate, as plain values."""
        served = ~np.isnan(self.finished_s)
        waits = (self.first_token_s - self.arrived_s)[served]
        whole = float(self.finished_s[served].max(initial=0.0))
        return {
            "workers": self.fleet.workers,
            "routing": self.fleet.routing if self.fleet.workers > 1 else None,
            "hit_rate": float(self.cached_tokens.sum() / max(self.prompt_tokens.sum(), 1)),
            "requests": len(self.arrived_s),
            "refused": int((~served).sum()),
            "seconds": whole,
            "first_token_s": _quantiles(waits),
            "queued_s": _quantiles((self.admitted_s - self.arrived_s)[served]),
            "output_tokens_per_s": float(self.output_tokens[served].sum() / max(whole, 1e-9)),
            "prompt_tokens_per_s": float(self.prompt_tokens[served].sum() / max(whole, 1e-9)),
            "imbalance": self.imbalance,
            "peak_in_flight": self.peak_in_flight,
        }

    @property
    def imbalance(self) -> float:
        """The most tokens that a server computed and answered, over the mean; 1 if none did."""
        served = self.servers >= 0
        work = (self.prompt_tokens - self.cached_tokens + self.output_tokens)[served]
        sums = np.bincount(self.servers[served], weights=work, minlength=self.fleet.workers)
        return float(sums.max() / sums.mean()) if sums.any() else 1.0


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    if not len(values):
        return {}
    found = {name: float(np.quantile(values, at)) for name, at in _QUANTILES.items()}
    return {"mean": float(values.mean()), **found}


def _ignored(done: int) -> None:
    """Progress that is not shown."""


def timed_replay(
    log: RequestLog,
    setting: Setting,
    rates: Rates,
    fleet: Fleet = _ONE,
    *,
    progress: Progress | None = None,
) -> TimedReplay:
    """Every request of `log` at its time through fresh caches.

    setting: of each server; in_flight is the most requests that it runs at a time, which are
    admitted as they arrive. progress: receives the requests that are done.
    Raises InvalidArgumentError for a log without times and for another scheduling than arrival.
    """
    if np.isnan(log.times).any():
        raise InvalidArgumentError(
            "ts must be given in every request for a replay by time; got requests without"
        )
    if setting.scheduling.waiting != 1:
        raise InvalidArgumentError(
            "scheduling must be by arrival for a replay by time; got another"
        )
    return _TimedRun(log, setting, rates, fleet).run(progress or _ignored)


class _TimedRun:
    """What happens next, on any server: the end of a step, or else an arrival."""

    def __init__(self, log: RequestLog, setting: Setting, rates: Rates, fleet: Fleet) -> None:
        self._log, self._setting, self._rates, self._fleet = log, setting, rates, fleet
        self._served = Served(len(log))
        self._servers = [Server(log, setting, rates, self._served) for _ in range(fleet.workers)]
        logs = [server.pool.cache.events for server in self._servers]
        self._placement = Placement(fleet.routing, logs) if fleet.workers > 1 else None
        self._arrived = log.times - log.times.min(initial=inf)
        order = np.argsort(log.times, kind="stable")
        self._coming = deque(zip(self._arrived[order].tolist(), order.tolist(), strict=True))
        self._done = 0

    def run(self, progress: Progress) -> TimedReplay:
        while self._done < len(self._log):
            arrival = self._coming[0][0] if self._coming else inf
            now = min(arrival, *(server.ends_at for server in self._servers))
            assert now < inf, "what waits is waited for"
            for number, server in enumerate(self._servers):
                if server.ends_at == now:
                    self._end(number, now)
            while self._coming and self._coming[0][0] == now:
                self._arrive(self._coming.popleft()[1], now)
            for number, server in enumerate(self._servers):
                if server.begin(now):
                    self._report(number, now)
            progress(self._done)
        served = self._served
        return TimedReplay(
            self._setting, self._rates, self._fleet, self._arrived, served.admitted_s,
            served.first_token_s, served.finished_s, self._log.lengths.copy(),
            served.cached_tokens, self._log.output_lengths.copy(), served.servers,
            max(server.pool.peak_in_flight for server in self._servers),
        )  # fmt: skip

    def _arrive(self, place: int, now: float) -> None:
        request = self._log.request(place)
        if not self._servers[0].pool.can_ever_fit(request):
            self._done += 1
            return
        placement = self._placement
        number = placement.place(place, request, now) if placement else 0
        self._served.servers[place] = number
        self._servers[number].arrive(place, now)

    def _end(self, number: int, now: float) -> None:
        finished = self._servers[number].end()
        self._done += len(finished)
        self._report(number, now)
        if self._placement is not None:
            for place in finished:
                self._placement.finish(place)

    def _report(self, number: int, now: float) -> None:
        if self._placement is not None:
            self._placement.report(number, now)
