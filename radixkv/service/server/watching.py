"""Watch: the event log, read by any number of streams.

A watcher is a place in the log. Nothing is queued for it: it holds the page that it is writing. A
watcher that falls behind what the log keeps is cut. Watchers at one place share what is encoded.
"""

import asyncio
import logging
import weakref
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from radixkv.cache import PrefixCache
from radixkv.cache.events import Update
from radixkv.cache.runs import Runs, StoredRun
from radixkv.cache.snapshot import Snapshot, take_snapshot
from radixkv.errors import (
    DrainingError,
    HistoryLostError,
    InvalidArgumentError,
    WatcherTooSlowError,
)
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.limits import PROGRESS_S
from radixkv.service.event_codec import PIECE_BYTES, write_snapshot, write_update
from radixkv.tree import Namespace, Stored
from radixkv.v1.watch_pb2 import WatchRequest

logger = logging.getLogger(__name__)

# Changes this close together are sent together: a router loses nothing, and a watcher of a busy
# engine costs a few hundred messages a second, not one a revision.
_GATHER_S = 0.002
_PAGES_KEPT = 16
_FREED_AT_ONCE = 512


class LogNotifier:
    """Wakes the watchers of one event loop; any thread may notify."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_notified = False
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Cheap until the watchers have woken."""
        if not self._is_notified:
            self._is_notified = True
            self._loop.call_soon_threadsafe(self._loop.call_later, _GATHER_S, self._wake)

    def next(self) -> asyncio.Event:
        """Set at the next notification from now on."""
        return self._changed

    def _wake(self) -> None:
        self._is_notified = False
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@dataclass(frozen=True, slots=True)
class WatchPlace:
    """How far a watcher has got in the log."""

    epoch: int
    revision: int


# The place after it, and its messages.
Page: TypeAlias = tuple[WatchPlace, list[bytes]]


class Watches:
    """All watchers of one cache. Belongs to the event loop that made it.

    in_writer: runs a function in the writer, where it may keep the cache busy.
    """

    def __init__(self, cache: PrefixCache, in_writer: Callable[[Callable[[], Any]], Any]) -> None:
        self._cache, self._log = cache, cache.events
        self._in_writer = in_writer
        self._loop = asyncio.get_running_loop()
        self._notifier = LogNotifier(self._loop)
        self._pages: OrderedDict[tuple[WatchPlace, Namespace | None], Page] = OrderedDict()
        self._taking = asyncio.Lock()
        # Kept by the watchers that it is being sent to, however many they are.
        self._shared: weakref.ref[Snapshot] | None = None
        self._is_draining = False
        self.places: dict[object, WatchPlace] = {}
        self._log.listen(self._notifier.notify)

    def drain(self) -> None:
        """End all watches, with the revision after which to resume."""
        self._is_draining = True
        self._notifier.notify()

    def close(self) -> None:
        """Stop listening to the log."""
        self._log.unlisten(self._notifier.notify)

    def lag(self) -> int:
        """Revisions that the slowest watcher has not been sent yet."""
        # A copy: metrics ask from a thread of their own, while watchers come and go.
        places = list(self.places.values())
        return max((self._log.revision - place.revision for place in places), default=0)

    async def watch(self, request: WatchRequest, _: Call) -> AsyncGenerator[bytes, None]:
        """The messages of one stream, until the watcher goes or is cut."""
        namespace = _wanted(request)
        me = object()
        try:
            if request.snapshot:
                snapshot = await self._snapshot()
                self.places[me] = place = _place(snapshot)
                for piece in _write(snapshot, namespace):
                    self._check_kept(place)
                    yield piece
                del snapshot  # which others may share; the place is enough from here on
            else:
                self.places[me] = place = self._start(request)
                yield _progress(place)
            async for piece in self._follow(me, namespace, request.progress_notify):
                yield piece
        finally:
            self.places.pop(me, None)

    async def _follow(
        self, me: object, namespace: Namespace | None, sends_progress: bool
    ) -> AsyncGenerator[bytes, None]:
        while True:
            changed, place = self._notifier.next(), self.places[me]
            if self._is_draining:
                raise DrainingError(
                    f"the server is shutting down; resume after revision {place.revision}",
                    last_revision=place.revision,
                )
            after, pieces = self._page(place, namespace)
            for piece in pieces:
                yield piece
            self.places[me] = after
            if after != place:
                continue
            if not sends_progress:
                await changed.wait()
            elif not await _set_within(changed, PROGRESS_S):
                yield _progress(after)

    def _start(self, request: WatchRequest) -> WatchPlace:
        epoch, revision = self._log.position()
        if not request.start_revision:
            return WatchPlace(epoch, revision)
        self._log.check_epoch(request.epoch)
        place = WatchPlace(request.epoch, request.start_revision - 1)
        self._log.read(place.epoch, place.revision, 0)  # is it kept?
        return place

    def _page(self, place: WatchPlace, namespace: Namespace | None) -> Page:
        """What comes after `place`, and the place after that."""
        if (place.epoch, place.revision) == self._log.position():
            return place, []
        key = (place, namespace)
        if key not in self._pages:
            self._pages[key] = self._read_page(place, namespace)
            if len(self._pages) > _PAGES_KEPT:
                self._pages.popitem(last=False)
        return self._pages[key]

    def _read_page(self, place: WatchPlace, namespace: Namespace | None) -> Page:
        try:
            update = self._log.read(place.epoch, place.revision, PIECE_BYTES)
        except HistoryLostError as error:
            raise self._too_slow(place) from error
        if namespace is not None:
            update = _only(update, namespace)
        return WatchPlace(update.epoch, update.revision), list(write_update(update))

    async def _snapshot(self) -> Snapshot:
        """A snapshot that the log goes on from: one that is being sent, or else a new one."""
        async with self._taking:
            snapshot = self._shared() if self._shared is not None else None
            if snapshot is None or not self._is_kept(_place(snapshot)):
                steps = take_snapshot(self._cache.lock, self._cache.tree, self._log)
                snapshot = None
                while snapshot is None:  # calls have their turns in the writer between two slices
                    snapshot = await self._in_writer(partial(next, steps))
                self._shared = weakref.ref(snapshot)
                weakref.finalize(snapshot, self._free, snapshot.runs).atexit = False
        return snapshot

    def _free(self, runs: Runs) -> None:
        """Some at a time: all at once would keep the interpreter for some 30 ms."""
        for _ in range(min(_FREED_AT_ONCE, len(runs))):
            runs.popitem()
        if runs:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._free, runs)

    def _is_kept(self, place: WatchPlace) -> bool:
        return place.epoch == self._log.epoch and place.revision >= self._log.compact_revision

    def _check_kept(self, place: WatchPlace) -> None:
        """Raises WatcherTooSlowError where the log no longer has what comes after the place.

        After a clear it has: a watcher in the middle of a snapshot gets the rest and the clear.
        """
        if place.epoch == self._log.epoch and not self._is_kept(place):
            raise self._too_slow(place)

    def _too_slow(self, place: WatchPlace) -> WatcherTooSlowError:
        logger.info("a watcher at revision %d fell behind what the log keeps", place.revision)
        return WatcherTooSlowError(
            f"the log no longer has what came after revision {place.revision}",
            last_revision=place.revision,
            compact_revision=self._log.compact_revision,
        )


def _place(snapshot: Snapshot) -> WatchPlace:
    return WatchPlace(snapshot.epoch, snapshot.revision)


def _write(snapshot: Snapshot, namespace: Namespace | None) -> Iterator[bytes]:
    runs = snapshot.runs
    if namespace is not None:
        runs = {at: run for at, run in runs.items() if _is_in(run, namespace)}
    return write_snapshot(snapshot.epoch, snapshot.revision, runs)


def _wanted(request: WatchRequest) -> Namespace | None:
    """The namespace asked for, None for all; raises for what contradicts itself."""
    if request.snapshot and request.start_revision:
        raise InvalidArgumentError(
            "snapshot must be unset with start_revision, as a watch begins with one; got both",
            field="snapshot",
        )
    if request.start_revision and not request.epoch:
        raise InvalidArgumentError(
            f"epoch must be given with start_revision; got {request.start_revision} of no epoch",
            field="epoch",
        )
    if request.start_revision < 0:
        raise InvalidArgumentError(
            f"start_revision must be at least 0; got {request.start_revision}",
            field="start_revision",
        )
    return codec.read_namespace(request.namespace) if request.HasField("namespace") else None


def _only(update: Update, namespace: Namespace) -> Update:
    events = (
        event
        for event in update.events
        if not isinstance(event.change, Stored) or _is_in(event.change, namespace)
    )
    return update._replace(events=tuple(events))


def _is_in(stored: Stored | StoredRun, namespace: Namespace) -> bool:
    there = stored.namespace
    return namespace.weight_version in (0, there.weight_version) and (
        (namespace.salt, namespace.adapter, namespace.extra_key)
        == (there.salt, there.adapter, there.extra_key)
    )


def _progress(place: WatchPlace) -> bytes:
    (message,) = write_update(Update(place.epoch, place.revision))
    return message


async def _set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
