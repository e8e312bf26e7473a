"""Watching a server's cache from a client: streams that resume after any loss.

The first update is a snapshot. After a lost connection the watch goes on where it was, and takes a
snapshot again where that history is gone, or the server is another one.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Self

import grpc

from radixkv.arguments import as_ids
from radixkv.cache.events import Update
from radixkv.errors import (
    EpochMismatchError,
    HistoryLostError,
    InvalidArgumentError,
    RadixKVError,
    ServiceUnavailableError,
    WatcherTooSlowError,
)
from radixkv.rpc import codec
from radixkv.rpc.status import to_error
from radixkv.service.client.methods import built
from radixkv.service.event_codec import UpdateReader
from radixkv.tree import Namespace
from radixkv.v1.watch_pb2 import WatchRequest, WatchResponse

logger = logging.getLogger(__name__)

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0
# Opens a stream for a request.
Open = Callable[[WatchRequest], Any]


class _Progress:
    """How far a watch has got, and its next request."""

    def __init__(self, namespace: Namespace | None, after: tuple[int, int] | None) -> None:
        self._namespace = None if namespace is None else built(codec.write_namespace, namespace)
        self._after = None if after is None else _place(after)
        self._pause_s = _SHORTEST_PAUSE_S
        self._reader = UpdateReader()
        built(self.request)

    def request(self) -> WatchRequest:
        """From the next revision on, or the whole cache."""
        self._reader = UpdateReader()
        request = WatchRequest(namespace=self._namespace, progress_notify=True)
        if self._after is None:
            request.snapshot = True
        else:
            request.epoch, request.start_revision = self._after[0], self._after[1] + 1
        return request

    def read(self, response: WatchResponse) -> Update | None:
        """The next update, once it is whole."""
        update = self._reader.read(response)
        if update is not None:
            self._pause_s = _SHORTEST_PAUSE_S
            if update.is_whole:
                self._after = update.epoch, update.revision
            elif update.is_start:
                self._after = None
        return update

    def pause_after(self, error: RadixKVError, target: str) -> float:
        """How long to wait before the next request; raises `error` where it is final."""
        if isinstance(error, WatcherTooSlowError):
            return 0.0
        if isinstance(error, HistoryLostError | EpochMismatchError):
            self._after = None
            return 0.0
        is_cut_off = error.details.get("code") == "CANCELLED"  # by a proxy, say
        if not isinstance(error, ServiceUnavailableError) and not is_cut_off:
            raise error
        if self._pause_s == _SHORTEST_PAUSE_S:  # the first failure since the last update
            place = "" if self._after is None else f" after revision {self._after[1]}"
            logger.info("the watch of %s was cut%s; trying again: %s", target, place, error)
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s


def _place(after: tuple[int, int]) -> tuple[int, int]:
    ids = as_ids(after, "after")
    if len(ids) != 2:
        raise InvalidArgumentError(f"after must be (epoch, revision); got {after!r}")
    return ids[0], ids[1]


class Watch:
    """An endless iterator of `Update`; `close`, from any thread, ends it.

    Raises errors that another attempt would not mend, such as ForbiddenError.

    Parameters
    ----------
    open_
        Opens a stream for a request.
    target
        The server, for the log.
    namespace
        Only what is stored there; None: all.
    after
        The (epoch, revision) to go on from; None: a snapshot comes first.
    """

    def __init__(
        self, open_: Open, target: str, namespace: Namespace | None, after: tuple[int, int] | None
    ) -> None:
        self._open, self._target = open_, target
        self._progress = _Progress(namespace, after)
        self._closed = threading.Event()
        self._stream: Any = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Update:
        while not self._closed.is_set():
            try:
                self._stream = self._stream or self._open(self._progress.request())
                update = self._progress.read(next(self._stream))
            except StopIteration:
                self._stream = None
            except grpc.RpcError as error:
                self._stream = None
                if not self._closed.is_set():
                    failed = to_error(error, self._target)
                    self._closed.wait(self._progress.pause_after(failed, self._target))
            else:
                if update is not None:
                    return update
        self._cancel()
        raise StopIteration

    def close(self) -> None:
        """End the watch: a thread that waits for an update gets StopIteration."""
        self._closed.set()
        self._cancel()

    def _cancel(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncWatch:
    """`Watch` for asyncio; belongs to the event loop that made it."""

    def __init__(
        self, open_: Open, target: str, namespace: Namespace | None, after: tuple[int, int] | None
    ) -> None:
        self._open, self._target = open_, target
        self._progress = _Progress(namespace, after)
        self._is_closed = False
        self._stream: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        while not self._is_closed:
            try:
                self._stream = self._stream or self._open(self._progress.request())
                response = await self._stream.read()
                if not isinstance(response, WatchResponse):  # the end of the stream
                    self._stream = None
                    continue
                update = self._progress.read(response)
                if update is not None:
                    return update
            except grpc.RpcError as error:
                self._stream = None
                if not self._is_closed:
                    failed = to_error(error, self._target)
                    await asyncio.sleep(self._progress.pause_after(failed, self._target))
            except asyncio.CancelledError:
                if not self._is_closed:
                    raise
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the watch."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
