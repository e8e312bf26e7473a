"""InfoService."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

import radixkv
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.limits import MAX_BATCH_SEQUENCES, MAX_LEASE_TTL_S, MAX_MESSAGE_BYTES
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.tree import Namespace, NodeInfo
from radixkv.v1.info_pb2 import (
    GetServerInfoRequest,
    GetServerInfoResponse,
    GetStatsRequest,
    GetStatsResponse,
)
from radixkv.v1.types_pb2 import ResponseHeader


@dataclass(slots=True)
class NamespaceSizes:
    """What is resident of one namespace, in tokens and nodes."""

    evictable: int = 0
    protected: int = 0
    num_nodes: int = 0

    def add(self, node: NodeInfo) -> None:
        """Count one node."""
        self.num_nodes += 1
        if node.lock_ref:
            self.protected += len(node.codes)
        else:
            self.evictable += len(node.codes)


class AllSizes(NamedTuple):
    """The sizes of all namespaces at one revision, and when the walk over them began."""

    began_at: float
    epoch: int
    revision: int
    by_namespace: dict[Namespace, NamespaceSizes]
    pins: Counter[Namespace]


class InfoHandlers:
    """Identity, limits and figures of the server."""

    def __init__(self, context: HandlerContext) -> None:
        self._context, self._cache = context, context.cache
        self._start_time = Timestamp()
        self._start_time.GetCurrentTime()
        self._sizes: AllSizes | None = None

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
        if request.HasField("namespace"):
            namespace = codec.read_namespace(request.namespace)
            call.caller.check_namespace(namespace)
            return self._of_namespace(namespace, call)
        call.caller.check_unbound("see what all tenants have cached")
        with self._context.locked():
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
        """A walk serves all calls that had come when it began: those that wait share one."""
        if self._sizes is None or call.came_at > self._sizes.began_at:
            self._sizes = self._walk()
        sizes = self._sizes
        present = self._cache.present(namespace)
        found = sizes.by_namespace.get(present, NamespaceSizes())
        return GetStatsResponse(
            header=ResponseHeader(
                epoch=sizes.epoch, revision=0 if call.caller.is_bound else sizes.revision
            ),
            evictable_size=found.evictable,
            protected_size=found.protected,
            num_nodes=found.num_nodes,
            num_pins=sizes.pins[present],
        )

    def _walk(self) -> "AllSizes":
        began_at = time.monotonic()
        with self._context.locked():
            nodes = list(self._cache.tree.walk())
            pins = Counter(pin.namespace for pin in self._cache.loans.pins)
            epoch, revision = self._cache.events.position()
        by_namespace: defaultdict[Namespace, NamespaceSizes] = defaultdict(NamespaceSizes)
        for node in nodes:
            by_namespace[node.namespace].add(node)
        return AllSizes(began_at, epoch, revision, dict(by_namespace), pins)
