"""Clients of a radixkv server, blocking and async, over the calls of `calls.py`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import inf
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from radixkv.errors import InvalidArgumentError, ServiceError
from radixkv.rpc.address import check_target
from radixkv.rpc.channel_options import CLIENT_OPTIONS
from radixkv.rpc.limits import DEFAULT_ADDRESS
from radixkv.rpc.method_table import KEEP_LEASE_ALIVE, WATCH, Rpc
from radixkv.rpc.process import claim_process
from radixkv.rpc.status import to_error
from radixkv.rpc.tls import Tls
from radixkv.rpc.tracing import trace_context
from radixkv.service.client import admin_calls, calls, lease_calls
from radixkv.service.client.calls import ClientCall
from radixkv.service.client.coalesce import AsyncCoalescer, Coalescer, can_join, waiting
from radixkv.service.client.lease import AsyncLease, Lease, PendingLease, Term, now_s
from radixkv.service.client.methods import awaited, blocking, built
from radixkv.service.client.watch import AsyncWatch, Watch
from radixkv.tree import Namespace
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
        claim_process()
        self.target, self._clock = target, clock
        if tls is None:
            self._channel = self._grpc.insecure_channel(target, CLIENT_OPTIONS)
        else:
            credentials = tls.channel_credentials()
            self._channel = self._grpc.secure_channel(target, credentials, CLIENT_OPTIONS)
        self._coalescer = self._coalescing(self._call) if coalesce else None
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
    if token is not None and not (token.isascii() and token.isprintable()):
        raise InvalidArgumentError(
            "token must be printable ASCII; got another character, such as a newline at its end"
        )


def _checked(timeout_s: float | None) -> float | None:
    """Raises InvalidArgumentError unless it is a number above 0, or None."""
    is_time = isinstance(timeout_s, int | float) and 0 < timeout_s < inf
    if timeout_s is not None and not is_time:
        raise InvalidArgumentError(
            f"timeout_s must be a number above 0, or None; got {timeout_s!r}", timeout_s=timeout_s
        )
    return timeout_s


class Client(_Connection):
    """A blocking client; thread-safe. Errors are those of the library, raised as if it were here.

    target: "host:port" or "unix:/path". Connects at the first call.
    token: one of the server's tokens file. tls: see `Tls`.
    timeout_s: of calls without one of their own, instead of 1 s for `match`, `lease_info`,
    `revoke_lease` and those under a lease, and 10 s for the others.
    coalesce: matches of single prompts that come while one is under way go together.
    Calls are repeated while the server is unavailable, within their time; those that must not
    happen twice carry an id by which the server recognizes them.
    Raises InvalidArgumentError for a target that is not an address, ForkedProcessError in a process
    that was forked from one which used gRPC.
    """

    _grpc = grpc
    _coalescing = Coalescer

    match = blocking(calls.match)
    server_info = blocking(calls.server_info)
    stats = blocking(calls.stats)
    lease_info = blocking(lease_calls.lease_info)
    leases = blocking(lease_calls.leases)
    revoke_lease = blocking(lease_calls.revoke_lease)
    evict = blocking(admin_calls.evict)
    evict_below = blocking(admin_calls.evict_below)
    clear = blocking(admin_calls.clear)
    check = blocking(admin_calls.check)

    def lease(
        self,
        ttl_s: float = 10.0,
        holder: str = "",
        pool_id: str = "",
        *,
        replaces_pool: bool = False,
    ) -> Lease:
        """A lease that renews itself until it is closed.

        pool_id: the K/V pool that its slots live in; without one it may hold pins alone.
        replaces_pool: name another pool although leases of the present one live; they end, and the
        cache is cleared. For the admin role; without it such a lease raises LiveRequestsError.
        """
        sent_at = self._clock()
        info = self.send(built(lease_calls.grant, ttl_s, holder, pool_id, replaces_pool))
        return Lease(self, info, Term(info, sent_at, self._clock))

    def watch(
        self, namespace: Namespace | None = None, *, after: tuple[int, int] | None = None
    ) -> Watch:
        """What becomes cached and what is evicted, from a snapshot on; see `Watch`.

        namespace: only what is stored there; None: all. after: go on from this (epoch, revision),
        as the last update said, instead.
        """
        return Watch(self._open_watch, self.target, namespace, after)

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


class AsyncClient(_Connection):
    """`Client` for asyncio: the same calls, awaited. Belongs to the event loop that made it."""

    _grpc = grpc.aio
    _coalescing = AsyncCoalescer

    match = awaited(calls.match)
    server_info = awaited(calls.server_info)
    stats = awaited(calls.stats)
    lease_info = awaited(lease_calls.lease_info)
    leases = awaited(lease_calls.leases)
    revoke_lease = awaited(lease_calls.revoke_lease)
    evict = awaited(admin_calls.evict)
    evict_below = awaited(admin_calls.evict_below)
    clear = awaited(admin_calls.clear)
    check = awaited(admin_calls.check)

    def lease(
        self,
        ttl_s: float = 10.0,
        holder: str = "",
        pool_id: str = "",
        *,
        replaces_pool: bool = False,
    ) -> PendingLease:
        """See `Client.lease`. Awaited it is the lease; `async with` takes it either way."""

        async def grant() -> AsyncLease:
            sent_at = self._clock()
            call = built(lease_calls.grant, ttl_s, holder, pool_id, replaces_pool)
            info = await self.send(call)
            return AsyncLease(self, info, Term(info, sent_at, self._clock))

        return PendingLease(grant)

    def watch(
        self, namespace: Namespace | None = None, *, after: tuple[int, int] | None = None
    ) -> AsyncWatch:
        """See `Client.watch`."""
        return AsyncWatch(self._open_watch, self.target, namespace, after)

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
