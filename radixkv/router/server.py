"""RouterService over gRPC: a `Router` that is asked from elsewhere, in any language."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, Self

import grpc.aio

from radixkv.errors import ServiceError
from radixkv.router.answers import LIST_WORKERS, LOOKUP, PICK, SERVICE, RouterHandlers
from radixkv.router.router import Router
from radixkv.rpc import serving
from radixkv.rpc.address import check_address, is_local, listen
from radixkv.rpc.auth import Tokens
from radixkv.rpc.front import Front
from radixkv.rpc.limits import SERVER_OPTIONS
from radixkv.rpc.metrics import Metrics
from radixkv.rpc.observer import Observer
from radixkv.rpc.process import claim_process
from radixkv.rpc.tls import Tls

DEFAULT_ADDRESS = "127.0.0.1:50052"


class RouterServer:
    """Answers for `router` over gRPC, on a thread of its own. Closing the router is the caller's.

    address, insecure, reflection, tls, tokens, metrics, drain_delay_s: as of `CacheServer`. Who all
    tenants share (ListWorkers) is told to tokens that are bound to no salt.
    Raises ListenError, InvalidArgumentError.
    """

    def __init__(
        self,
        router: Router,
        address: str = DEFAULT_ADDRESS,
        *,
        insecure: bool = False,
        reflection: bool | None = None,
        tls: Tls | None = None,
        tokens: Path | None = None,
        metrics: str | None = None,
        drain_delay_s: float = 0.0,
    ) -> None:
        check_address(address, insecure=insecure or tls is not None)
        self.address, self.metrics_address = address, metrics
        self._reflection = is_local(address) if reflection is None else reflection
        self._router, self._drain_delay_s = router, drain_delay_s
        self._tokens = None if tokens is None else Tokens(tokens)
        self._credentials = None if tls is None else tls.server_credentials()
        self._metrics = Metrics()
        self._thread: Thread | None = None

    def start(self) -> Self:
        """Returns when the server listens; `address` then has the port. Raises ListenError."""
        claim_process()
        if self._thread is not None:
            raise ServiceError(f"the server on {self.address} has been started before")
        ready: Future[str] = Future()
        thread = Thread(target=self._run, args=(ready,), name="radixkv-router", daemon=True)
        thread.start()
        self.address = ready.result()
        self._thread = thread
        return self

    def stop(self, grace_s: float = 5.0) -> None:
        """Report NOT_SERVING, refuse new calls, give those under way `grace_s`. Idempotent."""
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ask_to_stop, grace_s)
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask_to_stop(self, grace_s: float) -> None:
        if not self._stopping.done():
            self._stopping.set_result(grace_s)

    def _run(self, ready: "Future[str]") -> None:
        try:
            asyncio.run(self._serve(ready))
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: "Future[str]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping: asyncio.Future[float] = self._loop.create_future()
        server = grpc.aio.server(options=SERVER_OPTIONS)
        with ThreadPoolExecutor(1, "radixkv-picks") as picks:
            front = Front(picks, self._tokens, Observer(self._metrics))
            health = await serving.serve_health(server, (SERVICE,))
            self._serve_rpcs(server, front)
            address = listen(server, self.address, self._credentials)
            end_metrics = self._tell_metrics()
            await server.start()
            ready.set_result(address)
            grace_s = await self._stopping
            await health.enter_graceful_shutdown()
            await asyncio.sleep(self._drain_delay_s)
            front.drain()
            await server.stop(grace_s)
            end_metrics()

    def _serve_rpcs(self, server: Any, front: Front) -> None:
        handlers = RouterHandlers(self._router)
        answers = {
            PICK.name: front.unary(PICK, handlers.pick),
            LOOKUP.name: front.unary(LOOKUP, handlers.lookup),
            LIST_WORKERS.name: front.unary(LIST_WORKERS, handlers.list_workers),
        }
        serving.add_handlers(server, SERVICE, answers)
        if self._reflection:
            serving.serve_reflection(server, (SERVICE,))
        server.add_generic_rpc_handlers((serving.Unserved(),))

    def _tell_metrics(self) -> Callable[[], None]:
        if self.metrics_address is None:
            return lambda: None
        self._metrics.watch_cache(self._gauges, self._counters)
        end = self._metrics.serve(self.metrics_address)
        self.metrics_address = self._metrics.address
        return end

    def _gauges(self) -> dict[str, float]:
        workers = self._router.workers()
        return {
            "router_workers": len(workers),
            "router_workers_here": sum(status.is_here for status in workers),
            "router_workers_current": sum(status.view.state == "current" for status in workers),
            "router_load": sum(status.load for status in workers),
            "router_distinct_tokens": self._router.index.total_size,
        }

    def _counters(self) -> dict[str, float]:
        return {
            "router_parity_checks": self._router.num_parity_checks,
            "router_parity_faults": self._router.num_parity_faults,
        }
