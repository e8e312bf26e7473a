"""Clients of a router, blocking and async, over the calls of `router_calls.py`."""

from radixkv.rpc.limits import DEFAULT_ROUTER_ADDRESS
from radixkv.rpc.tls import Tls
from radixkv.service.client import router_calls
from radixkv.service.client.connection import AsyncConnection, BlockingConnection
from radixkv.service.client.methods import awaited, blocking


class RouterClient(BlockingConnection):
    """A blocking client of `radixkv route` or of a `RouterServer`; arguments as of `Client`."""

    def __init__(
        self,
        target: str = DEFAULT_ROUTER_ADDRESS,
        *,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(target, token=token, tls=tls, timeout_s=timeout_s, coalesce=False)

    pick = blocking(router_calls.pick)
    finish = blocking(router_calls.finish)
    lookup = blocking(router_calls.lookup)
    workers = blocking(router_calls.workers)
    add_worker = blocking(router_calls.add_worker)
    remove_worker = blocking(router_calls.remove_worker)


class AsyncRouterClient(AsyncConnection):
    """`RouterClient` for asyncio: the same calls, awaited."""

    def __init__(
        self,
        target: str = DEFAULT_ROUTER_ADDRESS,
        *,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(target, token=token, tls=tls, timeout_s=timeout_s, coalesce=False)

    pick = awaited(router_calls.pick)
    finish = awaited(router_calls.finish)
    lookup = awaited(router_calls.lookup)
    workers = awaited(router_calls.workers)
    add_worker = awaited(router_calls.add_worker)
    remove_worker = awaited(router_calls.remove_worker)
