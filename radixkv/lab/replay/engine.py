"""A stand-in for an engine: it serves requests of a log from a real `PrefixCache`."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from radixkv import PrefixCache
from radixkv.cache.request import Request
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.lab.replay.setting import MOST_SLOTS, Setting
from radixkv.pages import round_down, round_up

Ended: TypeAlias = Callable[[LoggedRequest], object]  # receives each request that ends


class _Running(NamedTuple):
    admitted: Request
    logged: LoggedRequest


class Engine:
    """A cache, with as many requests in flight as the setting says, the oldest ending first.

    peak_in_flight: the most slots that requests in flight held at a time, answers included where
    the capacity is the pool's. waited: how often a request waited for room and not for its turn.
    """

    def __init__(self, log: RequestLog, setting: Setting) -> None:
        self.setting = setting
        self.peak_in_flight = self.waited = 0
        self._running: deque[_Running] = deque()
        self.cache = _new_cache(log, setting)

    def serve(self, request: LoggedRequest, ended: Ended = lambda _: None) -> int | None:
        """Admit the request and share its prompt; how many of its tokens were cached.

        At most all but one of the prompt's own, padding apart. None: it is longer than the pool,
        and refused. ended: receives the requests that ended before it could be admitted.
        """
        while len(self._running) >= self.setting.in_flight:
            ended(self._end_oldest())
        if not self._can_ever_fit(request):
            return None
        while (admitted := self._admit(request)) is None:
            self.waited += 1
            ended(self._end_oldest())
        cached = min(admitted.cached_len, request.length - 1)
        self._running.append(_Running(admitted, request))
        self._note_peak()
        if self.setting.in_flight == 1:
            self._end_oldest()
        else:
            self.cache.publish(admitted, admitted.length)
        return cached

    def _can_ever_fit(self, request: LoggedRequest) -> bool:
        return not self.setting.is_pool or self._size(request) <= self.cache.num_slots

    def _size(self, request: LoggedRequest) -> int:
        """Slots that a request takes by its end."""
        tokens = len(request.token_ids) + self._answer_length(request)
        return round_up(tokens, self.setting.page_size)

    def _answer_length(self, request: LoggedRequest) -> int:
        """Tokens that need room from the beginning on, so that no request has to be retracted."""
        return len(request.outputs[0]) if self.setting.is_pool and request.outputs else 0

    def _admit(self, request: LoggedRequest) -> Request | None:
        admitted = self.cache.admit(request.token_ids, request.namespace)
        answer = self._answer_length(request)
        if admitted is None or not answer:
            return admitted
        if self.cache.reserve(admitted, answer) is None:
            self.cache.abort(admitted)
            return None
        return admitted

    def _end_oldest(self) -> LoggedRequest:
        admitted, request = self._running.popleft()
        if self.setting.outputs and request.outputs:
            self.cache.extend(admitted, request.outputs[0])
        self.cache.finish(admitted, admitted.length)
        return request

    def _note_peak(self) -> None:
        room = self.cache.free_size + self.cache.tree.evictable_size
        self.peak_in_flight = max(self.peak_in_flight, self.cache.num_slots - room)


def longest_request(log: RequestLog, page_size: int = 1) -> int:
    """Slots of the longest request with its answer, which a pool must hold to serve all."""
    totals = log.lengths + log.max_padding + log.output_lengths
    return round_up(int(totals.max(initial=1)), page_size)


def _new_cache(log: RequestLog, setting: Setting) -> PrefixCache:
    page_size, in_flight = setting.page_size, min(setting.in_flight, max(1, len(log)))
    holds_answers = setting.outputs or setting.is_pool
    totals = log.lengths + log.max_padding + (log.output_lengths if holds_answers else 0)
    longest = round_up(int(totals.max(initial=1)), page_size)
    needed = int((totals + page_size).sum())
    kept = None
    if setting.is_pool:
        # A pool has a page at least, though none is admitted to a smaller one.
        num_slots = max(round_down(min(needed, setting.capacity or 0), page_size), page_size)
    else:
        kept = setting.capacity
        if kept is not None:
            needed = min(needed, kept + in_flight * longest)
        num_slots = round_up(max(needed, longest), page_size)
    return PrefixCache(
        _checked(num_slots, setting),
        max_requests=in_flight,
        max_context_len=longest,
        page_size=page_size,
        policy=setting.policy,
        core=setting.core,
        max_cached_tokens=kept,
    )


def _checked(num_slots: int, setting: Setting) -> int:
    if num_slots > MOST_SLOTS:
        capacity = "a capacity" if setting.capacity is None else "a smaller capacity"
        raise InvalidArgumentError(
            f"{num_slots:,} tokens are more than a pool holds ({MOST_SLOTS:,}); give {capacity}"
            + ", fewer requests in flight" * (setting.in_flight > 1)
            + f" or a smaller page size than {setting.page_size:,}" * (setting.page_size > 1),
            num_slots=num_slots,
        )
    return num_slots
