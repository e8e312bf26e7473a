"""The requests of a log, and the orders in which they can come.

file           as the log has them
time           by timestamp
interleave-16  sixteen sessions at a time, one request of each in turn
"""

import re
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.tree import DEFAULT, Namespace

Indices: TypeAlias = NDArray[np.int64]
Progress: TypeAlias = Callable[[int], object]  # receives how much is done
ORDERS = "file, time or interleave-N"


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRequest:
    """One request of a log.

    id: its number in the log, from 0. turn: its number in its session, from 0. ts: seconds, None
    where the log has no times. token_ids: (n,) int32, n >= 1, the prompt. outputs: the answers,
    one (m,) int32 a sample. padding: tokens at the end of `token_ids` that fill a last block, as
    caches of blocks keep it; they take room and do not count as tokens of the prompt.
    """

    id: int
    session: str
    turn: int
    ts: float | None
    token_ids: Int32Array
    outputs: tuple[Int32Array, ...] = ()
    namespace: Namespace = DEFAULT
    padding: int = 0

    @property
    def length(self) -> int:
        """Tokens of the prompt."""
        return len(self.token_ids) - self.padding


class RequestLog(Sequence[LoggedRequest]):
    """Requests, each made when it is asked for: a log may be far larger than memory.

    sessions: (n,) int64, the number of each request's session, from 0 in order of appearance.
    times: (n,) float64 seconds, NaN where the log has no time.
    lengths, output_lengths: (n,) int64, tokens of each prompt and of its first output; padding is
    at most `max_padding`. num_namespaces: how many different namespaces the requests have.
    """

    sessions: Indices
    times: NDArray[np.float64]
    lengths: Indices
    output_lengths: Indices
    max_padding: int = 0
    num_namespaces: int = 1

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[LoggedRequest]:
        return map(self.request, range(len(self)))

    @overload
    def __getitem__(self, at: int) -> LoggedRequest: ...
    @overload
    def __getitem__(self, at: slice) -> list[LoggedRequest]: ...
    def __getitem__(self, at: int | slice) -> LoggedRequest | list[LoggedRequest]:
        places = range(len(self))[at]
        return [*map(self.request, places)] if isinstance(places, range) else self.request(places)

    @abstractmethod
    def request(self, at: int) -> LoggedRequest:
        """The request at place `at`, 0 <= at < len."""


class ListedLog(RequestLog):
    """A log of requests that are in memory already."""

    def __init__(self, requests: Iterable[LoggedRequest]) -> None:
        self._requests = [*requests]
        numbers: dict[str, int] = {}
        self.sessions = np.array(
            [numbers.setdefault(each.session, len(numbers)) for each in self._requests], np.int64
        )
        self.times = np.array([each.ts for each in self._requests], np.float64)
        self.lengths = np.array([each.length for each in self._requests], np.int64)
        self.num_namespaces = len({each.namespace for each in self._requests})
        self.max_padding = max((each.padding for each in self._requests), default=0)
        self.output_lengths = np.array(
            [len(each.outputs[0]) if each.outputs else 0 for each in self._requests], np.int64
        )

    def request(self, at: int) -> LoggedRequest:
        return self._requests[at]


class OrderedLog(RequestLog):
    """The requests of `log` that `places` names, in that order."""

    def __init__(self, log: RequestLog, places: Indices) -> None:
        self._log, self.places = log, places
        self.sessions, self.times = log.sessions[places], log.times[places]
        self.lengths, self.output_lengths = log.lengths[places], log.output_lengths[places]
        self.max_padding, self.num_namespaces = log.max_padding, log.num_namespaces

    def request(self, at: int) -> LoggedRequest:
        return self._log.request(int(self.places[at]))


def in_order(log: RequestLog, order: str) -> RequestLog:
    """The same requests in the order named: file, time or interleave-N.

    By time, requests of one time keep the log's order. Raises InvalidArgumentError for another
    order, or for time where a request has none.
    """
    if order == "file":
        return log
    if order == "time":
        return OrderedLog(log, _by_time(log.times))
    interleaved = re.fullmatch(r"interleave-([1-9]\d{0,8})", order)
    if interleaved is None:
        raise InvalidArgumentError(f"order must be {ORDERS}; got {order!r}", order=order)
    return OrderedLog(log, interleave(log.sessions, int(interleaved[1])))


def interleave(sessions: Indices, at_a_time: int) -> Indices:
    """The places of requests when `at_a_time` sessions take turns.

    A round takes one request of each present session. After the round, sessions that ended leave,
    and the next sessions of the log join behind those that stay.

    >>> interleave(np.array([0, 0, 0, 1, 2, 2]), 2).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    waiting = _places_by_session(sessions)
    present: list[deque[int]] = []
    order: list[int] = []
    while present := [*present, *islice(waiting, at_a_time - len(present))]:
        order += [session.popleft() for session in present]
        present = [session for session in present if session]
    return np.array(order, np.int64)


def _places_by_session(sessions: Indices) -> Iterator[deque[int]]:
    by_session = np.argsort(sessions, kind="stable")
    starts = np.flatnonzero(np.diff(sessions[by_session])) + 1
    return (deque(places.tolist()) for places in np.split(by_session, starts) if len(places))


def _by_time(times: NDArray[np.float64]) -> Indices:
    if np.isnan(times).any():
        at = int(np.isnan(times).argmax())
        raise InvalidArgumentError(
            f"for the order time each request must have a time; got request {at} without: take the "
            "order file or interleave-N",
            request=at,
        )
    return np.argsort(times, kind="stable")
