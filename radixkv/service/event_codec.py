"""Events between the log and the messages of Watch."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from radixkv.cache.events import Cleared, Event, Update
from radixkv.cache.runs import Runs
from radixkv.rpc import codec
from radixkv.tree import Stored, Trimmed
from radixkv.v1 import watch_pb2
from radixkv.v1.types_pb2 import ResponseHeader

# Below what glibc takes from the system again for each message.
PIECE_BYTES = 96 * 1024


def write_update(update: Update) -> Iterator[bytes]:
    """The update as messages of about `PIECE_BYTES`; without events one with its position alone."""
    header = ResponseHeader(epoch=update.epoch, revision=update.revision)
    piece: list[watch_pb2.Event] = []
    size = 0
    for message in _messages(update.events):
        if piece and size + message.ByteSize() > PIECE_BYTES:
            revision = piece[-1].revision
            yield _response(update.epoch, piece, more=message.revision == revision)
            piece, size = [], 0
        piece.append(message)
        size += message.ByteSize()
    yield watch_pb2.WatchResponse(header=header, events=piece).SerializeToString()


def _response(epoch: int, piece: list[watch_pb2.Event], *, more: bool) -> bytes:
    header = ResponseHeader(epoch=epoch, revision=piece[-1].revision)
    return watch_pb2.WatchResponse(header=header, events=piece, more=more).SerializeToString()


def write_snapshot(epoch: int, revision: int, runs: Runs) -> Iterator[bytes]:
    """All runs, parents first, as messages of about `PIECE_BYTES`.

    One message, without runs, for an empty cache.
    """
    header = ResponseHeader(epoch=epoch, revision=revision)
    stored = (
        Event(revision, Stored(number, run.parent_run, run.parent_offset, run.codes, run.namespace))
        for number, run in runs.items()
    )
    response = watch_pb2.WatchResponse(header=header, snapshot=True)
    size = 0
    for message in _messages(stored):
        if size and size + message.ByteSize() > PIECE_BYTES:
            response.more = message.stored.run_offset > 0
            yield response.SerializeToString()
            response = watch_pb2.WatchResponse(header=header, snapshot=True)
            size = 0
        response.events.append(message)
        size += message.ByteSize()
    response.snapshot_done = True
    yield response.SerializeToString()


def _messages(events: Iterable[Event]) -> Iterator[watch_pb2.Event]:
    for event in events:
        match event.change:
            case Stored() as stored:
                yield from _stored(event.revision, stored)
            case Trimmed(run, keep):
                trimmed = watch_pb2.Trimmed(run=run, keep=keep)
                yield watch_pb2.Event(revision=event.revision, trimmed=trimmed)
            case Cleared():
                yield watch_pb2.Event(revision=event.revision, cleared=watch_pb2.Cleared())


def _stored(revision: int, stored: Stored) -> Iterator[watch_pb2.Event]:
    """One message; a run that is too long for one comes in several."""
    namespace = None if stored.parent_run else codec.write_namespace(stored.namespace)
    step = PIECE_BYTES // 4
    for start in range(0, len(stored.codes), step):
        message = watch_pb2.Stored(
            run=stored.run,
            parent_run=stored.parent_run,
            parent_offset=stored.parent_offset,
            tokens=codec.pack(stored.codes[start : start + step]),
            namespace=namespace,
            run_offset=start,
        )
        yield watch_pb2.Event(revision=revision, stored=message)


class UpdateReader:
    """Makes updates of the messages of one stream; what comes in pieces is put together."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._parts: list[Stored] = []
        self._is_start = True

    def read(self, response: watch_pb2.WatchResponse) -> Update | None:
        """The next update; None if it takes more messages."""
        for message in response.events:
            self._add(message)
        if response.more:
            return None
        self._join()
        header, events = response.header, tuple(self._events)
        self._events = []
        if not response.snapshot:
            return Update(header.epoch, header.revision, events)
        is_start, self._is_start = self._is_start, False
        return Update(header.epoch, header.revision, events, is_start, response.snapshot_done)

    def _add(self, message: watch_pb2.Event) -> None:
        if not (message.HasField("stored") and message.stored.run_offset):
            self._join()
        match message.WhichOneof("kind"):
            case "stored":
                self._parts.append(self._read_stored(message.stored))
                if not message.stored.run_offset:
                    self._events.append(Event(message.revision, self._parts[0]))
            case "trimmed":
                trimmed = Trimmed(message.trimmed.run, message.trimmed.keep)
                self._events.append(Event(message.revision, trimmed))
            case "cleared":
                self._events.append(Event(message.revision, Cleared()))

    def _read_stored(self, stored: watch_pb2.Stored) -> Stored:
        return Stored(
            stored.run,
            stored.parent_run,
            stored.parent_offset,
            codec.unpack(stored.tokens),
            codec.read_namespace(stored.namespace),
        )

    def _join(self) -> None:
        """Make the parts of a long run one."""
        if len(self._parts) > 1:
            codes = np.concatenate([part.codes for part in self._parts])
            first = self._events[-1]
            self._events[-1] = Event(first.revision, replace(self._parts[0], codes=codes))
        self._parts = []
