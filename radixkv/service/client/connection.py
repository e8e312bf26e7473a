"""What all clients are made of: a channel, and how a call is sent over it, blocking or awaited."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from radixkv.arguments import as_flag
from radixkv.errors import InvalidArgumentError, ServiceError
from radixkv.rpc.address import check_target
from radixkv.rpc.channel_options import CLIENT_OPTIONS
from radixkv.rpc.limits import DEFAULT_ADDRESS
from radixkv.rpc.method_table import KEEP_LEASE_ALIVE, WATCH, Rpc
from radixkv.rpc.process import claim_process
from radixkv.rpc.status import to_error
from radixkv.rpc.tls import Tls
from radixkv.rpc.tracing import trace_context
from radixkv.service.client.calls import ClientCall
from radixkv.service.client.coalesce import AsyncCoalescer, Coalescer, can_join, waiting
from radixkv.service.client.lease import now_s
from radixkv.v1.watch_pb2 import WatchRequest

T = TypeVar("T")


class _Connection(ABC):
    """What both clients share: where they call, and how each RPC is called."""

    _grpc: Any
    _coalescing: Any

    def __init__(
        self,
        target: str = DEFAULT_ADDRESS,
        *,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float | None = None,
        coalesce: bool = True,
        clock: Callable[[], float] = now_s,
    ) -> None:
        check_target(target)
        _check_token(token)
        if tls is not None and not isinstance(tls, Tls):
            raise InvalidArgumentError(f"tls must be a Tls, or None; got {tls!r}")
        claim_process()
        self.target, self._clock = target, clock
        if tls is None:
            self._channel = self._grpc.insecure_channel(target, CLIENT_OPTIONS)
        else:
            credentials = tls.channel_credentials()
            self._channel = self._grpc.secure_channel(target, credentials, CLIENT_OPTIONS)
        self._coalescer = self._coalescing(self._call) if as_flag(coalesce, "coalesce") else None
        self._metadata: tuple[tuple[str, str], ...]
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._timeout_s = _checked(timeout_s)
        self._methods: dict[str, Any] = {}
        self._is_closed = False

    @abstractmethod
    def _call(self, call: ClientCall[Any]) -> Any:
        """The result, or an awaitable of it."""

    def _start(self, call: ClientCall[Any]) -> Any:
        return self._method(call.rpc)(
            call.encode(),
            timeout=self._time_for(call),
            metadata=(*self._metadata, *trace_context()),
        )

    def _time_for(self, call: ClientCall[Any]) -> float | None:
        return _checked(call.timeout_s) or self._timeout_s or call.rpc.deadline_s

    def _method(self, rpc: Rpc[Any, Any], shape: str = "unary_unary") -> Any:
        """The RPC as a callable of the channel.

        Raises ForkedProcessError, and ServiceError after `close`.
        """
        claim_process()
        if self._is_closed:
            raise ServiceError(f"the client of {self.target} is closed")
        if rpc.path not in self._methods:
            # Unary calls encode their requests themselves.
            serialize = None if shape == "unary_unary" else rpc.request.SerializeToString
            self._methods[rpc.path] = getattr(self._channel, shape)(
                rpc.path,
                request_serializer=serialize,
                response_deserializer=rpc.response.FromString,
            )
        return self._methods[rpc.path]

    def _open_watch(self, request: WatchRequest) -> Any:
        # The connection may still be in its own pause after a loss: wait for it, do not fail.
        watch = self._method(WATCH, "unary_stream")
        return watch(request, wait_for_ready=True, metadata=self._metadata)

    def open_keep_alive(self, requests: Any = None) -> Any:
        """The stream of a lease's renewals."""
        keep_alive = self._method(KEEP_LEASE_ALIVE, "stream_stream")
        return keep_alive(requests, wait_for_ready=True, metadata=self._metadata)


def _check_token(token: str | None) -> None:
    """Raises InvalidArgumentError, without the token, for one that no header can carry."""
    if token is not None and not isinstance(token, str):
        raise InvalidArgumentError(f"token must be a str, or None; got {type(token).__name__}")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise InvalidArgumentError(
            "token must be printable ASCII; got another character, such as a newline at its end"
        )


def _checked(timeout_s: float | None) -> float | None:
    """Raises InvalidArgumentError unless it is a number above 0, or None."""
    is_time = isinstance(timeout_s, int | float) and 0 < timeout_s < inf
    if timeout_s is not None and (isinstance(timeout_s, bool) or not is_time):
        raise InvalidArgumentError(
            f"timeout_s must be a number above 0, or None; got {timeout_s!r}", timeout_s=timeout_s
        )
    return timeout_s


class BlockingConnection(_Connection):
    """Sends calls, and waits for their results. Thread-safe."""

    _grpc = grpc
    _coalescing = Coalescer

    def send(self, call: ClientCall[T]) -> T:
        """Send a call that was built by `calls.py`; every other method does."""
        if self._coalescer is not None and can_join(call):
            result: T = self._coalescer.match(waiting(call, self._time_for(call)))
            return result
        return self._call(call)

    def _call(self, call: ClientCall[T]) -> T:
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


class AsyncConnection(_Connection):
    """Sends calls, whose results are awaited. Belongs to the event loop that made it."""

    _grpc = grpc.aio
    _coalescing = AsyncCoalescer

    async def send(self, call: ClientCall[T]) -> T:
        """See `Client.send`."""
        if self._coalescer is not None and can_join(call):
            result: T = await self._coalescer.match(waiting(call, self._time_for(call)))
            return result
        return await self._call(call)

    async def _call(self, call: ClientCall[T]) -> T:
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
