"""A stand-in for an engine: it serves requests of a log from a real `PrefixCache`."""

from collections import deque

from radixkv import PrefixCache
from radixkv.cache.request import Request
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.lab.replay.setting import MOST_SLOTS, Setting
from radixkv.pages import round_up


class Engine:
    """A cache, with as many requests in flight as the setting says, the oldest ending first."""

    def __init__(self, log: RequestLog, setting: Setting) -> None:
        self.setting = setting
        self._running: deque[tuple[Request, LoggedRequest]] = deque()
        page_size = setting.page_size
        totals = log.lengths + log.max_padding + (log.output_lengths if setting.outputs else 0)
        longest = round_up(int(totals.max(initial=1)), page_size)
        in_flight = min(setting.in_flight, max(1, len(log)))
        num_slots = int((totals + page_size).sum())
        if setting.capacity is not None:
            num_slots = min(num_slots, setting.capacity + in_flight * longest)
        self.cache = PrefixCache(
            _checked(round_up(max(num_slots, longest), page_size), setting),
            max_requests=in_flight,
            max_context_len=longest,
            page_size=page_size,
            policy=setting.policy,
            core=setting.core,
            max_cached_tokens=setting.capacity,
        )

    def serve(self, request: LoggedRequest) -> int:
        """Admit the request and share its prompt; how many of its tokens were cached.

        At most all but one of the prompt's own, padding apart.
        """
        self.make_room()
        return self.admit(request)

    def make_room(self) -> LoggedRequest | None:
        """End the oldest request in flight if there is no room for another."""
        if len(self._running) < self.setting.in_flight:
            return None
        admitted, request = self._running.popleft()
        self._end(admitted, request)
        return request

    def admit(self, request: LoggedRequest) -> int:
        """As `serve`, where there is room."""
        admitted = self.cache.admit(request.token_ids, request.namespace)
        assert admitted is not None  # the pool has room for all that are in flight
        cached = min(admitted.cached_len, request.length - 1)
        if self.setting.in_flight == 1:
            self._end(admitted, request)
        else:
            self.cache.publish(admitted, admitted.length)
            self._running.append((admitted, request))
        return cached

    def _end(self, admitted: Request, request: LoggedRequest) -> None:
        if self.setting.outputs and request.outputs:
            self.cache.extend(admitted, request.outputs[0])
        self.cache.finish(admitted)


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
