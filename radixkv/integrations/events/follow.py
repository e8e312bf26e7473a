"""A router's index follows an engine that publishes KV events and knows nothing of us.

router.add_worker("a", EngineEvents("tcp://host-a:5557", "tcp://host-a:5558"), page_size=16)
"""

import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from radixkv.arguments import at_least
from radixkv.cache.events import Event, Update
from radixkv.errors import HistoryLostError, ServiceUnavailableError
from radixkv.integrations.events.mirror import BlockMirror

_END = 2**64 - 1
_REPLAY_S = 10.0
_CONNECT_S = 5.0
_PROGRESS_S = 5.0  # how often an engine that stores nothing is known to live
_LOOK_EVERY_MS = 200  # whether it is to end


class EngineEvents:
    """A `router.Source`: the events that an engine (SGLang, vLLM, or a cache of ours) publishes.

    Parameters
    ----------
    endpoint
        Where it publishes.
    replay
        Where it sends again; without one, what was stored before we came is never known.
    block_size
        Of its blocks, which is the worker's page size, too.
    topic
        Only messages of it.
    """

    def __init__(
        self, endpoint: str, replay: str | None = None, *, block_size: int = 16, topic: str = ""
    ) -> None:
        self._endpoint, self._replay, self._topic = endpoint, replay, topic.encode()
        self._block_size = at_least(1, block_size=block_size)

    def __call__(self, position: object = None) -> "EventStream":
        """Begin again, whatever was known: an engine has no snapshot, but its replay."""
        return EventStream(self._endpoint, self._replay, self._block_size, self._topic)


class EventStream:
    """Updates of one engine. Iterated by one thread, closed by another.

    Raises HistoryLostError where batches are missing that cannot be read again, or the engine
    restarted: what was known is void then.
    """

    def __init__(self, endpoint: str, replay: str | None, block_size: int, topic: bytes) -> None:
        self._is_closed = threading.Event()
        self._endpoint, self._replay, self._topic = endpoint, replay, topic
        self._mirror = BlockMirror(block_size)
        self._epoch, self._revision = secrets.randbits(63) | 1, 0
        self._next: int | None = None  # the number of the batch that comes next
        self._last_time = 0.0

    def __iter__(self) -> Iterator[Update]:
        with (
            zmq.Context() as context,
            context.socket(zmq.SUB) as live,
            live.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED) as link,
        ):
            live.setsockopt(zmq.LINGER, 0)
            live.set_hwm(0)
            live.connect(self._endpoint)
            live.subscribe(self._topic)
            if not self._connected(link):
                return
            yield Update(self._epoch, 0, is_start=True)
            yield from self._replayed(context, 0)
            poller = zmq.Poller()
            for socket in (live, link):
                poller.register(socket, zmq.POLLIN)
            seen_at = time.monotonic()
            while not self._is_closed.is_set():
                came = dict(poller.poll(_LOOK_EVERY_MS))
                if link in came:
                    # Numbers alone do not show that the next batches are of the same engine.
                    raise ServiceUnavailableError(f"{self._endpoint} ended the connection")
                if live in came:
                    _, number, batch = live.recv_multipart()
                    yield from self._received(context, int.from_bytes(number, "big"), batch)
                elif time.monotonic() < seen_at + _PROGRESS_S:
                    continue
                else:
                    yield Update(self._epoch, self._revision)
                seen_at = time.monotonic()

    def _connected(self, link: zmq.Socket[bytes]) -> bool:
        """Wait for the connection; False if closed first. Raises ServiceUnavailableError."""
        until = time.monotonic() + _CONNECT_S
        while not self._is_closed.is_set():
            if link.poll(_LOOK_EVERY_MS):
                if recv_monitor_message(link)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    return True
            elif time.monotonic() > until:
                raise ServiceUnavailableError(f"no engine publishes events at {self._endpoint}")
        return False

    def close(self) -> None:
        """End the iteration soon. Idempotent, safe at any time."""
        self._is_closed.set()

    def _received(
        self, context: zmq.Context[zmq.Socket[bytes]], number: int, batch: bytes
    ) -> Iterator[Update]:
        sent_at, events, *_ = msgspec.msgpack.decode(batch)
        if self._next is not None and number < self._next:
            if sent_at > self._last_time:
                raise HistoryLostError(f"{self._endpoint} restarted, with batch {number}")
            return  # the replay had it
        if self._next is not None and number > self._next:
            yield from self._replayed(context, self._next)
            if self._next < number:
                raise HistoryLostError(
                    f"batches {self._next} to {number - 1} of {self._endpoint} are lost"
                )
        if self._next is None or number == self._next:
            yield from self._apply(number, sent_at, events)

    def _apply(self, number: int, sent_at: float, events: list[Any]) -> Iterator[Update]:
        self._next, self._last_time = number + 1, sent_at
        changes = self._mirror.follow(events)
        if changes:
            self._revision += 1
            made = tuple(Event(self._revision, change) for change in changes)
            yield Update(self._epoch, self._revision, made)

    def _replayed(self, context: zmq.Context[zmq.Socket[bytes]], start: int) -> Iterator[Update]:
        """What can be had again from batch `start` on."""
        if self._replay is None:
            return
        with context.socket(zmq.DEALER) as asked:
            asked.setsockopt(zmq.LINGER, 0)
            asked.setsockopt(zmq.RCVTIMEO, int(_REPLAY_S * 1000))
            asked.connect(self._replay)
            asked.send_multipart((b"", start.to_bytes(8, "big")))
            while True:
                try:
                    *_, number, batch = asked.recv_multipart()
                except zmq.Again:
                    raise ServiceUnavailableError(
                        f"{self._replay} sent no replay within {_REPLAY_S:g} s"
                    ) from None
                at = int.from_bytes(number, "big")
                if at == _END:
                    return
                if self._next is None or at == self._next:
                    sent_at, events, *_ = msgspec.msgpack.decode(batch)
                    yield from self._apply(at, sent_at, events)
