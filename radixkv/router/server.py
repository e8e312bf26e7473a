"""RouterService over gRPC: a `Router` that is asked from elsewhere, in any language."""

from typing import Any, Unpack

from radixkv.router.handlers import RouterHandlers
from radixkv.router.router import Router
from radixkv.rpc import rpcs
from radixkv.rpc.front import Front
from radixkv.rpc.limits import DEFAULT_ROUTER_ADDRESS
from radixkv.rpc.server import Server, ServerOptions


class RouterServer(Server):
    """Answers for `router` over gRPC. Closing the router is the caller's.

    Who all tenants share (ListWorkers) is told to tokens that are bound to no salt.
    address, and what else a server takes: see `Server`.
    """

    services = (rpcs.ROUTER_SERVICE,)

    def __init__(
        self,
        router: Router,
        address: str = DEFAULT_ROUTER_ADDRESS,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(address, router.lock, **options)
        self._router = router

    def _handlers(self, front: Front) -> dict[rpcs.Rpc[Any, Any], Any]:
        handlers = RouterHandlers(self._router)
        return {
            rpcs.PICK: front.unary(rpcs.PICK, handlers.pick),
            rpcs.LOOKUP: front.unary(rpcs.LOOKUP, handlers.lookup),
            rpcs.LIST_WORKERS: front.unary(rpcs.LIST_WORKERS, handlers.list_workers),
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
            "router_parity_checks": self._router.parity.num_checks,
            "router_parity_faults": self._router.parity.num_faults,
        }
