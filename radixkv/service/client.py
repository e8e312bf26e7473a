"""Clients of a radixkv server, blocking and async, over the calls of `calls.py`."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import grpc
import grpc.aio

from radixkv.errors import InvalidArgumentError, ServiceError
from radixkv.service import calls
from radixkv.service.calls import Call
from radixkv.service.limits import CLIENT_OPTIONS, DEFAULT_ADDRESS
from radixkv.service.process import claim_process
from radixkv.service.rpcs import WATCH, Rpc
from radixkv.service.status import to_error
from radixkv.service.watch import AsyncWatch, Watch
from radixkv.tree import Namespace
from radixkv.v1.watch_pb2 import WatchRequest

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(build: Callable[P, Call[T]]) -> "Callable[Concatenate[Client, P], T]":
    """`build` as a method that makes the call and returns its answer."""

    @functools.wraps(build)
    def method(client: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._make(build(*args, **kwargs))

    return _as_method(method, build)


def _awaited(build: Callable[P, Call[T]]) -> "Callable[Concatenate[AsyncClient, P], Awaitable[T]]":
    """`build` as a coroutine method that makes the call and returns its answer."""

    @functools.wraps(build)
    async def method(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._make(build(*args, **kwargs))

    return _as_method(method, build)


Method = TypeVar("Method", bound=Callable[..., Any])


def _as_method(method: Method, build: Callable[..., Call[T]]) -> Method:
    """Shows `build`'s parameters and its answer's type to help() and to editors."""
    signature = inspect.signature(build)
    (answer,) = signature.return_annotation.__args__
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[itself, *signature.parameters.values()], return_annotation=answer
    )
    return method


class _Connection:
    """What both clients know: where they call, and how each RPC is called."""

    def __init__(self, target: str, channel: Any, timeout_s: float | None) -> None:
        self.target = target
        self._channel = channel
        self._timeout_s = _checked(timeout_s)
        self._methods: dict[str, Any] = {}
        self._is_closed = False

    def _start(self, call: Call[Any]) -> Any:
        timeout_s = _checked(call.timeout_s) or self._timeout_s or call.rpc.deadline_s
        return self._method(call.rpc)(call.request, timeout=timeout_s)

    def _method(self, rpc: Rpc[Any, Any], shape: str = "unary_unary") -> Any:
        """The RPC as a callable of the channel.

        Raises ForkedProcessError, and ServiceError after `close`.
        """
        claim_process()
        if self._is_closed:
            raise ServiceError(f"the client of {self.target} is closed")
        if rpc.path not in self._methods:
            self._methods[rpc.path] = getattr(self._channel, shape)(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
        return self._methods[rpc.path]

    def _open_watch(self, request: WatchRequest) -> Any:
        # The connection may still be in its own pause after a loss: wait for it, do not fail.
        return self._method(WATCH, "unary_stream")(request, wait_for_ready=True)


def _checked(timeout_s: float | None) -> float | None:
    """Raises InvalidArgumentError for what is no time that one can wait."""
    is_time = isinstance(timeout_s, int | float) and 0 < timeout_s < inf
    if timeout_s is not None and not is_time:
        raise InvalidArgumentError(
            f"timeout_s is {timeout_s!r}; it takes a number above 0, or None", timeout_s=timeout_s
        )
    return timeout_s


class Client(_Connection):
    """A blocking client; thread-safe. Errors are those of the library, raised as if it were here.

    target: "host:port" or "unix:/path". Connects at the first call.
    timeout_s: of calls that name none, instead of 1 s for `match` and 10 s for the others.
    Calls that change nothing are tried again while the server is unavailable, within their time.
    On the other side of a fork it raises ForkedProcessError.
    """

    def __init__(self, target: str = DEFAULT_ADDRESS, *, timeout_s: float | None = None) -> None:
        claim_process()
        super().__init__(target, grpc.insecure_channel(target, CLIENT_OPTIONS), timeout_s)

    match = _blocking(calls.match)
    server_info = _blocking(calls.server_info)
    stats = _blocking(calls.stats)

    def watch(
        self, namespace: Namespace | None = None, *, after: tuple[int, int] | None = None
    ) -> Watch:
        """What becomes cached and what is evicted, from a snapshot on; see `Watch`.

        namespace: only what is stored there; None: all. after: go on from this (epoch, revision),
        as the last update said, instead.
        """
        return Watch(self._open_watch, self.target, namespace, after)

    def _make(self, call: Call[T]) -> T:
        try:
            return call.read(self._start(call))
        except grpc.RpcError as error:
            raise to_error(error, self.target) from None

    def close(self) -> None:
        """Disconnect; calls under way are cancelled."""
        self._is_closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Connection):
    """`Client` for asyncio: the same calls, awaited. Belongs to the event loop that made it."""

    def __init__(self, target: str = DEFAULT_ADDRESS, *, timeout_s: float | None = None) -> None:
        claim_process()
        super().__init__(target, grpc.aio.insecure_channel(target, CLIENT_OPTIONS), timeout_s)

    match = _awaited(calls.match)
    server_info = _awaited(calls.server_info)
    stats = _awaited(calls.stats)

    def watch(
        self, namespace: Namespace | None = None, *, after: tuple[int, int] | None = None
    ) -> AsyncWatch:
        """See `Client.watch`."""
        return AsyncWatch(self._open_watch, self.target, namespace, after)

    async def _make(self, call: Call[T]) -> T:
        try:
            return call.read(await self._start(call))
        except grpc.RpcError as error:
            raise to_error(error, self.target) from None

    async def close(self) -> None:
        """Disconnect; calls under way are cancelled."""
        self._is_closed = True
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
