"""The readable core: plain nodes, NumPy runs, a sorted dict of evictable leaves.

    root of a namespace
      └─ [1 2 3]          head: new after a split, takes the first tokens
           ├─ [4 5 6]     tail: keeps the identity of the node that was split
           └─ [7 8]

A handle is (node, length). Splits only ever put heads above a node, so the node that ends at
`length` is found by climbing from the handle's node. Recency is a counter: a touched path is
numbered from its leaf up, so a node is never newer than its parent and under LRU the oldest
evictable node is always a leaf.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from sortedcontainers import SortedDict

from radixkv.errors import (
    InvalidArgumentError,
    InvalidSlotsError,
    NotLockedError,
    StaleHandleError,
)
from radixkv.tree.adaptive import UseHistory, hash_space
from radixkv.tree.content import Content, ContentTable
from radixkv.tree.integrity import check_tree
from radixkv.tree.namespace import DEFAULT, Namespace, check_namespace
from radixkv.tree.node import Node, Root, concat, kept, path_to, root_of, slots_on
from radixkv.tree.policies import get_policy
from radixkv.tree.radix_tree import (
    Change,
    Handle,
    InsertResult,
    MatchResult,
    NodeInfo,
    RadixTree,
    Stored,
    Trimmed,
)
from radixkv.tree.reuse_model import KINDS
from radixkv.tree.tokens import Int32Array, TokenIds, as_int, as_prompts, as_slots, as_token_ids

# What a pickled node keeps beside its place and its tokens.
_PICKLED = (
    "hit_count", "priority", "recency", "created", "run", "run_offset", "used", "uses", "hash",
)  # fmt: skip


class PythonHandle(Handle):
    """See `Handle`. `node` is None for a length of 0."""

    __slots__ = ("_epoch", "_locks", "_node", "_tree", "length")

    def __init__(self, tree: "PythonRadixTree", node: Node | None, length: int) -> None:
        self._tree = tree
        self._epoch = tree.epoch
        self._node = node
        self._locks = 0
        self.length = length


class PythonRadixTree(RadixTree):
    """See `RadixTree`."""

    core = "python"

    def __init__(self, page_size: int = 1, policy: str = "lru", core: str | None = None) -> None:
        if type(page_size) is not int or page_size < 1:
            raise InvalidArgumentError(f"page_size is {page_size!r}; it takes an int of 1 or more")
        self.page_size = page_size
        self.policy = policy
        self._order_of = get_policy(policy)
        self.epoch = 0
        self._changes: list[Change] | None = None
        self._clear()

    def _clear(self) -> None:
        self.epoch += 1
        self._roots: dict[Namespace, Root] = {}
        # The evictable leaves, the next victim first.
        self._leaves: SortedDict[tuple[int, ...], Node] = SortedDict()
        self._history = UseHistory(self.page_size) if self.policy == "adaptive" else None
        self._locked: dict[PythonHandle, int] = {}
        self._content = ContentTable()
        self._evictable = self._protected = self._num_nodes = 0
        self._ticks = self._runs = self._ids = 0

    # ---- looking ----

    def match_prefix(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> MatchResult:
        path, partial, length = self._walk_down(self._encode(token_ids, content), namespace)
        self._refresh(path)
        last = partial or (path[-1] if path else None)
        slots = slots_on(path, partial, length)
        return MatchResult(length, slots, PythonHandle(self, last, length))

    def probe(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> int:
        return self._walk_down(self._encode(token_ids, content), namespace)[2]

    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT
    ) -> list[MatchResult]:
        check_namespace(namespace)
        return [self.match_prefix(key, namespace) for key in as_prompts(prompts)]

    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT
    ) -> list[int]:
        return [match.length for match in self.match_batch(prompts, namespace)]

    def probe_batch(self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT) -> list[int]:
        return [self._walk_down(key, namespace)[2] for key in as_prompts(prompts)]

    def _encode(self, token_ids: TokenIds, content: Content, *, intern: bool = False) -> Int32Array:
        return self._content.encode(as_token_ids(token_ids), content, intern=intern)

    def _page(self, key: bytes) -> bytes:
        """What an edge is found by: the first page of its key."""
        return key[: self.page_size * 4]

    def _walk_down(
        self, codes: Int32Array, namespace: Namespace, known: Node | None = None
    ) -> tuple[list[Node], Node | None, int]:
        """The nodes matched whole, the one matched in part, and the tokens matched.

        known: the node where a beginning ends that is not looked at.
        """
        check_namespace(namespace)
        key, page = codes.tobytes(), self.page_size * 4
        path = path_to(known) if known is not None else []
        node = known or self._roots.get(namespace)
        at = known.end * 4 if known is not None else 0
        while node is not None and at + page <= len(key):
            node = node.children.get(key[at : at + page])
            if node is None:
                break
            if not key.startswith(node.key, at):
                common = self._common(node.codes, codes[at // 4 :])
                if common < len(node.slots):
                    return path, node, at // 4 + common
            path.append(node)
            at += len(node.slots) * 4
        return path, None, at // 4

    def _common(self, a: Int32Array, b: Int32Array) -> int:
        """Leading tokens in whole pages that are equal."""
        n = min(len(a), len(b))
        differ = a[:n] != b[:n]
        same = int(differ.argmax()) if differ.any() else n
        return same - same % self.page_size

    # ---- recency and the order of eviction ----

    def _refresh(self, path: Sequence[Node]) -> None:
        for node in reversed(path):
            self._ticks += 1
            node.recency = self._ticks
        if path:
            self._place(path[-1])  # the others have children and so no place

    def _place(self, node: Node) -> None:
        """Put a node where it belongs among the evictable leaves, or take it out."""
        if node.order_key is not None:
            del self._leaves[node.order_key]
            node.order_key = None
        if node.is_alive and not node.children and not node.lock_ref:
            node.order_key = (*self._order_of(node), node.id)
            self._leaves[node.order_key] = node

    # ---- locks ----

    def inc_lock_ref(self, handle: Handle) -> None:
        own, node = self._resolve(handle)
        if node is not None and own.length < node.end:
            node = self._split(node, own.length - node.start)
            self._refresh(path_to(node))
        own._node = node
        own._locks += 1
        self._locked[own] = own._locks
        self._add_lock(node, 1)

    def dec_lock_ref(self, handle: Handle) -> None:
        own, node = self._resolve(handle)
        if not own._locks:
            raise NotLockedError("the handle is not locked; inc_lock_ref comes first")
        own._locks -= 1
        self._locked[own] = own._locks
        if not own._locks:
            del self._locked[own]
        self._add_lock(node, -1)

    def _add_lock(self, node: Node | None, step: int) -> None:
        while node is not None and node.parent is not None:
            was_free = node.lock_ref == 0
            node.lock_ref += step
            if was_free or node.lock_ref == 0:
                moved = len(node.slots) if was_free else -len(node.slots)
                self._protected += moved
                self._evictable -= moved
                self._place(node)
            node = node.parent

    def _resolve(self, handle: Handle) -> tuple[PythonHandle, Node | None]:
        """The handle and the node of its last token; refuses what is not ours or not there."""
        if not isinstance(handle, PythonHandle) or handle._tree is not self:
            raise StaleHandleError("the handle belongs to another tree")
        if handle._epoch != self.epoch:
            raise StaleHandleError(
                f"the handle is of epoch {handle._epoch}, the tree is in {self.epoch}; match again",
                epoch=self.epoch,
            )
        node = handle._node
        while node is not None and not (node.is_alive and node.start < handle.length):
            node = node.parent
        if handle.length and (node is None or node.end < handle.length):
            raise StaleHandleError(
                "the handle's tokens were evicted; match again", length=handle.length
            )
        return handle, node

    # ---- changing ----

    def insert(
        self,
        token_ids: TokenIds,
        slots: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        priority: int = 0,
        chunked: bool = False,
        after: Handle | None = None,
    ) -> InsertResult:
        check_namespace(namespace)
        priority = as_int(priority, "priority")
        known, last_known = self._check_known(after, namespace)
        tokens, own_slots = as_token_ids(token_ids), as_slots(slots)
        _check_lengths(known, len(tokens), len(own_slots))
        key = self._content.encode(tokens, content, intern=True)
        key = key[: len(key) - len(key) % self.page_size]
        path, partial, length = self._walk_down(key, namespace, last_known)
        found = slots_on(path, partial, length)[known:]
        if partial is not None:
            path.append(self._split(partial, length - partial.start))
        if self._history is not None and not chunked:
            self._history.use(path)
        if length < len(key):
            own_slots = own_slots[length - known : len(key) - known]
            leaf = self._add_leaf(path, namespace, key[length:], own_slots)
            leaf.priority = priority
            path.append(leaf)
            if self._history is not None:
                self._history.add(leaf, chunked=chunked)
        self._content.settle()
        self._touch_inserted(path, priority, hit=not chunked)
        return InsertResult(length, found, PythonHandle(self, path[-1] if path else None, len(key)))

    def _check_known(self, after: Handle | None, namespace: Namespace) -> tuple[int, Node | None]:
        """The tokens that the caller vouches for; refuses a handle that proves nothing."""
        if after is None:
            return 0, None
        own, node = self._resolve(after)
        if not own._locks:
            raise NotLockedError("after is not locked; inc_lock_ref comes first")
        if node is not None and root_of(node) is not self._roots.get(namespace):
            raise InvalidArgumentError("after is of another namespace")
        return own.length, node

    def _add_leaf(
        self, path: list[Node], namespace: Namespace, codes: Int32Array, slots: Int32Array
    ) -> Node:
        parent = path[-1] if path else self._root_of(namespace)
        self._ids += 1
        self._runs += 1
        leaf = Node(self._ids, parent, codes.tobytes(), kept(slots))
        leaf.run, leaf.created = self._runs, self._ticks
        parent.children[self._page(leaf.key)] = leaf
        self._evictable += len(slots)
        self._num_nodes += 1
        self._content.retain(codes)
        self._place(parent)
        if self._changes is not None:
            above = parent.run_offset + len(parent.slots)
            self._changes.append(Stored(leaf.run, parent.run, above, leaf.codes, namespace))
        return leaf

    def _root_of(self, namespace: Namespace) -> Root:
        if namespace not in self._roots:
            self._roots[namespace] = root = Root(namespace)
            if self._history is not None:
                root.hash = hash_space(namespace)
        return self._roots[namespace]

    def _touch_inserted(self, path: list[Node], priority: int, *, hit: bool) -> None:
        for node in path:
            node.priority = max(node.priority, priority)
            node.hit_count += hit
        self._refresh(path)

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node` after `at` of its tokens; returns the new head, which it now hangs under."""
        assert node.parent is not None
        self._ids += 1
        head = Node(self._ids, node.parent, node.key[: at * 4], kept(node.slots[:at]))
        head.lock_ref, head.hit_count, head.priority = node.lock_ref, node.hit_count, node.priority
        head.recency, head.created = node.recency, node.created
        head.run, head.run_offset = node.run, node.run_offset
        node.parent.children[self._page(head.key)] = head
        node.key, node.slots = node.key[at * 4 :], kept(node.slots[at:])
        node.run_offset += at
        node.parent = head
        head.children[self._page(node.key)] = node
        self._num_nodes += 1
        if self._history is not None:
            self._history.split(head, node)
        return head

    def evict(self, num_tokens: int) -> Int32Array:
        num_tokens = as_int(num_tokens, "num_tokens")
        if num_tokens < 0:
            raise InvalidArgumentError(f"num_tokens is {num_tokens}; it takes 0 or more")
        left = -(-num_tokens // self.page_size) * self.page_size
        freed: list[Int32Array] = []
        if self._history is not None:
            self._history.begin_eviction(self.total_size)
        while left > 0 and self._leaves:
            victim = self._victim()
            count = min(left, len(victim.slots))
            freed.append(self._trim(victim, count))
            left -= count
        if self._history is not None:
            self._history.end_eviction(self.total_size)
        return concat(freed)

    def _victim(self) -> Node:
        if self._history is None:
            return self._leaf_at(0)
        begins = [self._leaves.bisect_left((kind,)) for kind in range(KINDS + 1)]
        ends = (at for first, end in pairwise(begins) if first < end for at in (first, end - 1))
        return min(map(self._leaf_at, ends), key=self._history.order_key)

    def _leaf_at(self, place: int) -> Node:
        node: Node = self._leaves.peekitem(place)[1]
        return node

    def _trim(self, node: Node, count: int) -> Int32Array:
        """Drop the last `count` tokens of an evictable leaf, and the leaf with its last one."""
        keep = len(node.slots) - count
        slots = node.slots[keep:]
        if self._history is not None:
            self._history.trim(node, keep)
        self._evictable -= count
        self._content.release(node.codes[keep:])
        if self._changes is not None:
            self._changes.append(Trimmed(node.run, node.run_offset + keep))
        if keep:
            node.slots = node.slots[:keep]
            node.end -= count
            if len(node.key) > 8 * keep:  # copied when half is gone: O(1) a trimmed token over time
                node.key, node.slots = node.key[: keep * 4], kept(node.slots)
        else:
            self._remove(node)
        return slots

    def _remove(self, node: Node) -> None:
        """Keeps `node.parent`: handles that end above a later split climb through dead nodes."""
        parent = node.parent
        assert parent is not None
        node.end = 0
        self._place(node)
        del parent.children[self._page(node.key)]
        self._num_nodes -= 1
        self._place(parent)
        if isinstance(parent, Root) and not parent.children:
            del self._roots[parent.namespace]

    def reset(self) -> Int32Array:
        slots = self.all_slots()
        self._clear()
        if self._changes is not None:
            self._changes.clear()
        return slots

    # ---- sizes, changes, inspection ----

    @property
    def evictable_size(self) -> int:
        return self._evictable

    @property
    def protected_size(self) -> int:
        return self._protected

    @property
    def num_nodes(self) -> int:
        return self._num_nodes

    def track_changes(self) -> None:
        if self._changes is None:
            self._changes = []

    def take_changes(self) -> list[Change]:
        taken, self._changes = self._changes or [], None if self._changes is None else []
        return taken

    def walk(self) -> Iterator[NodeInfo]:
        for namespace, node in self._walk_nodes():
            parent = node.parent
            yield NodeInfo(
                node.id, parent.id if parent else 0, namespace, node.start, node.codes, node.slots,
                node.lock_ref, node.recency, node.hit_count, node.priority, not node.children,
                node.run, node.run_offset,
            )  # fmt: skip

    def _walk_nodes(self) -> Iterator[tuple[Namespace, Node]]:
        for namespace, root in self._roots.items():
            stack = list(reversed(root.children.values()))
            while stack:
                node = stack.pop()
                yield namespace, node
                stack.extend(reversed(node.children.values()))

    def check_integrity(self) -> list[str]:
        return check_tree(self)

    # ---- pickling: flat, so that depth costs no recursion; locks and handles stay behind ----

    def __getstate__(self) -> dict[str, Any]:
        nodes = [
            (
                space,
                node.id,
                node.parent and node.parent.id,
                node.key,
                node.slots,
                [getattr(node, field) for field in _PICKLED],
            )
            for space, node in self._walk_nodes()
        ]
        counters = (self._ticks, self._runs, self._ids)
        return {
            "made": (self.page_size, self.policy),
            "nodes": nodes,
            "counters": counters,
            "content": self._content,
            "history": self._history,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made"])  # type: ignore[misc]
        by_id: dict[int, Node] = {}
        for space, id_, parent_id, key, slots, values in state["nodes"]:
            parent = by_id.get(parent_id) or self._root_of(space)
            node = by_id[id_] = Node(id_, parent, key, kept(slots))
            for field, value in zip(_PICKLED, values, strict=True):
                setattr(node, field, value)
            parent.children[self._page(key)] = node
            self._evictable += len(slots)
            self._num_nodes += 1
        for node in by_id.values():
            self._place(node)
        self._ticks, self._runs, self._ids = state["counters"]
        self._content = state["content"]
        self._history = state["history"]


def _check_lengths(known: int, tokens: int, slots: int) -> None:
    if known > tokens:
        raise InvalidArgumentError(f"after has {known} tokens, token_ids has {tokens}")
    if tokens - known != slots:
        raise InvalidSlotsError(
            f"{tokens - known} token_ids came with {slots} slots; they go one to one",
            token_ids=tokens - known,
            slots=slots,
        )
