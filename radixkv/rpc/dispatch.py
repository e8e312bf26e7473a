"""From a gRPC call to its handler: checks the caller and the limits, reports errors as statuses."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import grpc
from grpc_status import rpc_status

from radixkv.errors import (
    DeadlineExceededError,
    DrainingError,
    MessageTooLargeError,
    OverloadedError,
    WatcherTooSlowError,
)
from radixkv.rpc import limits
from radixkv.rpc.auth import TokenFile
from radixkv.rpc.call import Call
from radixkv.rpc.method_table import Rpc
from radixkv.rpc.observer import Observer
from radixkv.rpc.quota import CallCounts, LateRefusals
from radixkv.rpc.status import to_status

T = TypeVar("T")

# From a request and its call to the response, or to a stream of encoded responses.
Handler = Callable[[Any, Call], Any]
StreamHandler = Callable[[Any, Call], AsyncGenerator[bytes, None]]


class Dispatcher:
    """Makes gRPC method handlers of our handlers. Belongs to one event loop.

    lock: of what the handlers use. While it is free, small calls of bounded work run in the loop.
    writer: the one thread that runs all others, decoding and encoding included, so that the loop
    stays free: health answers while a large batch is matched, or while the engine holds the lock.
    """

    def __init__(
        self, writer: ThreadPoolExecutor, tokens: TokenFile | None, observer: Observer, lock: RLock
    ) -> None:
        self._writer, self._tokens, self._observer = writer, tokens, observer
        self._lock = lock
        self._counts = CallCounts()
        self._late_refusals = LateRefusals()
        self._conversations: set[asyncio.Task[Any]] = set()
        self._on_drain: list[Callable[[], None]] = []
        self._is_draining = False

    def drain(self) -> None:
        """Refuse new calls, and end streams that do not end by themselves."""
        self._is_draining = True
        for end_streams in self._on_drain:
            end_streams()
        for conversation in self._conversations:
            conversation.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return self._counts.is_idle

    def in_writer(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work` in the writer; if it is cancelled before its turn, it never begins."""
        asked = time.perf_counter()

        def begin() -> T:
            self._observer.waited(time.perf_counter() - asked)
            return work()

        return asyncio.get_running_loop().run_in_executor(self._writer, begin)

    def unary(self, rpc: Rpc[Any, Any], handler: Handler) -> Any:
        """The gRPC method of a call with one request and one response."""

        async def serve(data: bytes, grpc_context: Any) -> bytes | None:
            async with self._admitted(rpc, grpc_context) as call:
                is_small = rpc.is_bounded and len(data) <= limits.MOST_BYTES_AT_ONCE
                if is_small and self._lock.acquire(blocking=False):
                    try:
                        return _respond(handler, data, call)
                    finally:
                        self._lock.release()
                run = asyncio.to_thread if rpc.is_walk else self.in_writer
                async with asyncio.timeout(limits.LONGEST_CALL_S):
                    return await run(partial(_respond, handler, data, call))
            return None

        return grpc.unary_unary_rpc_method_handler(serve)

    def stream(
        self,
        rpc: Rpc[Any, Any],
        handler: StreamHandler,
        on_drain: Callable[[], None] | None = None,
    ) -> Any:
        """The gRPC method of a call with one request and a stream of responses, made in the loop.

        on_drain: ends all such streams, where they do not end by themselves.
        """
        if on_drain is not None:
            self._on_drain.append(on_drain)

        async def serve(data: bytes, grpc_context: Any) -> None:
            async with (
                self._admitted(rpc, grpc_context) as call,
                aclosing(handler(call.read(data), call)) as messages,
            ):
                async for message in messages:
                    await _write(grpc_context, message)

        return grpc.unary_stream_rpc_method_handler(serve)

    def conversation(
        self,
        rpc: Rpc[Any, Any],
        handler: Handler,
        on_arrival: Callable[[Any, Call], None],
    ) -> Any:
        """The gRPC method of a call whose requests each get a response, in order, in the writer.

        on_arrival: called in the loop with each request as it comes, before it waits for its turn.
        """

        async def serve(requests: AsyncIterator[bytes], grpc_context: Any) -> None:
            async with (
                self._admitted(rpc, grpc_context) as call,
                self._ended_by_drain(),
            ):
                async for data in requests:
                    self._counts.spend(call.caller.name, call.caller.quota)
                    if len(data) > limits.LONGEST_STREAMED_REQUEST:
                        raise _too_long(len(data))
                    request = call.read(data)
                    on_arrival(request, call)
                    respond = partial(_encoded, handler, request, call)
                    await grpc_context.write(await self.in_writer(respond))

        return grpc.stream_stream_rpc_method_handler(serve)

    @asynccontextmanager
    async def _admitted(self, rpc: Rpc[Any, Any], grpc_context: Any) -> AsyncIterator[Call]:
        """Around a call: checked, counted and observed; an error ends it with its status."""
        call = Call(rpc)
        with self._observer.call(call, grpc_context) as outcome:
            try:
                self._check(call, grpc_context)
                with self._counts.counted(rpc.kind, call.caller.name, call.caller.quota):
                    yield call
            except Exception as error:
                outcome.status, outcome.error = to_status(_ours(error)), error
        if outcome.error is not None:
            if _is_too_often(outcome.error):
                await self._late_refusals.wait(call.caller.name, grpc_context.time_remaining())
            await grpc_context.abort_with_status(rpc_status.to_status(outcome.status))

    def _check(self, call: Call, grpc_context: Any) -> None:
        """Raises unless the call may begin."""
        if self._tokens is not None:
            call.caller = self._tokens.principal(grpc_context.invocation_metadata())
            call.caller.check_rpc(call.rpc)
        if self._is_draining:
            raise _draining()

    @asynccontextmanager
    async def _ended_by_drain(self) -> AsyncIterator[None]:
        """Around a conversation, which `drain` cancels: its client gets DrainingError."""
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_draining:
                raise
            raise _draining() from None
        finally:
            self._conversations.discard(task)


def _respond(handler: Handler, data: bytes, call: Call) -> bytes:
    return _encoded(handler, call.read(data), call)


def _encoded(handler: Handler, request: Any, call: Call) -> bytes:
    response: bytes = handler(request, call).SerializeToString()
    return response


async def _write(grpc_context: Any, message: bytes) -> None:
    """Send a message of a stream. A client that does not read it would keep what is being sent."""
    try:
        async with asyncio.timeout(limits.LONGEST_STALL_S):
            await grpc_context.write(message)
    except TimeoutError:
        raise WatcherTooSlowError(
            f"messages must be read within {limits.LONGEST_STALL_S:g} s; got a client that reads "
            "nothing"
        ) from None


def _too_long(size: int) -> MessageTooLargeError:
    most = limits.LONGEST_STREAMED_REQUEST
    return MessageTooLargeError(
        f"a request in a stream must be at most {most} bytes; got {size}",
        size=size,
        max_message_bytes=most,
    )


def _draining() -> DrainingError:
    return DrainingError("the server is shutting down", retry_after_s=1.0)


def _is_too_often(error: Exception) -> bool:
    """Whether a call is refused because its caller makes more a second than it may."""
    return isinstance(error, OverloadedError) and error.details.get("quota") == "calls_per_s"


def _ours(error: Exception) -> Exception:
    if isinstance(error, TimeoutError):
        return DeadlineExceededError(f"no response within {limits.LONGEST_CALL_S:g} s")
    return error
