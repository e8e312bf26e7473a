"""One server of a replay by time: requests queue, are computed in chunks, and share steps.

A step computes at most `Rates.chunk` prompt tokens, of the requests that were admitted first, and
gives each request that decodes a token. A request is admitted between steps, where it has room and
a place; its prompt is shared when the last of it is computed, in the step that gives its first
token. Steps in which nothing but decoding happens are taken together.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import NDArray

from radixkv.cache.request import Request
from radixkv.lab.logs.requests import Indices, LoggedRequest, RequestLog
from radixkv.lab.replay.pool import Pool, cached_of
from radixkv.lab.replay.rates import Rates
from radixkv.lab.replay.setting import Setting


class Served:
    """What becomes of each request of a log: (n,) each, in the order of the log.

    admitted_s, first_token_s, finished_s: seconds, NaN until it is so. cached_tokens: of the
    prompt. servers: which one had it, -1 for none.
    """

    def __init__(self, count: int) -> None:
        self.admitted_s: NDArray[np.float64] = np.full(count, np.nan)
        self.first_token_s: NDArray[np.float64] = np.full(count, np.nan)
        self.finished_s: NDArray[np.float64] = np.full(count, np.nan)
        self.cached_tokens: Indices = np.zeros(count, np.int64)
        self.servers: Indices = np.full(count, -1, np.int64)


@dataclass(slots=True)
class _Job:
    place: int
    logged: LoggedRequest
    admitted: Request
    left: int  # prompt tokens to compute

    @property
    def answer(self) -> int:
        return len(self.logged.outputs[0]) if self.logged.outputs else 0


class Server:
    """A pool and the requests that it serves, as long as its caller calls `begin` and `end`.

    ends_at: when what it does now is done; infinite while it does nothing.
    """

    def __init__(self, log: RequestLog, setting: Setting, rates: Rates, served: Served) -> None:
        self._log, self._setting, self._rates, self._served = log, setting, rates, served
        self.pool = Pool(log, setting)
        self.ends_at = inf
        self._waiting: deque[int] = deque()
        self._prefilling: deque[_Job] = deque()
        self._decoding: list[tuple[int, int, _Job]] = []  # by the step that gives its last token
        self._done_steps = self._kv_tokens = 0
        self._begun_at, self._steps = 0.0, 0  # of what it does now
        self._computed: list[_Job] = []  # whose first token comes with it

    def arrive(self, place: int, now: float) -> None:
        """The request at this place of the log waits here from now on."""
        is_next = not self._waiting and self._num_running < self._setting.in_flight
        self._waiting.append(place)
        if is_next and self._steps > 1:
            within = now - self._begun_at
            steps = self._rates.steps_within(within, len(self._decoding), self._kv_tokens)
            self._take_decode(min(steps, self._steps))

    def begin(self, now: float) -> bool:
        """Where it does nothing: admit what has room, and begin a step; whether it began one."""
        if self.ends_at < inf:
            return False
        self._begun_at = now
        self._admit(now)
        if self._prefilling:
            self._take_prefill()
        elif self._decoding:
            self._take_decode(max(self._decoding[0][0] - self._done_steps, 1))
        return self.ends_at < inf

    def end(self) -> list[int]:
        """What it did is done; the places of the requests that are complete with it."""
        now, count = self.ends_at, len(self._decoding)
        assert now < inf
        self._kv_tokens += self._steps * count
        self._done_steps += self._steps
        for job in self._computed:
            self._served.first_token_s[job.place] = now
            self.pool.share(job.admitted, job.logged)
            self._kv_tokens += job.logged.length + 1
            # This step gave the first token.
            heappush(self._decoding, (self._done_steps + max(job.answer - 1, 0), job.place, job))
        self._computed, self._steps, self.ends_at = [], 0, inf
        return self._finish(now)

    @property
    def _num_running(self) -> int:
        return len(self._prefilling) + len(self._computed) + len(self._decoding)

    def _admit(self, now: float) -> None:
        while self._waiting and self._num_running < self._setting.in_flight:
            place = self._waiting[0]
            request = self._log.request(place)
            admitted = self.pool.admit(request)
            if admitted is None:
                return
            self._waiting.popleft()
            cached = cached_of(admitted, request)
            self._served.cached_tokens[place], self._served.admitted_s[place] = cached, now
            self._prefilling.append(_Job(place, request, admitted, request.length - cached))

    def _take_prefill(self) -> None:
        room, pairs = self._rates.chunk, 0
        while self._prefilling and room:
            job = self._prefilling[0]
            taken = min(job.left, room)
            before = job.logged.length - job.left
            pairs += taken * before + taken * (taken + 1) // 2
            job.left, room = job.left - taken, room - taken
            if job.left:
                break
            self._computed.append(self._prefilling.popleft())
        prefill, count = self._rates.chunk - room, len(self._decoding)
        took = self._rates.step_s(prefill, pairs, count, self._kv_tokens)
        self._steps, self.ends_at = 1, self._begun_at + took

    def _take_decode(self, steps: int) -> None:
        took = self._rates.decode_s(steps, len(self._decoding), self._kv_tokens)
        self._steps, self.ends_at = steps, self._begun_at + took

    def _finish(self, now: float) -> list[int]:
        finished = []
        while self._decoding and self._decoding[0][0] <= self._done_steps:
            _, _, job = heappop(self._decoding)
            self._served.finished_s[job.place] = now
            self._kv_tokens -= job.logged.length + max(job.answer, 1)
            self.pool.end(job.admitted, job.logged)
            finished.append(job.place)
        return finished
