"""RouterService over gRPC: a `Router` for callers in any process and language."""

from typing import Any, Unpack

from radixkv.router.handlers import RouterHandlers
from radixkv.router.pick_metrics import PickMetrics
from radixkv.router.router import Router
from radixkv.rpc import method_table
from radixkv.rpc.dispatch import Dispatcher
from radixkv.rpc.limits import DEFAULT_ROUTER_ADDRESS
from radixkv.rpc.server import Server, ServerOptions

_HELP = {
    "router_workers": "Workers that prompts may go to",
    "router_workers_here": "Workers that are known to live",
    "router_workers_current": "Workers whose cache the index follows without a gap",
    "router_load": "Load of picks that have not ended, of all workers",
    "router_distinct_tokens": "Tokens that any worker holds, each counted once",
    "router_cache_checks": "Finished picks whose worker was checked for their prompt",
    "router_cache_misses": "Of those, picks whose worker did not cache the prompt",
}


class RouterServer(Server):
    """Serves `router` over gRPC. The caller closes the router.

    Tokens that are bound to a salt may not list the workers, which all tenants share.
    address and options: see `Server`.
    """

    services = (method_table.ROUTER_SERVICE,)
    metric_help = _HELP

    def __init__(
        self,
        router: Router,
        address: str = DEFAULT_ROUTER_ADDRESS,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(address, router.lock, **options)
        self._router = router
        self._picks = PickMetrics(self._metrics.registry)

    def _handlers(self, dispatcher: Dispatcher) -> dict[method_table.Rpc[Any, Any], Any]:
        handlers = RouterHandlers(self._router, self._picks.count)
        return {
            method_table.PICK: dispatcher.unary(method_table.PICK, handlers.pick),
            method_table.LOOKUP: dispatcher.unary(method_table.LOOKUP, handlers.lookup),
            method_table.LIST_WORKERS: dispatcher.unary(
                method_table.LIST_WORKERS, handlers.list_workers
            ),
        }

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
            "router_cache_checks": self._router.cache_misses.num_checks,
            "router_cache_misses": self._router.cache_misses.num_misses,
        }
