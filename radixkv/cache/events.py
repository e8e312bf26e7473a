"""The ordered log of what became cached and what was evicted.

Each call that changed the resident set makes one revision of one or more events. Replaying the log
from empty gives exactly what is resident. A reset begins a new epoch: its log starts with Cleared.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from radixkv.errors import EpochMismatchError, HistoryLostError, RevisionInFutureError
from radixkv.tree import NO_CHANGES, Changes, Stored, Trimmed

EVENT_BYTES = 256  # what an event costs besides its tokens, roughly


@dataclass(frozen=True, slots=True)
class Cleared:
    """Everything was forgotten."""


Logged: TypeAlias = Stored | Trimmed | Cleared


class _Clearing(tuple[Cleared]):
    """As `Changes`."""

    __slots__ = ()
    num_bytes = 0


_CLEARED = _Clearing((Cleared(),))


@dataclass(frozen=True, slots=True)
class Event:
    """One change and the revision that it belongs to."""

    revision: int
    change: Logged


class Update(NamedTuple):
    """What brings a follower to `revision` of `epoch`; without events: it is there already.

    is_start: what was known before is void; the events are the whole cache, or its first part.
    is_whole: False while more parts of the whole cache follow, all of them of this revision.
    """

    epoch: int
    revision: int
    events: tuple[Event, ...] = ()
    is_start: bool = False
    is_whole: bool = True


class Kept(NamedTuple):
    """What a log still has: the changes of one revision after another.

    is_complete: whether it begins where its epoch began.
    """

    changes: Sequence[Changes | _Clearing]
    is_complete: bool


class EventLog:
    """The last events, up to about `max_bytes` of them. Thread-safe.

    epoch: drawn at random at each boot and reset. revision: of the last change, from 0.
    compact_revision: history up to here is gone; `since` serves what came after it.
    is_complete: whether it still begins where its epoch began.
    """

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        self._max_bytes = max_bytes
        # Re-entrant: a finalizer or a signal handler that calls the cache may run at any line here.
        self._lock = threading.RLock()
        # By revision, without gaps: compact_revision + 1 to revision.
        self._kept: dict[int, Changes | _Clearing] = {}
        self._bytes = 0
        self._last: Changes | None = None
        self._listeners: list[Callable[[], None]] = []
        self.epoch = _new_epoch()
        self.revision = 0
        self.compact_revision = 0
        self.is_complete = True

    def append(self, changes: Changes) -> None:
        """Add the changes of one call as one revision; nothing if there are none."""
        if not changes:
            return
        # Each request pays for this: acquire() is half a `with`, no helper is called.
        lock = self._lock
        lock.acquire()
        try:
            self.revision = revision = self.revision + 1
            self._kept[revision] = self._last = changes
            self._bytes += EVENT_BYTES * len(changes) + changes.num_bytes
            if self._bytes > self._max_bytes:
                self._keep_bound()
        finally:
            lock.release()
        for listener in self._listeners:
            listener()

    def is_last(self, changes: Changes) -> bool:
        """Whether these were the last that `append` took."""
        return self._last is changes

    def clear(self) -> None:
        """Begin a new epoch, whose first event is Cleared."""
        with self._lock:
            self.epoch = _new_epoch()
            self._kept.clear()
            self._bytes = 0
            self.compact_revision = self.revision
            self.is_complete = True
            self.revision = revision = self.revision + 1
            self._kept[revision] = _CLEARED
            self._bytes += _size(_CLEARED)
            self._keep_bound()
        for listener in self._listeners:
            listener()

    def since(self, revision: int) -> list[Event]:
        """Events after `revision`, in order. Cost: O(events returned).

        Raises HistoryLostError where they are not all kept, RevisionInFutureError.
        """
        with self._lock:
            self._check_kept(revision)
            later = range(revision + 1, self.revision + 1)
            return list(chain.from_iterable(map(self._events_of, later)))

    def read(self, epoch: int, revision: int, max_bytes: int) -> Update:
        """What came after `revision` of `epoch`: whole revisions, as many as `max_bytes` hold, and
        one at least if there is one.

        After a reset the answer is of the new epoch, from its beginning on. Cost: O(events
        returned). Raises HistoryLostError where they are not all kept, RevisionInFutureError.
        """
        with self._lock:
            if epoch != self.epoch:
                revision = self._before_epoch()
            self._check_kept(revision)
            events: list[Event] = []
            size = 0
            while revision < self.revision and size < max_bytes:
                revision += 1
                events += self._events_of(revision)
                size += _size(self._kept.get(revision, NO_CHANGES))
            return Update(self.epoch, revision, tuple(events))

    def kept_until(self, epoch: int, revision: int) -> Kept:
        """What is kept of `epoch` up to `revision`; nothing after a reset.

        Cost: O(revisions), some 10 ns each: no event is made.
        """
        with self._lock:
            if epoch != self.epoch:
                return Kept((), False)
            kept = [*self._kept.values()][: max(revision - self.compact_revision, 0)]
            return Kept(kept, self.is_complete)

    def position(self) -> tuple[int, int]:
        """The present epoch and revision."""
        with self._lock:
            return self.epoch, self.revision

    def check_epoch(self, epoch: int) -> None:
        """Raises EpochMismatchError unless this is `epoch`."""
        if epoch != self.epoch:
            raise EpochMismatchError(
                f"epoch must be {self.epoch}, that of the cache; got {epoch}: "
                "forget what was known of it",
                epoch=self.epoch,
                expected_epoch=epoch,
            )

    def hold(self) -> None:
        """Let no other thread in until `release`; for a fork."""
        self._lock.acquire()

    def release(self) -> None:
        """Undo `hold`."""
        self._lock.release()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change, on the thread that made it, until `unlisten`."""
        with self._lock:
            self._listeners = [*self._listeners, listener]

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners = [other for other in self._listeners if other != listener]

    def _events_of(self, revision: int) -> list[Event]:
        # A revision whose append a signal handler interrupted has no changes yet.
        return [Event(revision, change) for change in self._kept.get(revision, ())]

    def _before_epoch(self) -> int:
        """The revision before Cleared; a log that lost it serves no one of another epoch."""
        return self.compact_revision if self.is_complete else -1

    def _check_kept(self, revision: int) -> None:
        if self.compact_revision <= revision <= self.revision:
            return
        error = RevisionInFutureError if revision > self.revision else HistoryLostError
        raise error(
            f"revision must be {self.compact_revision} to {self.revision}, which are kept; "
            f"got {revision}",
            compact_revision=self.compact_revision,
            revision=self.revision,
        )

    def _keep_bound(self) -> None:
        while self._bytes > self._max_bytes:
            self.compact_revision += 1
            self.is_complete = False
            # One that a signal handler interrupted is not there yet.
            self._bytes -= _size(self._kept.pop(self.compact_revision, NO_CHANGES))


def _size(changes: Changes | _Clearing) -> int:
    return EVENT_BYTES * len(changes) + changes.num_bytes


def _new_epoch() -> int:
    return secrets.randbits(63) | 1  # never 0, which means "any" on the wire
