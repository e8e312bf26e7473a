"""InfoService."""

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

import radixkv
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.limits import MAX_BATCH_SEQUENCES, MAX_LEASE_TTL_S, MAX_MESSAGE_BYTES
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.tree import Namespace
from radixkv.v1.info_pb2 import (
    GetServerInfoRequest,
    GetServerInfoResponse,
    GetStatsRequest,
    GetStatsResponse,
)


class InfoHandlers:
    """Identity, limits and figures of the server."""

    def __init__(self, context: HandlerContext) -> None:
        self._context, self._cache = context, context.cache
        self._start_time = Timestamp()
        self._start_time.GetCurrentTime()

    def get_server_info(self, _: GetServerInfoRequest, call: Call) -> GetServerInfoResponse:
        """Limits and identity."""
        events = self._cache.events
        with self._context.locked():
            return GetServerInfoResponse(
                header=self._context.header(call),
                version=radixkv.__version__,
                grpc_version=grpc.__version__,
                core=self._cache.core,
                page_size=self._cache.page_size,
                num_slots=self._cache.num_slots,
                max_batch_sequences=MAX_BATCH_SEQUENCES,
                max_message_bytes=MAX_MESSAGE_BYTES,
                max_lease_ttl=codec.write_seconds(MAX_LEASE_TTL_S),
                compact_revision=0 if call.caller.is_bound else events.compact_revision,
                start_time=self._start_time,
                pool_id=self._context.leases.pool_id,
            )

    def get_stats(self, request: GetStatsRequest, call: Call) -> GetStatsResponse:
        """Of the whole cache, or what is resident of one namespace."""
        with self._context.locked():
            if request.HasField("namespace"):
                namespace = codec.read_namespace(request.namespace)
                call.caller.check_namespace(namespace)
                return self._of_namespace(namespace, call)
            call.caller.check_unbound("see what all tenants have cached")
            return self._of_all(call)

    def _of_all(self, call: Call) -> GetStatsResponse:
        stats = self._cache.stats()
        return GetStatsResponse(
            header=self._context.header(call),
            free_slots=stats.free,
            allocated_slots=stats.allocated,
            evictable_size=stats.evictable,
            protected_size=stats.protected,
            waiting_slots=stats.waiting,
            num_nodes=stats.num_nodes,
            num_pins=self._context.leases.num_pins,
            num_leases=len(self._context.leases),
            lookup_tokens=stats.lookup_tokens,
            hit_tokens=stats.hit_tokens,
            evicted_tokens=stats.evicted_tokens,
        )

    def _of_namespace(self, namespace: Namespace, call: Call) -> GetStatsResponse:
        present = self._cache.present(namespace)
        evictable, protected, num_nodes = self._cache.tree.sizes_of(present)
        return GetStatsResponse(
            header=self._context.header(call),
            evictable_size=evictable,
            protected_size=protected,
            num_nodes=num_nodes,
            num_pins=sum(pin.namespace == present for pin in self._cache.loans.pins),
        )
