"""The server of a cache, beside whatever else uses the cache."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Unpack

from grpc_health.v1 import health

from radixkv.cache import PrefixCache
from radixkv.rpc import rpcs
from radixkv.rpc.address import is_local
from radixkv.rpc.front import Front
from radixkv.rpc.limits import DEFAULT_ADDRESS, LEASE_GRACE_S
from radixkv.rpc.server import Server, ServerOptions
from radixkv.service.server.handlers import (
    AdminHandlers,
    Desk,
    InfoHandlers,
    LeaseHandlers,
    MatchHandlers,
    SlotHandlers,
)
from radixkv.service.server.leases import Leases
from radixkv.service.server.tenants import TenantFigures
from radixkv.service.server.watching import Watches

_LOOK_EVERY_S = 0.1
# How much larger the cache would be, by the words in the names of figures.
_FACTORS = {"half": 0.5, "same": 1.0, "twice": 2.0, "four_times": 4.0}


class CacheServer(Server):
    """Answers for `cache` over gRPC while an engine goes on using it.

    lends_slots: let engines elsewhere that can write this pool take slots and store into them, too.
    alone: no engine here; those elsewhere own the pool and name it with their leases.
    pool_id: name of the pool that this process owns, by default drawn at random.
    tenants: alias -> salt, for the figures that Prometheus is told.
    lease_grace_s: how long slots of a lease that ended are kept from everyone. clock: of leases.
    address, and what else a server takes: see `Server`.

    >>> from radixkv.service import Client
    >>> with CacheServer(PrefixCache(8), "127.0.0.1:0") as server, Client(server.address) as client:
    ...     client.match([1, 2, 3]).lengths
    [0]
    """

    services = rpcs.SERVICES

    def __init__(
        self,
        cache: PrefixCache,
        address: str = DEFAULT_ADDRESS,
        *,
        lends_slots: bool = False,
        alone: bool = False,
        pool_id: str | None = None,
        tenants: Mapping[str, str] | None = None,
        lease_grace_s: float = LEASE_GRACE_S,
        clock: Callable[[], float] = time.monotonic,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(address, cache.lock, **options)
        self._cache = cache
        own_pool = None if alone else pool_id or secrets.token_hex(8)
        self._leases = Leases(cache, pool_id=own_pool, grace_s=lease_grace_s, clock=clock)
        self._desk = Desk(
            cache, self._leases, lends_slots=lends_slots or alone, is_local=is_local(address)
        )
        self._tenants = TenantFigures(self._metrics.registry, tenants or {})

    def _handlers(self, front: Front) -> dict[rpcs.Rpc[Any, Any], Any]:
        self.watches = Watches(self._cache, front.in_writer)
        match, slots = MatchHandlers(self._desk, self._tenants.looked_up), SlotHandlers(self._desk)
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
        keep_alive = leases.keep_lease_alive
        return {
            **{rpc: front.unary(rpc, answer) for rpc, answer in unary.items()},
            rpcs.KEEP_LEASE_ALIVE: front.conversation(rpcs.KEEP_LEASE_ALIVE, keep_alive),
            rpcs.WATCH: front.stream(rpcs.WATCH, self.watches.watch, self.watches.drain),
            rpcs.DUMP_TREE: front.stream(rpcs.DUMP_TREE, admin.dump_tree),
        }

    def _beside(
        self, front: Front, health_servicer: health.aio.HealthServicer
    ) -> list[Coroutine[Any, Any, None]]:
        return [self._settle(front, health_servicer)]

    async def _settle(self, front: Front, health_servicer: health.aio.HealthServicer) -> None:
        """Leases end on time, whether anyone calls or not; a broken cache is not healthy."""
        try:
            while True:
                await asyncio.sleep(_LOOK_EVERY_S)
                if self._leases.may_end:
                    await front.in_writer(self._settle_now)
                if self._desk.violations:
                    await health_servicer.enter_graceful_shutdown()
        finally:
            self.watches.close()

    def _settle_now(self) -> None:
        with self._cache.lock:
            self._leases.settle()

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
