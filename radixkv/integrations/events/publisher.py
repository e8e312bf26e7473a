"""Batches over ZeroMQ, numbered from 0, and again what a subscriber missed.

PUB sends (topic, number, batch). A subscriber that sees a gap, or comes late, asks the ROUTER for
all from a number on, and gets them alike, and then an end, number -1. So do SGLang and vLLM.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
import zmq

from radixkv.errors import ListenError
from radixkv.integrations.events.messages import BlockEvent, EventBatch

KEPT_BATCHES = 10_000
_END = (-1).to_bytes(8, "big", signed=True)


class EventPublisher:
    """Publishes at `endpoint`, "tcp://*:5557" or the like; sends again at `replay`. Thread-safe.

    Parameters
    ----------
    endpoint
        Where to publish, "tcp://*:5557" or the like.
    replay
        Where what was missed may be asked for; None: nowhere.
    topic
        Before each batch.
    rank
        The data-parallel rank in each message.
    kept_batches
        How many can be sent again.

    Raises
    ------
    ListenError
        For an address that is taken or malformed.
    """

    def __init__(
        self,
        endpoint: str,
        replay: str | None = None,
        *,
        topic: str = "",
        rank: int | None = None,
        kept_batches: int = KEPT_BATCHES,
    ) -> None:
        self._context = zmq.Context()
        self._topic, self._rank = topic.encode(), rank
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=kept_batches)
        self._next = 0
        # Of what is kept and of the PUB socket, which any thread may send on, one at a time.
        self._lock = threading.Lock()
        self._encoder = msgspec.msgpack.Encoder()
        self._pub = self._bind(zmq.PUB, endpoint)
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = None
        self._thread = None
        if replay is not None:
            router = self._bind(zmq.ROUTER, replay)
            self.replay_endpoint = router.getsockopt_string(zmq.LAST_ENDPOINT)
            self._thread = threading.Thread(
                target=self._answer, args=(router,), name="radixkv-replay", daemon=True
            )
            self._thread.start()

    def _bind(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(0)  # what is kept bounds it; a batch that is dropped would be a gap
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise ListenError(f"cannot publish events at {endpoint}: {error}") from None
        return socket

    def publish(self, events: Sequence[BlockEvent]) -> int:
        """Send a batch; its number.

        Parameters
        ----------
        events
            A batch.

        Returns
        -------
        int
            From 0 on.
        """
        batch = self._encoder.encode(EventBatch(time.time(), list(events), self._rank))
        with self._lock:
            number = self._next
            self._next += 1
            self._kept.append((number, batch))
            self._pub.send_multipart((self._topic, number.to_bytes(8, "big"), batch))
        return number

    def _answer(self, router: zmq.Socket[bytes]) -> None:
        """Serve replays until the context ends."""
        try:
            while True:
                asker, *_, start = router.recv_multipart()
                first = int.from_bytes(start, "big")
                with self._lock:
                    kept = [(number, batch) for number, batch in self._kept if number >= first]
                for number, batch in kept:
                    seen = number.to_bytes(8, "big")
                    router.send_multipart((asker, b"", self._topic, seen, batch))
                router.send_multipart((asker, b"", b"", _END, b""))
        except zmq.ContextTerminated:
            router.close(linger=0)

    def close(self) -> None:
        """What was sent is delivered for a second at most. Idempotent."""
        with self._lock:
            self._pub.close(linger=1000)
        self._context.term()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
