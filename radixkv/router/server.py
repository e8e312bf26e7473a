"""RouterService over gRPC: a `Router` for callers in any process and language."""

from dataclasses import replace
from typing import Any, Unpack

from radixkv.prompts import ModelPrompts
from radixkv.router.handlers import RouterHandlers
from radixkv.router.membership import Membership
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

    prompts: of the workers' model, so that picks may ask by text and messages. members: what the
    admin's calls add and remove workers by. Without them such calls raise UnsupportedError.
    Tokens that are bound to a salt may not list the workers, which all tenants share.
    address and options: see `Server`.
    """

    services = (method_table.ROUTER_SERVICE,)
    metric_help = _HELP

    def __init__(
        self,
        router: Router,
        address: str = DEFAULT_ROUTER_ADDRESS,
        *,
        prompts: ModelPrompts | None = None,
        members: Membership | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(address, router.lock, **options)
        self._router, self._prompts, self._members = router, prompts, members
        self._picks = PickMetrics(self._metrics.registry)

    def _handlers(self, dispatcher: Dispatcher) -> dict[method_table.Rpc[Any, Any], Any]:
        handlers = RouterHandlers(self._router, self._picks.count, self._prompts, self._members)
        # Tokenizing takes 100 times as long as reading token ids: not in the event loop.
        is_bounded = self._prompts is None
        pick = replace(method_table.PICK, is_bounded=is_bounded)
        lookup = replace(method_table.LOOKUP, is_bounded=is_bounded)
        return {
            method_table.PICK: dispatcher.unary(pick, handlers.pick),
            method_table.LOOKUP: dispatcher.unary(lookup, handlers.lookup),
            method_table.ADD_WORKER: dispatcher.unary(method_table.ADD_WORKER, handlers.add_worker),
            method_table.REMOVE_WORKER: dispatcher.unary(
                method_table.REMOVE_WORKER, handlers.remove_worker
            ),
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
