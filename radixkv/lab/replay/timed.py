"""Replays a log by its times: requests queue, are computed in chunks, and share steps with decode.

A step computes at most `Rates.chunk` prompt tokens, of the requests that were admitted first, and
gives each request that decodes a token. A request is admitted between steps, where it has room and
a place; its prompt is shared when the last of it is computed, in the step that gives its first
token. Steps in which nothing but decoding happens are taken together.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radixkv.cache.request import Request
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import LoggedRequest, Progress, RequestLog
from radixkv.lab.replay.pool import Pool, cached_of
from radixkv.lab.replay.rates import Rates
from radixkv.lab.replay.setting import Setting

_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, eq=False)
class TimedReplay:
    """(n,) each, in the order of the log: seconds since the first arrival, and tokens.

    first_token_s, finished_s: NaN for requests that are longer than the pool.
    """

    setting: Setting
    rates: Rates
    arrived_s: NDArray[np.float64]
    admitted_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finished_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    peak_in_flight: int

    def to_dict(self) -> dict[str, Any]:
        """Percentiles of the time to the first token, throughput and hit rate, as plain values."""
        served = ~np.isnan(self.finished_s)
        waits = (self.first_token_s - self.arrived_s)[served]
        whole = float(self.finished_s[served].max(initial=0.0))
        return {
            "hit_rate": float(self.cached_tokens.sum() / max(self.prompt_tokens.sum(), 1)),
            "requests": len(self.arrived_s),
            "refused": int((~served).sum()),
            "seconds": whole,
            "first_token_s": _quantiles(waits),
            "queued_s": _quantiles((self.admitted_s - self.arrived_s)[served]),
            "output_tokens_per_s": float(self.output_tokens[served].sum() / max(whole, 1e-9)),
            "prompt_tokens_per_s": float(self.prompt_tokens[served].sum() / max(whole, 1e-9)),
            "peak_in_flight": self.peak_in_flight,
        }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    if not len(values):
        return {}
    found = {name: float(np.quantile(values, at)) for name, at in _QUANTILES.items()}
    return {"mean": float(values.mean()), **found}


def timed_replay(
    log: RequestLog, setting: Setting, rates: Rates, *, progress: Progress | None = None
) -> TimedReplay:
    """Every request of `log` at its time through a fresh cache, on one server.

    setting: in_flight is the most requests that run at a time; they are admitted as they arrive.
    progress: receives the requests that are done. Raises InvalidArgumentError for a log without
    times and for another scheduling than arrival.
    """
    if np.isnan(log.times).any():
        raise InvalidArgumentError(
            "ts must be given in every request for a replay by time; got requests without"
        )
    if setting.scheduling.waiting != 1:
        raise InvalidArgumentError(
            "scheduling must be by arrival for a replay by time; got another"
        )
    return _Server(log, setting, rates).run(progress)


@dataclass(slots=True)
class _Job:
    place: int
    logged: LoggedRequest
    admitted: Request
    left: int  # prompt tokens to compute

    @property
    def answer(self) -> int:
        return len(self.logged.outputs[0]) if self.logged.outputs else 0


class _Server:
    def __init__(self, log: RequestLog, setting: Setting, rates: Rates) -> None:
        self._log, self._setting, self._rates = log, setting, rates
        self._pool = Pool(log, setting)
        self._order = np.argsort(log.times, kind="stable")
        self._arrived = log.times - log.times.min(initial=np.inf) if len(log) else log.times
        self._next = 0  # in `_order`: the first that has not arrived
        self._waiting: deque[int] = deque()
        self._prefilling: deque[_Job] = deque()
        self._decoding: list[tuple[int, int, _Job]] = []  # by the step that gives its last token
        self._step = self._kv_tokens = self._done = 0
        self._now = 0.0
        self._times = np.full((3, len(log)), np.nan)  # admitted, first token, finished
        self._cached = np.zeros(len(log), np.int64)

    def run(self, progress: Progress | None) -> TimedReplay:
        total = len(self._log)
        while self._done < total:
            self._arrive()
            self._admit()
            if self._prefilling:
                self._prefill_step()
            elif self._decoding:
                self._decode_steps()
            elif self._next < total:
                self._now = float(self._arrived[self._order[self._next]])
            if progress is not None:
                progress(self._done)
        admitted, first, finished = self._times
        return TimedReplay(
            self._setting, self._rates, self._arrived, admitted, first, finished,
            self._log.lengths.copy(), self._cached, self._log.output_lengths.copy(),
            self._pool.peak_in_flight,
        )  # fmt: skip

    @property
    def _running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    def _arrive(self) -> None:
        order, arrived = self._order, self._arrived
        while self._next < len(order) and arrived[order[self._next]] <= self._now:
            self._waiting.append(int(order[self._next]))
            self._next += 1

    def _admit(self) -> None:
        while self._waiting and self._running < self._setting.in_flight:
            place = self._waiting[0]
            request = self._log.request(place)
            if not self._pool.can_ever_fit(request):
                self._waiting.popleft()
                self._done += 1
                continue
            admitted = self._pool.admit(request)
            if admitted is None:
                return
            self._waiting.popleft()
            self._cached[place] = cached_of(admitted, request)
            self._times[0, place] = self._now
            left = request.length - int(self._cached[place])
            self._prefilling.append(_Job(place, request, admitted, left))

    def _prefill_step(self) -> None:
        room, finished = self._rates.chunk, list[_Job]()
        while self._prefilling and room:
            job = self._prefilling[0]
            taken = min(job.left, room)
            job.left, room = job.left - taken, room - taken
            if job.left:
                break
            finished.append(self._prefilling.popleft())
        prefill = self._rates.chunk - room
        self._advance(1, prefill)
        for job in finished:
            self._times[1, job.place] = self._now
            self._pool.share(job.admitted, job.logged)
            self._kv_tokens += job.logged.length + 1
            # This step gave the first token.
            heappush(self._decoding, (self._step + max(job.answer - 1, 0), job.place, job))
        self._finish()

    def _decode_steps(self) -> None:
        steps = max(self._decoding[0][0] - self._step, 1)
        may_come = len(self._decoding) < self._setting.in_flight and not self._waiting
        if may_come and self._next < len(self._order):
            until = float(self._arrived[self._order[self._next]]) - self._now
            count = len(self._decoding)
            steps = min(steps, self._rates.steps_within(until, count, self._kv_tokens))
        self._advance(steps, 0)
        self._finish()

    def _advance(self, steps: int, prefill: int) -> None:
        count = len(self._decoding)
        self._now += self._rates.steps_s(steps, prefill, count, self._kv_tokens)
        self._kv_tokens += steps * count
        self._step += steps

    def _finish(self) -> None:
        while self._decoding and self._decoding[0][0] <= self._step:
            _, _, job = heappop(self._decoding)
            self._times[2, job.place] = self._now
            self._kv_tokens -= job.logged.length + max(job.answer, 1)
            self._pool.end(job.admitted, job.logged)
            self._done += 1
