"""Which of the waiting requests is admitted next.

arrival        first come, first served
longest-match  the request with most of its prompt cached; no request is passed over forever
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from radixkv.arguments import at_least
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import LoggedRequest, RequestLog
from radixkv.tree import Namespace

Arrived: TypeAlias = tuple[int, LoggedRequest]
Probe: TypeAlias = Callable[[Int32Array, Namespace], int]


@dataclass(frozen=True, slots=True)
class Scheduling:
    """waiting: requests to choose from. patience: how often a request is passed over at most."""

    waiting: int = 1
    patience: int = 0

    def __post_init__(self) -> None:
        at_least(1, waiting=self.waiting)
        at_least(0, patience=self.patience)


SCHEDULINGS = {"arrival": Scheduling(), "longest-match": Scheduling(waiting=64, patience=256)}


def scheduling_named(name: str) -> Scheduling:
    """The scheduling of that name. Raises InvalidArgumentError."""
    if name not in SCHEDULINGS:
        raise InvalidArgumentError(
            f"scheduling must be one of {', '.join(SCHEDULINGS)}; got {name!r}", scheduling=name
        )
    return SCHEDULINGS[name]


@dataclass(slots=True)
class _Waiting:
    arrival: int
    request: LoggedRequest
    passed_over: int = 0


def in_scheduled_order(log: RequestLog, how: Scheduling, probe: Probe) -> Iterator[Arrived]:
    """The requests with their places in `log`, in the order in which they are admitted.

    The queue holds the next `waiting` requests of the log. Of each session only the first request
    in the queue is a candidate, since the next one may need its answer. `probe` returns how many
    tokens of a prompt are cached; it is called again before each admission.
    """
    arriving = enumerate(log)
    if how.waiting == 1:
        yield from arriving
        return
    queue: list[_Waiting] = []
    while True:
        queue += [_Waiting(*each) for each in islice(arriving, how.waiting - len(queue))]
        if not queue:
            return
        chosen = _choose(queue, how.patience, probe)
        queue.remove(chosen)
        yield chosen.arrival, chosen.request


def _choose(queue: list[_Waiting], patience: int, probe: Probe) -> _Waiting:
    first_of_session: dict[str, _Waiting] = {}
    for each in queue:
        first_of_session.setdefault(each.request.session, each)
    candidates = first_of_session.values()
    overdue = (each for each in candidates if each.passed_over >= patience)
    chosen = next(overdue, None) or max(
        candidates, key=lambda each: probe(each.request.token_ids, each.request.namespace)
    )
    for each in candidates:
        each.passed_over += each.arrival < chosen.arrival
    return chosen
