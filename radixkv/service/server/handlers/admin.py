"""EvictPrefixes and AdminService."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from itertools import chain
from typing import Any

from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.service.event_codec import PIECE_BYTES
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.tree import NodeInfo
from radixkv.v1.admin_pb2 import (
    CheckIntegrityRequest,
    CheckIntegrityResponse,
    ClearCacheRequest,
    ClearCacheResponse,
    DumpTreeRequest,
    DumpTreeResponse,
    TreeNode,
)
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest, EvictPrefixesResponse
from radixkv.v1.types_pb2 import ResponseHeader

_MOST_VIOLATIONS = 100


class AdminHandlers:
    """RPCs for operators. in_writer: runs a function in the writer, for the stream DumpTree."""

    def __init__(
        self, context: HandlerContext, in_writer: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._context, self._cache = context, context.cache
        self._in_writer = in_writer

    def evict_prefixes(self, request: EvictPrefixesRequest, call: Call) -> EvictPrefixesResponse:
        """Evict the coldest unpinned tokens."""
        with self._context.once(request, call, EvictPrefixesResponse) as reply:
            if reply.message is None:
                reply.message = self._evict(request, call)
        return reply.message

    def _evict(self, request: EvictPrefixesRequest, call: Call) -> EvictPrefixesResponse:
        num_evicted = self._cache.evict(request.num_tokens)
        return EvictPrefixesResponse(header=self._context.header(call), num_evicted=num_evicted)

    def clear_cache(self, request: ClearCacheRequest, call: Call) -> ClearCacheResponse:
        """Forget everything and end all leases; a new epoch begins."""
        with self._context.once(request, call, ClearCacheResponse) as reply:
            if reply.message is None:
                reply.message = self._clear(request, call)
        return reply.message

    def _clear(self, request: ClearCacheRequest, call: Call) -> ClearCacheResponse:
        self._cache.reset(force=request.force)
        self._context.leases.settle()
        return ClearCacheResponse(header=self._context.header(call))

    def check_integrity(self, _: CheckIntegrityRequest, call: Call) -> CheckIntegrityResponse:
        """Broken invariants; if there are any, every other call is refused from now on."""
        with self._cache.lock:
            if not self._context.violations:
                self._context.leases.settle()
            violations = self._context.check_integrity()
            return CheckIntegrityResponse(
                header=self._context.header(call), violations=violations[:_MOST_VIOLATIONS]
            )

    async def dump_tree(self, request: DumpTreeRequest, call: Call) -> AsyncGenerator[bytes, None]:
        """Nodes depth first, all of one revision, in pieces."""

        def take() -> tuple[ResponseHeader, list[NodeInfo]]:
            with self._context.locked():
                return self._context.header(call), list(self._cache.tree.walk())

        header, nodes = await self._in_writer(take)
        response, size = DumpTreeResponse(header=header), 0
        wanted = self._wanted(request, nodes)
        for message in chain.from_iterable(_write_node(n, request.want_tokens) for n in wanted):
            if size > PIECE_BYTES:
                yield response.SerializeToString()
                response, size = DumpTreeResponse(header=header), 0
            response.nodes.append(message)
            size += message.ByteSize()
        yield response.SerializeToString()

    def _wanted(self, request: DumpTreeRequest, nodes: list[NodeInfo]) -> Iterator[NodeInfo]:
        only = request.HasField("namespace")
        namespace = self._cache.present(codec.read_namespace(request.namespace))
        depths = {0: 0}
        for node in nodes:
            depth = depths[node.id] = depths[node.parent_id] + 1
            is_shallow = not request.max_depth or depth <= request.max_depth
            if is_shallow and (not only or node.namespace == namespace):
                yield node


def _write_node(node: NodeInfo, want_tokens: bool) -> Iterator[TreeNode]:
    """One message; a node whose tokens are too long for one comes in several."""
    codes = node.codes if want_tokens else node.codes[:0]
    for start in range(0, max(1, len(codes)), PIECE_BYTES // 4):
        yield TreeNode(
            node_id=node.id,
            parent_id=node.parent_id,
            num_tokens=len(node.codes),
            lock_ref=node.lock_ref,
            recency=node.recency,
            tokens=codec.pack(codes[start : start + PIECE_BYTES // 4]),
            tokens_offset=start,
        )
