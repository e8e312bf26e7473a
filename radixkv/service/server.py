"""A gRPC server on a thread of its own, beside whatever else uses the cache."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, Self

import grpc.aio
from grpc_health.v1 import health

from radixkv.cache import PrefixCache
from radixkv.errors import ServiceError
from radixkv.rpc import rpcs, serving
from radixkv.rpc.address import check_address, is_local, listen
from radixkv.rpc.auth import Tokens
from radixkv.rpc.front import Front
from radixkv.rpc.limits import (
    AGE_OPTIONS,
    DEFAULT_ADDRESS,
    LEASE_GRACE_S,
    SERVER_OPTIONS,
)
from radixkv.rpc.metrics import Metrics
from radixkv.rpc.observer import Observer
from radixkv.rpc.process import claim_process
from radixkv.rpc.tls import Tls
from radixkv.rpc.tracing import Tracer
from radixkv.service.handlers import (
    AdminHandlers,
    Desk,
    InfoHandlers,
    LeaseHandlers,
    MatchHandlers,
    SlotHandlers,
)
from radixkv.service.leases import Leases
from radixkv.service.watching import Watches

_LOOK_EVERY_S = 0.1
# How much larger the cache would be, by the words in the names of figures.
_FACTORS = {"half": 0.5, "same": 1.0, "twice": 2.0, "four_times": 4.0}


class CacheServer:
    """Answers for `cache` over gRPC while an engine goes on using it.

    address: "host:port", port 0 for a free one, or "unix:/path", which only this user may open.
    insecure: allow an address that other machines reach, where anyone may ask, without encryption.
    reflection: by default where only this machine can ask.
    lends_slots: let engines elsewhere take slots and store what they computed in them, too.
    alone: no engine here; those elsewhere own the pool and name it with their leases.
    pool_id: name of the pool that this process owns, by default drawn at random.
    tls, tokens: who may call, see `Tls` and `auth.py`; by default whoever reaches the address.
    metrics: host:port where Prometheus may ask. tenants: alias -> salt, for its figures.
    tracing: make OpenTelemetry spans of calls.
    lease_grace_s: how long slots of a lease that ended are kept from everyone. clock: of leases.
    Raises ListenError for a malformed address, or one that takes `insecure`, InvalidArgumentError.

    >>> from radixkv.service import Client
    >>> with CacheServer(PrefixCache(8), "127.0.0.1:0") as server, Client(server.address) as client:
    ...     client.match([1, 2, 3]).lengths
    [0]
    """

    def __init__(
        self,
        cache: PrefixCache,
        address: str = DEFAULT_ADDRESS,
        *,
        insecure: bool = False,
        reflection: bool | None = None,
        lends_slots: bool = False,
        alone: bool = False,
        pool_id: str | None = None,
        tls: Tls | None = None,
        tokens: Path | None = None,
        metrics: str | None = None,
        tenants: Mapping[str, str] | None = None,
        tracing: bool = False,
        drain_delay_s: float = 0.0,
        lease_grace_s: float = LEASE_GRACE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_address(address, insecure=insecure or tls is not None)
        self.address = address
        self.metrics_address = metrics
        self._reflection = is_local(address) if reflection is None else reflection
        self._cache, self._drain_delay_s = cache, drain_delay_s
        own_pool = None if alone else pool_id or secrets.token_hex(8)
        self._leases = Leases(cache, pool_id=own_pool, grace_s=lease_grace_s, clock=clock)
        self._desk = Desk(
            cache, self._leases, lends_slots=lends_slots or alone, is_local=is_local(address)
        )
        self._tokens = None if tokens is None else Tokens(tokens)
        self._credentials = None if tls is None else tls.server_credentials()
        self._metrics = Metrics(tenants)
        self._observer = Observer(self._metrics, Tracer() if tracing else None)
        self._thread: Thread | None = None

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
        server = grpc.aio.server(options=[*SERVER_OPTIONS, *ages])
        with ThreadPoolExecutor(1, "radixkv-writer") as writer:
            front = Front(writer, self._tokens, self._observer)
            self.watches = Watches(self._cache, front.in_writer)
            health_servicer = await serving.serve_health(server, rpcs.SERVICES)
            self._serve_rpcs(server, front)
            address = listen(server, self.address, self._credentials)
            end_metrics = self._tell_metrics()
            await server.start()
            settling = asyncio.create_task(self._settle(front, health_servicer))
            ready.set_result(address)
            grace_s = await self._stopping
            await self._drain(server, front, health_servicer, grace_s)
            settling.cancel()
            self.watches.close()
            end_metrics()

    async def _drain(
        self,
        server: grpc.aio.Server,
        front: Front,
        health_servicer: health.aio.HealthServicer,
        grace_s: float,
    ) -> None:
        await health_servicer.enter_graceful_shutdown()
        await asyncio.sleep(self._drain_delay_s)
        end = time.monotonic() + grace_s
        front.drain()
        self.watches.drain()
        while not front.is_idle and time.monotonic() < end:
            await asyncio.sleep(0.005)
        await server.stop(max(0.0, end - time.monotonic()))

    async def _settle(self, front: Front, health_servicer: health.aio.HealthServicer) -> None:
        """Leases end on time, whether anyone calls or not; a broken cache is not healthy."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._leases.may_end:
                await front.in_writer(self._settle_now)
            if self._desk.violations:
                await health_servicer.enter_graceful_shutdown()

    def _settle_now(self) -> None:
        with self._cache.lock:
            self._leases.settle()

    def _serve_rpcs(self, server: grpc.aio.Server, front: Front) -> None:
        match, slots = MatchHandlers(self._desk, self._metrics.looked_up), SlotHandlers(self._desk)
        leases, info = LeaseHandlers(self._desk), InfoHandlers(self._desk)
        admin = AdminHandlers(self._desk, front.in_writer)
        unary: dict[rpcs.Rpc[Any, Any], Any] = {
            rpcs.MATCH_PREFIX: match.match_prefix,
            rpcs.RELEASE_PINS: match.release_pins,
            rpcs.ALLOCATE_SLOTS: slots.allocate_slots,
            rpcs.FREE_SLOTS: slots.free_slots,
            rpcs.INSERT_PREFIX: slots.insert_prefix,
            rpcs.EVICT_PREFIXES: admin.evict_prefixes,
            rpcs.GRANT_LEASE: leases.grant_lease,
            rpcs.REVOKE_LEASE: leases.revoke_lease,
            rpcs.GET_LEASE: leases.get_lease,
            rpcs.LIST_LEASES: leases.list_leases,
            rpcs.GET_SERVER_INFO: info.get_server_info,
            rpcs.GET_STATS: info.get_stats,
            rpcs.CLEAR_CACHE: admin.clear_cache,
            rpcs.CHECK_INTEGRITY: admin.check_integrity,
        }
        handlers = {rpc: front.unary(rpc, answer) for rpc, answer in unary.items()}
        keep_alive = leases.keep_lease_alive
        handlers[rpcs.KEEP_LEASE_ALIVE] = front.conversation(rpcs.KEEP_LEASE_ALIVE, keep_alive)
        handlers[rpcs.WATCH] = front.stream(rpcs.WATCH, self.watches.watch)
        handlers[rpcs.DUMP_TREE] = front.stream(rpcs.DUMP_TREE, admin.dump_tree)
        for rpc, handler in handlers.items():
            serving.add_handlers(server, rpc.service, {rpc.name: handler})
        if self._reflection:
            serving.serve_reflection(server, rpcs.SERVICES)
        server.add_generic_rpc_handlers((serving.Unserved(),))

    def _tell_metrics(self) -> Callable[[], None]:
        if self.metrics_address is None:
            return lambda: None
        self._metrics.watch_cache(self._gauges, self._counters)
        end = self._metrics.serve(self.metrics_address)
        self.metrics_address = self._metrics.address
        return end

    def _gauges(self) -> dict[str, float]:
        stats = self._cache.stats()
        return {
            "free_slots": stats.free,
            "allocated_slots": stats.allocated,
            "evictable_size": stats.evictable,
            "protected_size": stats.protected,
            "waiting_slots": stats.waiting,
            "nodes": stats.num_nodes,
            "live_requests": stats.live_requests,
            "pins": self._leases.num_pins,
            "leases": len(self._leases),
            "revision": stats.revision,
            "watchers": len(self.watches.places),
            "watch_lag_revisions": self.watches.lag(),
            **self._estimates(),
        }

    def _estimates(self) -> dict[str, float]:
        """Hit rates that other amounts of memory would give, if the cache estimates them."""
        estimator = self._cache.capacity_estimator
        if estimator is None:
            return {}
        with self._cache.lock:
            return {
                f"estimated_hit_rate_{name}": estimator.hit_rate(factor)
                for name, factor in _FACTORS.items()
            }

    def _counters(self) -> dict[str, float]:
        stats = self._cache.stats()
        return {
            "lookup_tokens": stats.lookup_tokens,
            "hit_tokens": stats.hit_tokens,
            "evicted_tokens": stats.evicted_tokens,
            "published_tokens": stats.published_tokens,
        }
