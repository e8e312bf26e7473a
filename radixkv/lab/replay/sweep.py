"""The same log through many caches, some at a time."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np

from radixkv.lab.logs.requests import Progress, RequestLog
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import Scheduling
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.summary import summary


def combinations(
    *,
    capacities: Iterable[int | None],
    policies: Iterable[str] = ("lru",),
    page_sizes: Iterable[int] = (1,),
    schedulings: Iterable[Scheduling] = (Scheduling(),),
    outputs: bool = False,
    in_flight: int = 1,
    capacity_of: str = "pool",
) -> list[Setting]:
    """A setting for each combination. Raises InvalidArgumentError."""
    return [
        Setting(
            page_size,
            capacity,
            policy,
            outputs,
            in_flight,
            scheduling,
            capacity_of=capacity_of,
        )
        for page_size, scheduling, capacity, policy in product(
            page_sizes, schedulings, capacities, policies
        )
    ]


def capacities_up_to(most: int, count: int, least: int = 1) -> list[int]:
    """`count` round capacities at equal factors, from a 256th of `most` to all of it.

    least: no capacity is below it, such as the longest request, which a pool must hold.

    >>> capacities_up_to(310, 5)
    [2, 5, 20, 78, 310]
    """
    most = max(1, most, least)
    wanted = np.geomspace(max(least, most / 256), most, count)
    # Two digits are enough, rounded up so that the last one holds everything.
    steps = 10 ** np.maximum(0, np.floor(np.log10(wanted) + 1e-9) - 1)
    return sorted({int(capacity) for capacity in np.ceil(wanted / steps - 1e-9) * steps})


def sweep(
    log: RequestLog,
    settings: list[Setting],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """The `summary` of a replay at each setting, in their order.

    jobs: processes, None: one a core; 1: this one. progress: receives the
    replays that are done.
    """
    jobs = min(jobs or os.cpu_count() or 1, len(settings))
    found = []
    for done, answer in enumerate(_answers(log, settings, jobs), start=1):
        found.append(answer)
        if progress is not None:
            progress(done)
    return found


def _answers(log: RequestLog, settings: list[Setting], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs <= 1:
        yield from (_answer(log, setting) for setting in settings)
        return
    # Not forked: the tokenizer's threads do not survive that.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_answer, [log] * len(settings), settings)


def _answer(log: RequestLog, setting: Setting) -> dict[str, Any]:
    return summary(replay(log, setting))
