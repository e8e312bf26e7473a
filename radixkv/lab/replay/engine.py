"""A stand-in for an engine: it serves requests of a log one after another from a pool."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from radixkv.cache.request import Request
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.lab.replay.pool import Pool, cached_of
from radixkv.lab.replay.setting import Setting

Ended: TypeAlias = Callable[[LoggedRequest], object]  # receives each request that ends


class _Running(NamedTuple):
    admitted: Request
    logged: LoggedRequest


class Engine:
    """As many requests in flight as the setting says, the oldest ending first.

    waited: how often a request waited for room and not for its turn.
    """

    def __init__(self, log: RequestLog, setting: Setting) -> None:
        self.setting, self.pool = setting, Pool(log, setting)
        self.cache = self.pool.cache
        self.waited = 0
        self._running: deque[_Running] = deque()

    def serve(self, request: LoggedRequest, ended: Ended = lambda _: None) -> int | None:
        """Admit the request and share its prompt; how many of its tokens were cached.

        None: it is longer than the pool, and refused. ended: receives the requests that ended
        before it could be admitted.
        """
        while len(self._running) >= self.setting.in_flight:
            ended(self._end_oldest())
        if not self.pool.can_ever_fit(request):
            return None
        while (admitted := self.pool.admit(request)) is None:
            self.waited += 1
            ended(self._end_oldest())
        cached = cached_of(admitted, request)
        self._running.append(_Running(admitted, request))
        if self.setting.in_flight == 1:
            self._end_oldest()
        else:
            self.pool.share(admitted, request)
        return cached

    def _end_oldest(self) -> LoggedRequest:
        admitted, request = self._running.popleft()
        self.pool.end(admitted, request)
        return request
