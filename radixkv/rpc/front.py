"""What stands before every handler: who may call, how many at once, how errors are told."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import grpc
from grpc_status import rpc_status

from radixkv.errors import (
    DeadlineExceededError,
    DrainingError,
    OverloadedError,
)
from radixkv.rpc import limits
from radixkv.rpc.auth import Tokens
from radixkv.rpc.call import Call
from radixkv.rpc.observer import Observer
from radixkv.rpc.rpcs import Kind, Request, Response, Rpc
from radixkv.rpc.status import to_status

T = TypeVar("T")


Answer = Callable[[Any, Call], Any]
Stream = Callable[[Any, Call], AsyncGenerator[bytes, None]]
_Handle = Callable[[Any, Any, Call], Awaitable[Any]]


class Front:
    """Makes gRPC handlers of what answers. Belongs to one event loop.

    lock: of what answers. While it is free, small calls of bounded work are answered at once, in
    the loop.
    writer: the one thread that answers all others, decoding and encoding included, so that the loop
    stays free: health answers while a large batch is matched, or while the engine holds the lock.
    """

    def __init__(
        self, writer: ThreadPoolExecutor, tokens: Tokens | None, observer: Observer, lock: RLock
    ) -> None:
        self._writer, self._tokens, self._observer = writer, tokens, observer
        self._lock = lock
        self._running: dict[Kind, int] = dict.fromkeys(limits.CONCURRENT_CALLS, 0)
        self._conversations: set[asyncio.Task[Any]] = set()
        self._ends: list[Callable[[], None]] = []
        self._is_draining = False

    def drain(self) -> None:
        """Refuse new calls, and end what would go on for ever."""
        self._is_draining = True
        for end in self._ends:
            end()
        for conversation in self._conversations:
            conversation.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not any(self._running.values())

    def in_writer(self, work: Callable[[], T]) -> Awaitable[T]:
        """`work` on the writer's thread; if it is cancelled before its turn, it never begins."""
        asked = time.perf_counter()

        def begin() -> T:
            self._observer.waited(time.perf_counter() - asked)
            return work()

        return asyncio.get_running_loop().run_in_executor(self._writer, begin)

    def unary(self, rpc: Rpc[Request, Response], answer: Answer) -> Any:
        """The handler of a call that `answer` answers, under the lock."""

        async def handle(data: bytes, _: Any, call: Call) -> bytes:
            is_small = rpc.is_bounded and len(data) <= limits.MOST_BYTES_AT_ONCE
            if is_small and self._lock.acquire(blocking=False):
                try:
                    return _answer(answer, data, call)
                finally:
                    self._lock.release()
            async with asyncio.timeout(limits.LONGEST_CALL_S):
                return await self.in_writer(partial(_answer, answer, data, call))

        return grpc.unary_unary_rpc_method_handler(self._guarded(rpc, handle))

    def stream(
        self, rpc: Rpc[Any, Any], answer: Stream, end: Callable[[], None] | None = None
    ) -> Any:
        """The handler of a call that `answer` answers with a stream of messages, in the loop.

        end: ends all such streams, where they do not end by themselves.
        """
        if end is not None:
            self._ends.append(end)

        async def handle(data: bytes, context: Any, call: Call) -> None:
            async with aclosing(answer(call.read(data), call)) as messages:
                async for message in messages:
                    await context.write(message)

        return grpc.unary_stream_rpc_method_handler(self._guarded(rpc, handle))

    def conversation(self, rpc: Rpc[Any, Any], answer: Answer) -> Any:
        """The handler of a call whose every message `answer` answers, in order, in the writer."""

        async def handle(messages: AsyncIterator[bytes], context: Any, call: Call) -> None:
            me = asyncio.current_task()
            assert me is not None
            self._conversations.add(me)
            try:
                async for data in messages:
                    await context.write(await self.in_writer(partial(_answer, answer, data, call)))
            except asyncio.CancelledError:
                if not self._is_draining:
                    raise
                raise _draining() from None
            finally:
                self._conversations.discard(me)

        return grpc.stream_stream_rpc_method_handler(self._guarded(rpc, handle))

    def _guarded(self, rpc: Rpc[Any, Any], handle: _Handle) -> Callable[[Any, Any], Awaitable[Any]]:
        async def guarded(request: Any, context: Any) -> Any:
            answer = None
            call = Call(rpc)
            with self._observer.call(call, context) as seen:
                try:
                    self._admit(call, context)
                    with self._counted(rpc.kind):
                        answer = await handle(request, context, call)
                except Exception as error:
                    seen.status = to_status(_ours(error))
                    seen.error = error
            if seen.error is not None:
                await context.abort_with_status(rpc_status.to_status(seen.status))
            return answer

        return guarded

    def _admit(self, call: Call, context: Any) -> None:
        """Raises unless the call may begin."""
        if self._tokens is not None:
            call.caller = self._tokens.principal(context.invocation_metadata())
            call.caller.check_rpc(call.rpc)
        if self._is_draining:
            raise _draining()

    @contextmanager
    def _counted(self, kind: Kind) -> Iterator[None]:
        most = limits.CONCURRENT_CALLS[kind]
        if self._running[kind] >= most:
            raise OverloadedError(
                f"{most} {kind} calls are under way; the server takes no more at once",
                retry_after_s=0.1,
                most=most,
            )
        self._running[kind] += 1
        try:
            yield
        finally:
            self._running[kind] -= 1


def _answer(answer: Answer, data: bytes, call: Call) -> bytes:
    response: bytes = answer(call.read(data), call).SerializeToString()
    return response


def _draining() -> DrainingError:
    return DrainingError("the server is shutting down", retry_after_s=1.0)


def _ours(error: Exception) -> Exception:
    if isinstance(error, TimeoutError):
        return DeadlineExceededError(f"no answer in {limits.LONGEST_CALL_S:g} s")
    return error
