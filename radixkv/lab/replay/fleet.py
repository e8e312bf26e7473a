"""Which server of several gets a request: the real router, which follows the servers' caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from radixkv.arguments import at_least
from radixkv.cache.events import EventLog
from radixkv.lab.logs.requests import LoggedRequest
from radixkv.router import Pick, Router, new_policy

_PAGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fleet:
    """Several servers behind a router with one of its policies. Raises InvalidArgumentError."""

    workers: int = 1
    routing: str = "cache-aware"

    def __post_init__(self) -> None:
        at_least(1, workers=self.workers)
        new_policy(self.routing)


class Placement:
    """Places requests by what the router knows, at times that only go up.

    logs: the events of each server's cache.
    """

    def __init__(self, routing: str, logs: Sequence[EventLog]) -> None:
        self._now = 0.0
        # Every request ends here, and no server fails.
        self._router = Router(
            routing, clock=lambda: self._now,
            load_window_s=inf, silent_after_s=inf, gone_after_s=inf,
        )  # fmt: skip
        self._logs = logs
        self._positions = [(0, 0)] * len(logs)
        self._picks: dict[int, Pick] = {}
        for number in range(len(logs)):
            self._router.add_worker(str(number))

    def place(self, place: int, request: LoggedRequest, now: float) -> int:
        """The number of the server that gets the request at this place of the log."""
        self._now = now
        pick = self._router.pick(request.token_ids, request.namespace, key=request.session)
        self._picks[place] = pick
        return int(pick.worker)

    def report(self, server: int, now: float) -> None:
        """What a server's cache stored and evicted since the last time."""
        self._now = now
        log = self._logs[server]
        while self._positions[server] != log.position():
            update = log.read(*self._positions[server], _PAGE_BYTES)
            self._router.apply(str(server), update)
            self._positions[server] = update.epoch, update.revision

    def finish(self, place: int) -> None:
        """The answer of the request at this place is complete."""
        self._router.finish(self._picks.pop(place))
