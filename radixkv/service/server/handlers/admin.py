"""EvictPrefixes and AdminService."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from itertools import chain
from typing import Any

from radixkv.arrays import EMPTY, Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.service.event_codec import PIECE_BYTES
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.tree.radix_tree import NodeFacts, NodeTable
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

logger = logging.getLogger(__name__)

_MOST_VIOLATIONS = 100
_NODES_AT_ONCE = 128


class AdminHandlers:
    """RPCs for operators. in_writer: runs a function in the writer, for the stream DumpTree."""

    def __init__(
        self, context: HandlerContext, in_writer: Callable[[Callable[[], Any]], Awaitable[Any]]
    ) -> None:
        self._context, self._cache = context, context.cache
        self._in_writer = in_writer

    def evict_prefixes(self, request: EvictPrefixesRequest, call: Call) -> EvictPrefixesResponse:
        """Evict the coldest unpinned tokens, or those below a prefix."""
        if request.HasField("prefix") and request.num_tokens:
            raise InvalidArgumentError(
                f"num_tokens must be unset with prefix; got {request.num_tokens}",
                field="num_tokens",
            )
        with self._context.once(request, call, EvictPrefixesResponse) as reply:
            if reply.message is None:
                reply.message = self._evict(request, call)
        return reply.message

    def _evict(self, request: EvictPrefixesRequest, call: Call) -> EvictPrefixesResponse:
        if request.HasField("prefix"):
            num_evicted = self._evict_below(request)
        else:
            num_evicted = self._cache.evict(request.num_tokens)
        return EvictPrefixesResponse(header=self._context.header(call), num_evicted=num_evicted)

    def _evict_below(self, request: EvictPrefixesRequest) -> int:
        prefix, namespace = request.prefix, codec.read_namespace(request.namespace)
        if not prefix.packed and not prefix.ids:
            return self._cache.evict_below((), namespace)
        key = codec.read_sequence(prefix, "prefix")
        with codec.blame("prefix"):
            return self._cache.evict_below(key.token_ids, namespace, content=key.content)

    def clear_cache(self, request: ClearCacheRequest, call: Call) -> ClearCacheResponse:
        """Forget everything and end all leases; a new epoch begins."""
        with self._context.once(request, call, ClearCacheResponse) as reply:
            if reply.message is None:
                reply.message = self._clear(request, call)
        return reply.message

    def _clear(self, request: ClearCacheRequest, call: Call) -> ClearCacheResponse:
        num_tokens = self._cache.tree.total_size
        self._cache.reset(force=request.force)
        who = call.caller.name or "a caller"
        logger.warning("cache cleared, %d tokens are gone: %s asked for it", num_tokens, who)
        self._context.leases.settle()
        return ClearCacheResponse(header=self._context.header(call))

    def check_integrity(self, _: CheckIntegrityRequest, call: Call) -> CheckIntegrityResponse:
        """Broken invariants; if there are any, every other call is refused from now on."""
        with self._cache.lock:
            if not self._context.violations:
                self._context.leases.settle()
        violations = self._context.check_integrity()
        with self._cache.lock:
            return CheckIntegrityResponse(
                header=self._context.header(call), violations=violations[:_MOST_VIOLATIONS]
            )

    async def dump_tree(self, request: DumpTreeRequest, call: Call) -> AsyncGenerator[bytes, None]:
        """Nodes depth first, all of one revision, in pieces; tokens that are gone since left out.

        The loop is free after each few nodes, and the cache but for the table and the tokens.
        """

        def take() -> tuple[ResponseHeader, NodeTable]:
            with self._context.locked():
                return self._context.header(call), self._cache.tree.table()

        header, table = await self._in_writer(take)
        response, size = DumpTreeResponse(header=header), 0
        for group in self._wanted(request, table):
            codes = await self._codes(table, group) if request.want_tokens else [EMPTY] * len(group)
            for message in chain.from_iterable(map(_write_node, map(table.facts, group), codes)):
                if size > PIECE_BYTES:
                    yield response.SerializeToString()
                    response, size = DumpTreeResponse(header=header), 0
                response.nodes.append(message)
                size += message.ByteSize()
            await asyncio.sleep(0)  # others have their turns
        yield response.SerializeToString()

    def _wanted(self, request: DumpTreeRequest, table: NodeTable) -> Iterator[list[int]]:
        """The places of the nodes that are asked for, of a few nodes at a time."""
        only = request.HasField("namespace")
        namespace = self._cache.present(codec.read_namespace(request.namespace))
        depths, group = {0: 0}, list[int]()
        for at in range(len(table)):
            node = table.facts(at)
            depth = depths[node.id] = depths[node.parent_id] + 1
            is_shallow = not request.max_depth or depth <= request.max_depth
            if is_shallow and (not only or node.namespace == namespace):
                group.append(at)
            if at % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                yield group
                group = []
        yield group

    async def _codes(self, table: NodeTable, group: list[int]) -> list[Int32Array]:
        def read() -> list[Int32Array]:
            with self._context.locked():
                return [table.codes(at) for at in group]

        codes: list[Int32Array] = await self._in_writer(read)
        return codes


def _write_node(node: NodeFacts, codes: Int32Array) -> Iterator[TreeNode]:
    """One message; a node whose tokens are too long for one comes in several."""
    for start in range(0, max(1, len(codes)), PIECE_BYTES // 4):
        yield TreeNode(
            node_id=node.id,
            parent_id=node.parent_id,
            num_tokens=node.num_tokens,
            lock_ref=node.lock_ref,
            recency=node.recency,
            tokens=codec.pack(codes[start : start + PIECE_BYTES // 4]),
            tokens_offset=start,
        )
