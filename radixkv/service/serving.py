"""The parts of a gRPC server: RPCs with their errors, health, reflection, what is not served."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_status import rpc_status

from radixkv.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    UnsupportedError,
)
from radixkv.service.limits import LONGEST_CALL_S
from radixkv.service.rpcs import Request, Response, Rpc
from radixkv.service.status import to_status

logger = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Awaitable[Any]]


def serve_rpc(
    server: grpc.aio.Server,
    rpc: Rpc[Request, Response],
    answer: Callable[[Request], Response],
    writer: ThreadPoolExecutor,
) -> None:
    """Answer `rpc` with `answer` on the writer's thread, decoding and encoding included.

    The event loop stays free, so health answers while a large batch is matched or the engine holds
    the cache's lock. A call that is cancelled, or past its deadline, before its turn never begins.
    """

    def work(data: bytes) -> bytes:
        return answer(_parse(rpc, data)).SerializeToString()

    async def handle(data: bytes, context: Any) -> bytes:
        try:
            async with asyncio.timeout(LONGEST_CALL_S):
                return await asyncio.get_running_loop().run_in_executor(writer, work, data)
        except Exception as error:
            status = _explain(error, rpc.path)
        refused: NoReturn = await context.abort_with_status(rpc_status.to_status(status))
        return refused

    handler = grpc.unary_unary_rpc_method_handler(handle)
    add_handlers(server, rpc.service, {rpc.name: handler})


def _parse(rpc: Rpc[Request, Response], data: bytes) -> Request:
    try:
        return rpc.request.FromString(data)
    except DecodeError:
        name = rpc.request.DESCRIPTOR.full_name
        raise InvalidArgumentError(f"the message is no {name}") from None


def _explain(error: Exception, path: str) -> Status:
    if isinstance(error, TimeoutError):
        error = DeadlineExceededError(f"no answer in {LONGEST_CALL_S:g} s")
    status = to_status(error)
    if status.code == code_pb2.INTERNAL:
        logger.error("%s failed", path, exc_info=error)
    return status


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
    """Says of every other RPC of ours that this server does not serve it. Added last."""

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
