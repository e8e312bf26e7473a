"""The gRPC server of a cache that an engine may be using."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Unpack

from grpc_health.v1 import health

from radixkv.cache import PrefixCache
from radixkv.rpc import method_table
from radixkv.rpc.address import is_local
from radixkv.rpc.dispatch import Dispatcher
from radixkv.rpc.limits import DEFAULT_ADDRESS, LEASE_GRACE_S
from radixkv.rpc.server import Server, ServerOptions
from radixkv.service.server.handlers import (
    AdminHandlers,
    HandlerContext,
    InfoHandlers,
    LeaseHandlers,
    MatchHandlers,
    SlotHandlers,
)
from radixkv.service.server.leases import Leases
from radixkv.service.server.tenants import TenantMetrics
from radixkv.service.server.watching import Watches

_LOOK_EVERY_S = 0.1
# How much larger the cache would be, by the words in the names of metrics.
_FACTORS = {"half": 0.5, "same": 1.0, "twice": 2.0, "four_times": 4.0}

_HELP = {
    "num_slots": "Slots of the pool; the sizes below add up to it",
    "free_slots": "Slots that nothing holds",
    "allocated_slots": "Slots private to requests, or on loan to leases",
    "evictable_size": "Cached tokens that nothing locks",
    "protected_size": "Cached tokens that requests or pins lock",
    "waiting_slots": "Slots behind a fence, or of leases that ended, until their grace is over",
    "nodes": "Nodes of the radix tree",
    "live_requests": "Requests that were admitted and have not ended",
    "pins": "Pins held by leases",
    "leases": "Leases that have not ended",
    "revision": "Changes of what is cached since the process began",
    "watchers": "Watches under way",
    "watch_lag_revisions": "Revisions that the slowest watcher has not been sent",
    "lookup_tokens": "Tokens looked up",
    "hit_tokens": "Of those, tokens that were cached",
    "evicted_tokens": "Tokens evicted",
    "published_tokens": "Tokens stored",
    "pools_ended": "Times that the cache was cleared as the last lease of its pool ended",
    "pools_replaced": "Times that the cache was cleared as another pool was named",
    **{
        f"estimated_hit_rate_{name}": f"Estimated hit rate with {factor:g} times the slots"
        for name, factor in _FACTORS.items()
    },
}


class CacheServer(Server):
    """Serves `cache` over gRPC while an engine goes on using it.

    Parameters
    ----------
    cache
        The cache.
    address
        Where to listen, "host:port" or "unix:/path"; port 0: any that is free.
    lends_slots
        Engines elsewhere that can write this pool may also take slots and store into them.
    alone
        No engine runs here; those elsewhere own the pool and name it with their leases.
    pool_id
        Name of the pool that this process owns, by default drawn at random.
    tenants
        Alias -> salt, for metrics by tenant.
    lease_grace_s
        Seconds for which slots of a lease that ended are used by no one.
    clock
        Of leases: returns seconds that only grow.
    **options
        See `Server`.

    Examples
    --------
    >>> from radixkv.service import Client
    >>> with CacheServer(PrefixCache(8), "127.0.0.1:0") as server, Client(server.address) as client:
    ...     client.match([1, 2, 3]).lengths
    [0]
    """

    services = method_table.SERVICES
    metric_help = _HELP

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
        lends_slots = lends_slots or alone
        self._leases = Leases(
            cache, pool_id=own_pool, lends_slots=lends_slots, grace_s=lease_grace_s, clock=clock
        )
        self._context = HandlerContext(
            cache, self._leases, lends_slots=lends_slots, is_local=is_local(address)
        )
        self._tenants = TenantMetrics(self._metrics.registry, tenants or {})

    def _handlers(self, dispatcher: Dispatcher) -> dict[method_table.Rpc[Any, Any], Any]:
        self.watches = Watches(self._cache, dispatcher.in_writer)
        match, slots = (
            MatchHandlers(self._context, self._tenants.count),
            SlotHandlers(self._context),
        )
        leases, info = LeaseHandlers(self._context), InfoHandlers(self._context)
        admin = AdminHandlers(self._context, dispatcher.in_writer)
        unary: dict[method_table.Rpc[Any, Any], Any] = {
            method_table.MATCH_PREFIX: match.match_prefix,
            method_table.RELEASE_PINS: match.release_pins,
            method_table.ALLOCATE_SLOTS: slots.allocate_slots,
            method_table.FREE_SLOTS: slots.free_slots,
            method_table.INSERT_PREFIX: slots.insert_prefix,
            method_table.EVICT_PREFIXES: admin.evict_prefixes,
            method_table.GRANT_LEASE: leases.grant_lease,
            method_table.REVOKE_LEASE: leases.revoke_lease,
            method_table.GET_LEASE: leases.get_lease,
            method_table.LIST_LEASES: leases.list_leases,
            method_table.GET_SERVER_INFO: info.get_server_info,
            method_table.GET_STATS: info.get_stats,
            method_table.CLEAR_CACHE: admin.clear_cache,
            method_table.CHECK_INTEGRITY: admin.check_integrity,
        }
        return {
            **{rpc: dispatcher.unary(rpc, handler) for rpc, handler in unary.items()},
            method_table.KEEP_LEASE_ALIVE: dispatcher.conversation(
                method_table.KEEP_LEASE_ALIVE, leases.keep_lease_alive, leases.note_renewal
            ),
            method_table.WATCH: dispatcher.stream(
                method_table.WATCH, self.watches.watch, self.watches.drain
            ),
            method_table.DUMP_TREE: dispatcher.stream(method_table.DUMP_TREE, admin.dump_tree),
        }

    def _beside(
        self, dispatcher: Dispatcher, health_servicer: health.aio.HealthServicer
    ) -> list[Coroutine[Any, Any, None]]:
        return [self._settle(dispatcher, health_servicer)]

    async def _settle(
        self, dispatcher: Dispatcher, health_servicer: health.aio.HealthServicer
    ) -> None:
        """End leases on time, whether calls come or not; report a broken cache as not serving."""
        try:
            while True:
                await asyncio.sleep(_LOOK_EVERY_S)
                if self._context.violations:
                    await health_servicer.enter_graceful_shutdown()
                elif self._leases.may_end:
                    while await dispatcher.in_writer(self._settle_now):
                        await asyncio.sleep(0)  # others have their turns between
        finally:
            self.watches.close()

    def _settle_now(self) -> bool:
        """End some leases; whether there are more to end. A broken cache ends none."""
        with self._cache.lock:
            self._leases.settle()
            return self._leases.is_overdue

    def _is_ready(self) -> bool:
        return super()._is_ready() and not self._context.violations

    def _gauges(self) -> dict[str, float]:
        stats = self._cache.stats()
        return {
            "num_slots": self._cache.num_slots,
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
            "pools_ended": self._leases.num_forgotten["ended"],
            "pools_replaced": self._leases.num_forgotten["replaced"],
        }
