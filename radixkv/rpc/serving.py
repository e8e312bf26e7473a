"""The parts of a gRPC server beside its RPCs: health, reflection, unserved methods."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_status import rpc_status

from radixkv.errors import UnsupportedError
from radixkv.rpc.status import to_status

Handler = Callable[[Any, Any], Awaitable[Any]]


def add_handlers(server: grpc.aio.Server, service: str, handlers: dict[str, Any]) -> None:
    """Serve some methods of a service."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))


async def serve_health(
    server: grpc.aio.Server, services: Sequence[str]
) -> health.aio.HealthServicer:
    """Serve health: SERVING for "" and for each service. Never takes the cache's lock."""
    servicer = health.aio.HealthServicer()
    for service in services:
        await servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    return servicer


def serve_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Serve reflection as v1alpha and as v1, whose messages are the same on the wire."""
    names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
    handler = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
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
