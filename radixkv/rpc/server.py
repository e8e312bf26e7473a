"""A gRPC server on a thread of its own: its options, its start and its end."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import RLock, Thread
from typing import Any, ClassVar, Self, TypedDict

import grpc.aio
from grpc_health.v1 import health

from radixkv.errors import ServiceError
from radixkv.rpc import serving
from radixkv.rpc.address import check_address, is_local, listen
from radixkv.rpc.auth import TokenFile
from radixkv.rpc.channel_options import AGE_OPTIONS, SERVER_OPTIONS
from radixkv.rpc.dispatch import Dispatcher
from radixkv.rpc.limits import MAX_CALLS_IN_PYTHON
from radixkv.rpc.method_table import Rpc
from radixkv.rpc.metrics import Metrics
from radixkv.rpc.observer import Observer
from radixkv.rpc.process import claim_process
from radixkv.rpc.tls import Tls
from radixkv.rpc.tracing import Tracer


class ServerOptions(TypedDict, total=False):
    """What every server takes besides its address; `Server` says what each is."""

    insecure: bool
    reflection: bool | None
    tls: Tls | None
    tokens: Path | None
    metrics: str | None
    tracing: bool
    drain_delay_s: float


class Server(ABC):
    """Serves health, reflection, metrics and the handlers of a subclass.

    address: "host:port", port 0 for a free one, or "unix:/path", which only this user may open.
    lock: of what the handlers use, see `Dispatcher`.
    insecure: allow an address that other machines reach, without encryption.
    reflection: by default where only this machine can connect.
    tls, tokens: who may call, see `Tls` and `auth.py`; by default everyone who reaches the address.
    metrics: host:port of /metrics for Prometheus, /healthz and /readyz.
    tracing: make OpenTelemetry spans of calls.
    drain_delay_s: how long it goes on at its end, NOT_SERVING, before it refuses calls: balancers
    see it and send no more.
    Raises ListenError for a malformed address, or one that needs `insecure`, InvalidArgumentError
    for files that cannot be read, BackendUnavailableError for `tracing` without its package.
    """

    services: ClassVar[tuple[str, ...]]
    # What each of `_gauges` and `_counters` is.
    metric_help: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        address: str,
        lock: RLock,
        *,
        insecure: bool = False,
        reflection: bool | None = None,
        tls: Tls | None = None,
        tokens: Path | None = None,
        metrics: str | None = None,
        tracing: bool = False,
        drain_delay_s: float = 0.0,
    ) -> None:
        check_address(address, insecure=insecure or tls is not None)
        self.address, self.metrics_address = address, metrics
        self._reflection = is_local(address) if reflection is None else reflection
        self._credentials = None if tls is None else tls.server_credentials()
        self._tokens = None if tokens is None else TokenFile(tokens)
        self._metrics = Metrics()
        self._metrics.add_sources(self._gauges, self._counters, self.metric_help)
        self._observer = Observer(self._metrics, Tracer() if tracing else None)
        self._drain_delay_s = drain_delay_s
        self._lock = lock
        self._is_draining = False
        self._thread: Thread | None = None

    @abstractmethod
    def _handlers(self, dispatcher: Dispatcher) -> Mapping[Rpc[Any, Any], Any]:
        """The gRPC method of each RPC, made by `dispatcher`. Called once, in the server's loop."""

    def _is_ready(self) -> bool:
        """Whether calls should be sent here: it serves, and does not drain."""
        return not self._is_draining

    @abstractmethod
    def _gauges(self) -> Mapping[str, float]:
        """Metrics that go up and down, by name."""

    @abstractmethod
    def _counters(self) -> Mapping[str, float]:
        """Metrics that only grow, by name."""

    def _beside(
        self, dispatcher: Dispatcher, health_servicer: health.aio.HealthServicer
    ) -> Sequence[Coroutine[Any, Any, None]]:
        """Coroutines that run while it serves, and are cancelled at its end."""
        return ()

    def start(self) -> Self:
        """Returns when the server listens; `address` then has the port. Raises ListenError."""
        claim_process()
        if self._thread is not None:
            raise ServiceError(f"the server on {self.address} has been started before")
        ready: Future[str] = Future()
        thread = Thread(target=self._run, args=(ready,), name="radixkv-server", daemon=True)
        thread.start()
        self.address = ready.result()
        self._thread = thread
        return self

    def stop(self, grace_s: float = 5.0) -> None:
        """Report NOT_SERVING, end watches, refuse new calls, give those under way `grace_s`.

        Idempotent.
        """
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ask_to_stop, grace_s)
            self._thread.join()

    def reload(self) -> None:
        """Read the tokens file again at the next call. TLS files are looked at by themselves.

        A signal handler may call it.
        """
        if self._tokens is not None:
            self._tokens.reload()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask_to_stop(self, grace_s: float) -> None:
        if not self._stopping.done():
            self._stopping.set_result(grace_s)

    def _run(self, ready: Future[str]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: Future[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping: asyncio.Future[float] = self._loop.create_future()
        ages = () if self.address.startswith("unix:") else AGE_OPTIONS
        server = grpc.aio.server(
            options=[*SERVER_OPTIONS, *ages], maximum_concurrent_rpcs=MAX_CALLS_IN_PYTHON
        )
        with ThreadPoolExecutor(1, "radixkv-writer") as writer, ExitStack() as stack:
            dispatcher = Dispatcher(writer, self._tokens, self._observer, self._lock)
            open_streams = serving.OpenStreams()
            health_servicer = await serving.serve_health(server, self.services, open_streams)
            self._serve_rpcs(server, dispatcher, open_streams)
            # First, as gRPC would keep its own port if this failed.
            stack.callback(self._serve_metrics())
            address = listen(server, self.address, self._credentials)
            await server.start()
            beside = [
                asyncio.create_task(each) for each in self._beside(dispatcher, health_servicer)
            ]
            ready.set_result(address)
            grace_s = await self._stopping
            await self._drain(server, dispatcher, health_servicer, grace_s)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def _serve_rpcs(
        self, server: grpc.aio.Server, dispatcher: Dispatcher, open_streams: serving.OpenStreams
    ) -> None:
        for rpc, handler in self._handlers(dispatcher).items():
            serving.add_handlers(server, rpc.service, {rpc.name: handler})
        if self._reflection:
            serving.serve_reflection(server, self.services, open_streams)
        server.add_generic_rpc_handlers((serving.Unserved(),))

    def _serve_metrics(self) -> Callable[[], None]:
        if self.metrics_address is None:
            return lambda: None
        end = self._metrics.serve(self.metrics_address, self._is_ready)
        self.metrics_address = self._metrics.address
        return end

    async def _drain(
        self,
        server: grpc.aio.Server,
        dispatcher: Dispatcher,
        health_servicer: health.aio.HealthServicer,
        grace_s: float,
    ) -> None:
        self._is_draining = True
        await health_servicer.enter_graceful_shutdown()
        await asyncio.sleep(self._drain_delay_s)
        end = time.monotonic() + grace_s
        dispatcher.drain()
        while not dispatcher.is_idle and time.monotonic() < end:
            await asyncio.sleep(0.005)
        await server.stop(max(0.0, end - time.monotonic()))
