"""The parts of a gRPC server besides its RPCs: health, reflection, unserved methods."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_status import rpc_status

from radixkv.errors import InvalidArgumentError, OverloadedError, RadixKVError, UnsupportedError
from radixkv.rpc.limits import MAX_OPEN_STREAMS, MAX_OPEN_STREAMS_A_CONNECTION
from radixkv.rpc.status import to_status

Handler = Callable[[Any, Any], Awaitable[Any]]

_LONGEST_SERVICE = 256


def add_handlers(server: grpc.aio.Server, service: str, handlers: dict[str, Any]) -> None:
    """Serve some methods of a service."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


class OpenStreams:
    """Counts streams of callers that show no token: of all connections, and of each."""

    def __init__(self) -> None:
        self._of_peer: Counter[str] = Counter()

    @contextmanager
    def counted(self, peer: str) -> Iterator[None]:
        """Around a stream. Raises OverloadedError beyond the limits."""
        of_peer = self._of_peer[peer] >= MAX_OPEN_STREAMS_A_CONNECTION
        if of_peer or self._of_peer.total() >= MAX_OPEN_STREAMS:
            most = MAX_OPEN_STREAMS_A_CONNECTION if of_peer else MAX_OPEN_STREAMS
            where = "one connection" if of_peer else "all connections"
            raise OverloadedError(
                f"streams without a token must be at most {most} of {where}; there are no more now",
                retry_after_s=1.0,
                most=most,
            )
        self._of_peer[peer] += 1
        try:
            yield
        finally:
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]


class CountedHealth(health.aio.HealthServicer):  # type: ignore[misc]
    """Health as gRPC has it, with a limit on watches, which need no token."""

    def __init__(self, open_streams: OpenStreams) -> None:
        super().__init__()
        self._open_streams = open_streams

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        try:
            if len(request.service) > _LONGEST_SERVICE:
                raise InvalidArgumentError(
                    f"service must be at most {_LONGEST_SERVICE} characters; got more",
                    field="service",
                )
            with self._open_streams.counted(context.peer()):
                await super().Watch(request, context)
        except RadixKVError as error:
            await context.abort_with_status(rpc_status.to_status(to_status(error)))


async def serve_health(
    server: grpc.aio.Server, services: Sequence[str], open_streams: OpenStreams
) -> health.aio.HealthServicer:
    """Serve health: SERVING for "" and for each service. Never takes the cache's lock."""
    servicer = CountedHealth(open_streams)
    for service in services:
        await servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return servicer


def serve_reflection(
    server: grpc.aio.Server, services: Sequence[str], open_streams: OpenStreams
) -> None:
    """Serve reflection as v1alpha and as v1, whose messages are the same on the wire."""
    names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
    servicer = reflection.aio.ReflectionServicer(names)

    async def reflect(requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            with open_streams.counted(context.peer()):
                async for response in servicer.ServerReflectionInfo(requests, context):
                    yield response
        except RadixKVError as error:
            await context.abort_with_status(rpc_status.to_status(to_status(error)))

    handler = grpc.stream_stream_rpc_method_handler(
        reflect,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for service in (reflection.SERVICE_NAME, "grpc.reflection.v1.ServerReflection"):
        add_handlers(server, service, {"ServerReflectionInfo": handler})


class Unserved(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Refuses every other RPC of ours: this server does not serve it. Added last."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path = handler_call_details.method
        if not path.startswith("/radixkv.v1."):
            return None
        return grpc.stream_stream_rpc_method_handler(self._refuse(path[1:]))

    def _refuse(self, name: str) -> Handler:
        async def refuse(_: Any, context: Any) -> None:
            error = UnsupportedError(f"this server does not serve {name}", rpc=name)
            await context.abort_with_status(rpc_status.to_status(to_status(error)))

        return refuse
