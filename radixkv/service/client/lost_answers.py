"""Calls whose answer was lost: what they took is given back, as their caller does not know of it.

A call that ends by its deadline, or by a connection that breaks, may still have happened. It
is sent again under its request id, by which the server knows it, until its answer is there; then
what it took is given back.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from radixkv.errors import (
    DeadlineExceededError,
    DrainingError,
    OverloadedError,
    RadixKVError,
    ServiceUnavailableError,
)
from radixkv.service.client.calls import ClientCall

_TIMEOUT_S, _PAUSE_S = 10.0, 0.2


def may_have_happened(error: BaseException) -> bool:
    """Whether a call that ended so may have been done by the server."""
    if isinstance(error, OverloadedError | DrainingError):
        return False
    is_lost = isinstance(error, DeadlineExceededError | ServiceUnavailableError)
    return is_lost or not isinstance(error, Exception)  # a signal, or a task that is cancelled


class LostAnswers:
    """For a blocking client. send: makes a call. is_over: whether there is nothing to give back."""

    def __init__(self, send: Callable[[ClientCall[Any]], Any], is_over: Callable[[], bool]) -> None:
        self._send, self._is_over = send, is_over
        self._lost: deque[ClientCall[Any]] = deque()
        self._lock = threading.RLock()  # a finalizer may also make calls
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, call: ClientCall[Any]) -> None:
        """Give back what the call took, in a thread of its own."""
        if call.undo is None:
            return
        with self._lock:
            self._lost.append(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="radixkv-lost", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop: the lease ends, and gives back all that it holds."""
        self._closed.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._lost or self._closed.is_set():
                    self._thread = None
                    return
                call = self._lost.popleft()
            with suppress(RadixKVError):  # it never happened, or the lease is over
                self._undo(call)

    def _undo(self, call: ClientCall[Any]) -> None:
        assert call.undo is not None
        back = call.undo(self._until_answered(call))
        if back is not None:
            # Also under one request id: slots that were freed may be lent again meanwhile.
            self._until_answered(back)

    def _until_answered(self, call: ClientCall[Any]) -> Any:
        while True:
            try:
                return self._send(replace(call, timeout_s=_TIMEOUT_S))
            except (DeadlineExceededError, ServiceUnavailableError):
                if self._is_over() or self._closed.wait(_PAUSE_S):
                    raise


class AsyncLostAnswers:
    """The same for an async client."""

    def __init__(
        self, send: Callable[[ClientCall[Any]], Awaitable[Any]], is_over: Callable[[], bool]
    ) -> None:
        self._send, self._is_over = send, is_over
        self._undoing: set[asyncio.Task[None]] = set()

    def add(self, call: ClientCall[Any]) -> None:
        """Give back what the call took, in a task of its own."""
        if call.undo is not None:
            task = asyncio.create_task(self._undo(call))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)

    def close(self) -> None:
        """Stop: the lease ends, and gives back all that it holds."""
        for task in self._undoing:
            task.cancel()

    async def _undo(self, call: ClientCall[Any]) -> None:
        assert call.undo is not None
        with suppress(RadixKVError):
            back = call.undo(await self._until_answered(call))
            if back is not None:
                await self._until_answered(back)

    async def _until_answered(self, call: ClientCall[Any]) -> Any:
        while True:
            try:
                return await self._send(replace(call, timeout_s=_TIMEOUT_S))
            except (DeadlineExceededError, ServiceUnavailableError):
                if self._is_over():
                    raise
                await asyncio.sleep(_PAUSE_S)
