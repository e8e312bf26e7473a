"""The ordered log of what became cached and what was evicted.

Each call that changed the resident set makes one revision of one or more events. Replaying the log
from empty gives exactly what is resident. A reset begins a new epoch: its log starts with Cleared.
"""

import secrets
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

import numpy as np

from radixkv.errors import HistoryLostError
from radixkv.tree import Namespace, NodeInfo, Stored, Trimmed
from radixkv.tree.tokens import Int32Array

EVENT_BYTES = 256  # what an event costs beside its tokens, roughly


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything was forgotten."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change and the revision that it belongs to."""

    revision: int
    change: Stored | Trimmed | Cleared


class EventLog:
    """The last events, up to about `max_bytes` of them. Thread-safe.

    epoch: drawn at random at each boot and reset. revision: of the last change, from 0.
    compact_revision: history up to here is gone; `since` serves what came after it.
    is_complete: whether it still begins where its epoch began.
    """

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._bytes = 0
        self.epoch = _new_epoch()
        self.revision = 0
        self.compact_revision = 0
        self.is_complete = True

    def append(self, changes: Iterable[Stored | Trimmed]) -> None:
        """Add the changes of one call as one revision; nothing if there are none."""
        with self._lock:
            events = [Event(self.revision + 1, change) for change in changes]
            if events:
                self._add(events)

    def clear(self) -> None:
        """Begin a new epoch, whose first event is Cleared."""
        with self._lock:
            self.epoch = _new_epoch()
            self._events.clear()
            self._bytes = 0
            self.compact_revision = self.revision
            self.is_complete = True
            self._add([Event(self.revision + 1, Cleared())])

    def since(self, revision: int) -> list[Event]:
        """Events after `revision`, in order. Cost: O(events returned).

        Raises HistoryLostError where they are not all kept.
        """
        with self._lock:
            self._check_kept(revision)
            newer = takewhile(lambda event: event.revision > revision, reversed(self._events))
            return list(newer)[::-1]

    def _check_kept(self, revision: int) -> None:
        if not self.compact_revision <= revision <= self.revision:
            raise HistoryLostError(
                f"revision {revision} is not kept; {self.compact_revision} to {self.revision} are",
                compact_revision=self.compact_revision,
                revision=self.revision,
            )

    def _add(self, events: list[Event]) -> None:
        self.revision += 1
        self._events.extend(events)
        self._bytes += sum(map(_size, events))
        while self._bytes > self._max_bytes:
            self._drop_oldest_revision()

    def _drop_oldest_revision(self) -> None:
        self.compact_revision = self._events[0].revision
        self.is_complete = False
        while self._events and self._events[0].revision == self.compact_revision:
            self._bytes -= _size(self._events.popleft())


def _size(event: Event) -> int:
    codes = event.change.codes.nbytes if isinstance(event.change, Stored) else 0
    return EVENT_BYTES + codes


def _new_epoch() -> int:
    return secrets.randbits(63) | 1  # never 0, which means "any" on the wire


@dataclass(slots=True)
class Run:
    """Tokens that one insert added below what was there, less what was trimmed since."""

    parent_run: int
    parent_offset: int
    codes: Int32Array
    namespace: Namespace


Runs: TypeAlias = dict[int, Run]


def replay(events: Iterable[Event], runs: Runs | None = None) -> Runs:
    """The runs that are resident after `events`, from `runs` (changed in place) or from empty."""
    runs = {} if runs is None else runs
    for event in events:
        match event.change:
            case Stored(run, parent_run, parent_offset, codes, namespace):
                runs[run] = Run(parent_run, parent_offset, codes, namespace)
            case Trimmed(run, 0):
                runs.pop(run, None)
            case Trimmed(run, keep) if run in runs:
                runs[run].codes = runs[run].codes[:keep]
            case Cleared():
                runs.clear()
    return runs


def runs_of(nodes: Iterable[NodeInfo]) -> Runs:
    """The resident runs as the tree's nodes show them."""
    runs: Runs = {}
    by_id: dict[int, NodeInfo] = {}
    for node in nodes:
        by_id[node.id] = node
        if node.run_offset == 0:
            parent = by_id.get(node.parent_id)
            above = (parent.run, parent.run_offset + len(parent.codes)) if parent else (0, 0)
            runs[node.run] = Run(*above, node.codes, node.namespace)
        else:
            runs[node.run].codes = np.concatenate([runs[node.run].codes, node.codes])
    return runs
