"""A gRPC server on a thread of its own, beside whatever else uses the cache."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Self

import grpc.aio

from radixkv.cache import PrefixCache
from radixkv.errors import ServiceError
from radixkv.service import rpcs, serving
from radixkv.service.address import check_address, is_local, listen
from radixkv.service.front import Front
from radixkv.service.handlers import Handlers
from radixkv.service.limits import DEFAULT_ADDRESS, SERVER_OPTIONS
from radixkv.service.observer import Observer
from radixkv.service.process import claim_process
from radixkv.service.watching import Watches

SERVICES = (rpcs.PREFIX_CACHE_SERVICE, rpcs.WATCH_SERVICE, rpcs.INFO_SERVICE)


class CacheServer:
    """Answers for `cache` over gRPC while an engine goes on using it.

    address: "host:port", port 0 for a free one, or "unix:/path", which only this user may open.
    insecure: allow an address that other machines reach, where anyone may ask, without encryption.
    reflection: by default where only this machine can ask.
    Raises ListenError for a malformed address, or one that takes `insecure`.

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
    ) -> None:
        check_address(address, insecure=insecure)
        self.address = address
        self._reflection = is_local(address) if reflection is None else reflection
        self._cache = cache
        self._handlers = Handlers(cache)
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
        server = grpc.aio.server(options=SERVER_OPTIONS)
        with ThreadPoolExecutor(1, "radixkv-writer") as writer:
            front = Front(writer, None, Observer())
            self.watches = watches = Watches(self._cache, front.in_writer)
            self._serve_rpcs(server, front, watches)
            health = await serving.serve_health(server, SERVICES)
            if self._reflection:
                serving.serve_reflection(server, SERVICES)
            server.add_generic_rpc_handlers((serving.Unserved(),))
            address = listen(server, self.address)
            await server.start()
            ready.set_result(address)
            grace_s = await self._stopping
            await health.enter_graceful_shutdown()
            watches.drain()
            await server.stop(grace_s)
            watches.close()

    def _serve_rpcs(self, server: grpc.aio.Server, front: Front, watches: Watches) -> None:
        handlers = self._handlers
        for rpc, handler in (
            (rpcs.MATCH_PREFIX, front.unary(rpcs.MATCH_PREFIX, handlers.match_prefix)),
            (rpcs.GET_SERVER_INFO, front.unary(rpcs.GET_SERVER_INFO, handlers.get_server_info)),
            (rpcs.GET_STATS, front.unary(rpcs.GET_STATS, handlers.get_stats)),
            (rpcs.WATCH, front.stream(rpcs.WATCH, lambda request, _: watches.watch(request))),
        ):
            serving.add_handlers(server, rpc.service, {rpc.name: handler})
