"""A cache and what requests of a log hold of it while they run."""

import numpy as np

from radixkv import PrefixCache
from radixkv.arrays import Int32Array
from radixkv.cache.request import Request
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.lab.replay.setting import MOST_SLOTS, Setting
from radixkv.pages import round_down, round_up


class Pool:
    """A real `PrefixCache` of the setting's capacity.

    peak_in_flight: the most slots that requests in flight held at a time, answers included where
    the capacity is the pool's.
    """

    def __init__(self, log: RequestLog, setting: Setting) -> None:
        self.setting = setting
        self.peak_in_flight = 0
        self.cache = _new_cache(log, setting)
        # Sessions that take turns by an order of ours do not come at the times of the log.
        self._has_clock = bool((np.diff(log.times) >= 0).all())

    def can_ever_fit(self, request: LoggedRequest) -> bool:
        """Whether the request and its answer are no longer than the pool."""
        size = round_up(len(self._tokens_of(request)), self.setting.page_size)
        return not self.setting.is_pool or size <= self.cache.num_slots

    def admit(self, request: LoggedRequest) -> Request | None:
        """The request with room for its prompt and its answer; None: no room now."""
        most = len(request.token_ids) - 1
        tokens = self._tokens_of(request)
        if self._has_clock and request.ts is not None:
            self.cache.tree.advance_clock(int(1000 * max(request.ts, 0.0)))
        admitted = self.cache.admit(tokens, request.namespace, max_cached=most)
        if admitted is not None:
            room = self.cache.free_size + self.cache.tree.evictable_size
            self.peak_in_flight = max(self.peak_in_flight, self.cache.num_slots - room)
        return admitted

    def share(self, admitted: Request, request: LoggedRequest) -> None:
        """The prompt is computed."""
        self.cache.publish(admitted, len(request.token_ids))

    def end(self, admitted: Request, request: LoggedRequest) -> None:
        """The answer is complete; it is cached if answers are."""
        computed = len(request.token_ids)
        if self.setting.outputs and request.outputs:
            if not self.setting.is_pool:
                self.cache.extend(admitted, request.outputs[0])
            computed = admitted.length
        self.cache.finish(admitted, computed)

    def _tokens_of(self, request: LoggedRequest) -> Int32Array:
        """What has its room from the beginning on: in a pool also the answer.

        So no request has to be retracted, and one that does not fit evicts nothing.
        """
        if self.setting.is_pool and request.outputs:
            return np.concatenate([request.token_ids, request.outputs[0]])
        return request.token_ids


def cached_of(admitted: Request, request: LoggedRequest) -> int:
    """Tokens of the prompt that were cached: at most all but one of its own, padding apart."""
    return min(admitted.cached_len, request.length - 1)


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
        # A pool has a page at least, though nothing is admitted to a smaller one.
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
            f"a pool must be of {MOST_SLOTS:,} slots or fewer; got {num_slots:,}: give {capacity}"
            + ", fewer requests in flight" * (setting.in_flight > 1)
            + f" or a smaller page size than {setting.page_size:,}" * (setting.page_size > 1),
            num_slots=num_slots,
        )
    return num_slots
