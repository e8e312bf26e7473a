"""RouterService over gRPC: a `Router` on the server's parts, for routers in other languages.

Here and not in a room of its own because it joins two that do not know one another.
"""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, Self

import grpc.aio

from radixkv.errors import InvalidArgumentError, ServiceError
from radixkv.router import Pick, Router, Source, Stream, WorkerStatus
from radixkv.service import Client, codec, serving
from radixkv.service.address import check_address, is_local, listen
from radixkv.service.auth import Principal
from radixkv.service.front import Front
from radixkv.service.limits import SERVER_OPTIONS
from radixkv.service.observer import Observer
from radixkv.service.process import claim_process
from radixkv.service.rpcs import Rpc
from radixkv.v1 import router_pb2
from radixkv.v1.types_pb2 import ResponseHeader

DEFAULT_ADDRESS = "127.0.0.1:50052"
SERVICE = "radixkv.v1.RouterService"
PICK = Rpc(SERVICE, "Pick", router_pb2.PickRequest, router_pb2.PickResponse)
LOOKUP = Rpc(SERVICE, "Lookup", router_pb2.LookupRequest, router_pb2.LookupResponse)
LIST_WORKERS = Rpc(
    SERVICE,
    "ListWorkers",
    router_pb2.ListWorkersRequest,
    router_pb2.ListWorkersResponse,
    "admin",
    ("data", "watch"),
)


def watch_source(router: Router, worker: str, client: Client) -> Source:
    """A source for `Router.add_worker`: the client's watch, and its server's page size."""

    def begin(position: tuple[int, int] | None) -> Stream:
        router.index.set_page_size(worker, client.server_info().page_size)
        return client.watch(after=position)

    return begin


class RouterHandlers:
    """What the RPCs answer, from one `Router`; knows messages, nothing of connections."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def pick(self, request: router_pb2.PickRequest, caller: Principal) -> router_pb2.PickResponse:
        """All sequences placed, or an error and none."""
        namespace = codec.read_namespace(request.namespace)
        caller.check_namespace(namespace)
        if request.sequences or not request.finished_pick_ids:
            codec.check_batch(len(request.sequences))
        keys = codec.read_sequences(request.sequences)
        names = _keys(request)
        loads, cost = _loads(request), request.cost or 1.0
        for number in request.finished_pick_ids:
            self._router.finish_by_id(number)
        picks = []
        for key, name in zip(keys, names, strict=True):
            pick = self._router.pick(
                key.token_ids, namespace, content=key.content, key=name, loads=loads, cost=cost
            )
            picks.append(_write_pick(pick))
            if loads is not None:
                loads[pick.worker] += cost
        return router_pb2.PickResponse(picks=picks)

    def lookup(
        self, request: router_pb2.LookupRequest, caller: Principal
    ) -> router_pb2.LookupResponse:
        namespace = codec.read_namespace(request.namespace)
        caller.check_namespace(namespace)
        (key,) = codec.read_sequences([request.sequence])
        found = self._router.index.lookup(key.token_ids, namespace, content=key.content)
        return router_pb2.LookupResponse(
            matches=[
                router_pb2.WorkerMatch(worker=worker, matched_length=length)
                for worker, length in found.items()
            ]
        )

    def list_workers(
        self, _: router_pb2.ListWorkersRequest, caller: Principal
    ) -> router_pb2.ListWorkersResponse:
        caller.check_unbound("list the workers of all tenants")
        router = self._router
        return router_pb2.ListWorkersResponse(
            workers=map(_write_status, router.workers()),
            policy=router.policy.name,
            distinct_tokens=router.index.total_size,
            num_parity_checks=router.num_parity_checks,
            num_parity_faults=router.num_parity_faults,
        )


def _keys(request: router_pb2.PickRequest) -> list[str | None]:
    if request.keys and len(request.keys) != len(request.sequences):
        raise InvalidArgumentError(
            f"{len(request.keys)} keys came with {len(request.sequences)} sequences; they go one "
            "to one, or without keys",
            field="keys",
        )
    return list(request.keys) or [None] * len(request.sequences)


def _loads(request: router_pb2.PickRequest) -> dict[str, float] | None:
    loads = {load.worker: load.load for load in request.loads}
    if len(loads) != len(request.loads):
        raise InvalidArgumentError("loads name a worker twice", field="loads")
    return loads or None


def _write_pick(pick: Pick) -> router_pb2.Pick:
    return router_pb2.Pick(
        worker=pick.worker,
        matched_length=pick.matched_length,
        best_length=pick.best_length,
        reason=pick.reason,
        pick_id=pick.id,
    )


def _write_status(status: WorkerStatus) -> router_pb2.WorkerStatus:
    view = status.view
    return router_pb2.WorkerStatus(
        worker=view.worker,
        address=status.address,
        applied=ResponseHeader(epoch=view.epoch, revision=view.revision),
        num_tokens=view.num_tokens,
        silent_s=view.silent_s,
        state=view.state,
        load=status.load,
        lag_revisions=view.lag,
        trust=status.trust,
        is_here=status.is_here,
        last_error=status.last_error or "",
        num_unknown_changes=view.num_unknown,
    )


class RouterServer:
    """Answers for `router` over gRPC, on a thread of its own. Closing the router is the caller's.

    address, insecure, reflection: as of `CacheServer`. Raises ListenError.
    """

    def __init__(
        self,
        router: Router,
        address: str = DEFAULT_ADDRESS,
        *,
        insecure: bool = False,
        reflection: bool | None = None,
    ) -> None:
        check_address(address, insecure=insecure)
        self.address = address
        self._reflection = is_local(address) if reflection is None else reflection
        self._handlers = RouterHandlers(router)
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
            front = Front(picks, None, Observer())
            self._serve_rpcs(server, front)
            health = await serving.serve_health(server, (SERVICE,))
            if self._reflection:
                serving.serve_reflection(server, (SERVICE,))
            server.add_generic_rpc_handlers((serving.Unserved(),))
            address = listen(server, self.address)
            await server.start()
            ready.set_result(address)
            grace_s = await self._stopping
            await health.enter_graceful_shutdown()
            front.drain()
            await server.stop(grace_s)

    def _serve_rpcs(self, server: Any, front: Front) -> None:
        answers = {
            PICK.name: front.unary(PICK, self._handlers.pick),
            LOOKUP.name: front.unary(LOOKUP, self._handlers.lookup),
            LIST_WORKERS.name: front.unary(LIST_WORKERS, self._handlers.list_workers),
        }
        serving.add_handlers(server, SERVICE, answers)
