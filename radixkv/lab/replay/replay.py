"""Replays a log through a real `PrefixCache` and records what each request found."""

import time
from dataclasses import dataclass

import numpy as np

from radixkv.lab.logs.requests import Indices, Progress, RequestLog
from radixkv.lab.replay.engine import Engine
from radixkv.lab.replay.scheduling import in_scheduled_order
from radixkv.lab.replay.setting import Setting
from radixkv.tree import Namespace


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What each request found, in the order of scheduling: (n,) int64 each.

    ids: `LoggedRequest.id`. arrivals: the place of each in the order of the log. evicted_tokens:
    evicted since the request before. namespaces: places in `namespace_names`. refused: how many
    were longer than the pool; all their tokens count as computed. peak_in_flight: the most slots
    that requests in flight held at a time. waited: how often a request waited for room. seconds:
    how long the replay took.
    """

    setting: Setting
    ids: Indices
    arrivals: Indices
    prompt_tokens: Indices
    cached_tokens: Indices
    evicted_tokens: Indices
    namespaces: Indices
    namespace_names: list[Namespace]
    refused: int
    peak_in_flight: int
    waited: int
    seconds: float

    @property
    def hit_rate(self) -> float:
        """Tokens from the cache over prompt tokens, 0 to 1."""
        return float(self.cached_tokens.sum() / max(1, self.prompt_tokens.sum()))


def replay(
    log: RequestLog, setting: Setting | None = None, *, progress: Progress | None = None
) -> Replay:
    """Every request of `log` through a fresh cache.

    progress: receives the requests that are done. Raises InvalidArgumentError for more tokens than
    a pool holds.
    """
    setting = setting or Setting()
    begun = time.perf_counter()
    engine = Engine(log, setting)
    found = np.zeros((len(log), 6), np.int64)
    namespaces: dict[Namespace, int] = {}
    refused = 0
    queue = in_scheduled_order(log, setting.scheduling, engine.cache.probe)
    for done, (arrival, request) in enumerate(queue):
        cached = engine.serve(request)
        refused += cached is None
        numbers = request.length, cached or 0, engine.cache.totals.evicted_tokens
        namespace = namespaces.setdefault(request.namespace, len(namespaces))
        found[done] = request.id, arrival, *numbers, namespace
        if progress is not None:
            progress(done + 1)
    return Replay(
        setting,
        ids=found[:, 0],
        arrivals=found[:, 1],
        prompt_tokens=found[:, 2],
        cached_tokens=found[:, 3],
        evicted_tokens=np.diff(found[:, 4], prepend=0),
        namespaces=found[:, 5],
        namespace_names=[*namespaces],
        refused=refused,
        peak_in_flight=engine.pool.peak_in_flight,
        waited=engine.waited,
        seconds=time.perf_counter() - begun,
    )
