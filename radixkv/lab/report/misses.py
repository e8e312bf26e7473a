"""Why the tokens of a log that were not in the cache were not: one cause for each.

A prompt of n tokens, from its first token to its last, each span with its cause or empty:

    [ cached | evicted | page | elsewhere | answer | diverged, appended or new | last ]
             ^ cached_len     ^ seen: the longest prefix that was ever shown to the cache
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from radixkv.arrays import Int32Array, common_length
from radixkv.lab.logs.requests import LoggedRequest, Progress, RequestLog
from radixkv.lab.replay.engine import Engine
from radixkv.lab.replay.scheduling import in_scheduled_order
from radixkv.lab.replay.setting import Setting
from radixkv.lab.report.history import Evictions, History
from radixkv.pages import round_down
from radixkv.tree import DEFAULT

NEAR = 32  # misses that part from one prefix within so many tokens are alike

CAUSES = {
    "evicted": "was cached once and evicted since",
    "page": "was seen, but does not fill a page",
    "elsewhere": "was seen in another namespace",
    "answer": "is the answer to an earlier request, which was not cached yet",
    "diverged": "stands behind a difference from an earlier request",
    "appended": "is new behind the whole of an earlier request",
    "new": "begins otherwise than any request before",
    "last": "is the last token, which is always computed",
    "refused": "belongs to a request that is longer than the pool",
}


@dataclass(frozen=True, slots=True)
class Miss:
    """Tokens [start, end) of a request that were computed, and why.

    time: the place of the request in the replay. other: that of the request to blame: the one it
    differs from or continues, or the one at whose coming the tokens were evicted. branch: the same
    for misses that part from one prefix within a few tokens. is_own: evicted as they came, for want
    of room or by choice of the policy.
    """

    cause: str
    time: int
    start: int
    end: int
    other: int | None = None
    branch: int = 0
    is_own: bool = False

    @property
    def tokens(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class MissReport:
    """Every miss of a replay, in order. places: where each request stands in the log."""

    setting: Setting
    misses: list[Miss] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    computed_tokens: int = 0

    def totals(self) -> dict[str, int]:
        """Tokens by cause, the most first; they add up to all that were computed."""
        found = dict.fromkeys(CAUSES, 0)
        for miss in self.misses:
            found[miss.cause] += miss.tokens
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def explain(
    log: RequestLog, setting: Setting | None = None, *, progress: Progress | None = None
) -> MissReport:
    """Replays the log and names the cause of each token that was not in the cache.

    progress: receives the requests that are done. Memory: some 20 bytes for each distinct token of
    the log, and 100 a miss.
    """
    explainer = _Explainer(log, setting or Setting())
    found = MissReport(explainer.setting)
    queue = in_scheduled_order(log, explainer.setting.scheduling, explainer.engine.cache.probe)
    for time, (place, request) in enumerate(queue):
        misses = explainer.serve(time, place, request)
        found.misses += misses
        found.places.append(place)
        found.prompt_tokens += request.length
        found.computed_tokens += sum(miss.tokens for miss in misses)
        if progress is not None:
            progress(time + 1)
    return found


class _Explainer:
    """The cache, and next to it all that it was ever shown."""

    def __init__(self, log: RequestLog, setting: Setting) -> None:
        self.setting, self._log = setting, log
        self.engine = Engine(log, setting)
        self._history, self._evictions = History(), Evictions()
        # Whatever was shown, as one namespace: only of use where there are several.
        self._anywhere = History() if log.num_namespaces > 1 else None
        self._places: list[int] = []
        self._running: dict[int, int] = {}
        self._revision = 0

    def serve(self, time: int, place: int, request: LoggedRequest) -> list[Miss]:
        """As `Engine.serve`; why what was computed was not there."""
        self._places.append(place)
        cached = self.engine.serve(request, lambda each: self._follow(time, each, has_ended=True))
        if cached is None:
            return [Miss("refused", time, 0, request.length)]
        self._running[request.id] = time
        seen = self._history.numbers(request.token_ids, request.namespace)
        elsewhere = self._anywhere.numbers(request.token_ids, DEFAULT) if self._anywhere else seen
        misses = self._misses(time, request, cached, seen, elsewhere)
        self._follow(time, request, has_ended=self.setting.in_flight == 1)
        return misses

    def _follow(self, now: int, request: LoggedRequest, *, has_ended: bool) -> None:
        """The cache was shown this request's tokens, and stored and evicted something."""
        path, namespace = request.token_ids, request.namespace
        if has_ended and self.setting.outputs:
            path = _with_output(request)
        time = self._running[request.id]
        numbers = self._history.add(path, namespace, time)
        if self._anywhere is not None:
            self._anywhere.add(path, DEFAULT, time)
        if has_ended:
            del self._running[request.id]
        log = self.engine.cache.events
        self._evictions.follow(log.since(self._revision), numbers, now)
        self._revision = log.revision

    def _misses(
        self,
        time: int,
        request: LoggedRequest,
        cached: int,
        seen: Int32Array,
        elsewhere: Int32Array,
    ) -> list[Miss]:
        length = request.length
        known, known_elsewhere = min(len(seen), length), min(len(elsewhere), length)
        whole = max(cached, round_down(min(known, length - 1), self.setting.page_size))
        behind = max(known, known_elsewhere)
        last = length - (behind == length)
        misses = self._evicted(time, cached, seen[:whole])
        misses.append(Miss("page", time, whole, min(known, last)))
        misses.append(Miss("elsewhere", time, max(known, whole), min(known_elsewhere, last)))
        if behind < last:
            history, numbers = self._history, seen
            if self._anywhere is not None and known_elsewhere > known:
                history, numbers = self._anywhere, elsewhere
            misses += self._unseen(time, request, history, numbers[:behind])
        misses.append(Miss("last", time, max(last, cached), length))
        return [miss for miss in misses if miss.tokens > 0]

    def _evicted(self, time: int, cached: int, numbers: Int32Array) -> list[Miss]:
        """A miss for each stretch that was evicted at one time."""
        # A page goes as a whole; others may share its first tokens, but never its last.
        page_size = self.setting.page_size
        ends = numbers[cached + page_size - 1 :: page_size]
        times = self._evictions.times(ends).repeat(page_size)
        are_own = self._evictions.are_own(ends).repeat(page_size)
        changes = (np.diff(times) != 0) | (np.diff(are_own.view(np.int8)) != 0)
        edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(times)]
        return [
            Miss(
                "evicted",
                time,
                cached + start,
                cached + end,
                other=int(times[start]),
                is_own=bool(are_own[start]),
            )
            for start, end in pairwise(edges)
            if start < end
        ]

    def _unseen(
        self, time: int, request: LoggedRequest, history: History, numbers: Int32Array
    ) -> list[Miss]:
        """Why the tokens behind all that was seen were never seen."""
        start, end = len(numbers), request.length
        if not start:
            return [Miss("new", time, 0, end)]
        other = history.first_shown(int(numbers[-1]))
        before = start // NEAR * NEAR
        branch = int(numbers[before - 1]) if before else 0
        earlier = self._log.request(self._places[other])
        is_answered = self.setting.outputs and earlier.id not in self._running
        path = _with_output(earlier) if is_answered else earlier.token_ids
        if len(path) > start:
            return [Miss("diverged", time, start, end, other, branch)]
        answer = 0 if is_answered else _answered(request.token_ids[start:end], earlier)
        return [
            Miss("answer", time, start, start + answer, other),
            Miss("appended", time, start + answer, end, other),
        ]


def _with_output(request: LoggedRequest) -> Int32Array:
    return np.concatenate([request.token_ids, *request.outputs[:1]])


def _answered(token_ids: Int32Array, earlier: LoggedRequest) -> int:
    """Leading tokens that are what `earlier` was answered."""
    if not earlier.outputs:
        return 0
    return common_length(earlier.outputs[0], token_ids)
