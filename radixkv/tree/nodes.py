"""The nodes of the Python core, their order of eviction, their locks and their sizes.

    root of a namespace
      └─ [1 2 3]          head: new after a split, takes the first tokens
           ├─ [4 5 6]     tail: keeps the identity of the node that was split
           └─ [7 8]

A handle is (node, length). Splits only ever put heads above a node, so the node that ends at
`length` is found by climbing from the handle's node. Recency is a counter: a touched path is
numbered from its leaf up, so a node is never newer than its parent and under LRU the oldest
evictable node is always a leaf.

Eviction, in the order in which it happens:

    place_of    whether a node may go (an unlocked leaf), and the key that its policy gives it
    _place      keeps `leaves` in that order, wherever a node is added, used, locked, split or cut
    evict       asks the policy for victims until enough is free
    _trim       cuts the victim's tail; _remove takes out a node without tokens

`Node`, `Policy` and `Nodes` stand in one file because each place of a leaf calls all three: apart,
the way of an admission changed file 32 times.

`Nodes` trusts its caller: token ids, slots, spans and namespaces were checked before.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from sortedcontainers import SortedDict

from radixkv.arrays import EMPTY, Int32Array
from radixkv.errors import InvalidArgumentError, NotLockedError, StaleHandleError
from radixkv.pages import round_down
from radixkv.tree.content import ContentTable
from radixkv.tree.namespace import Namespace
from radixkv.tree.radix_tree import (
    Change,
    Handle,
    InsertResult,
    KeptPath,
    MatchResult,
    Stored,
    Trimmed,
)
from radixkv.tree.share_counts import ShareCounts

OrderKey: TypeAlias = tuple[float, ...]

# What a pickled node keeps next to its place and its tokens.
_PICKLED = ("hit_count", "priority", "recency", "created", "run", "run_offset", "memo")


class Node:
    """A run of tokens with their slots. A root has no tokens and no parent.

    key: int32 codes as bytes, so that a whole edge is compared by one memcmp. After a trim it may
    run on behind the last slot: only `codes` counts.
    end: tokens from the root to its last one; 0 once it is evicted.
    memo: what the policy keeps about it. order_key: its place among the evictable leaves.
    share: the number of its namespace's share.
    """

    end: int

    __slots__ = (
        "children", "created", "end", "hit_count", "id", "key", "lock_ref", "memo", "order_key",
        "parent", "priority", "recency", "run", "run_offset", "share", "slots",
    )  # fmt: skip

    def __init__(self, id: int, parent: "Node | None", key: bytes, slots: Int32Array) -> None:
        self.id = id
        self.parent = parent
        self.key = key
        self.slots = slots
        self.end = len(slots) + (parent.end if parent else 0)
        self.share: int = parent.share if parent else 0
        self.children: dict[bytes, Node] = {}
        self.lock_ref = 0
        self.recency = self.created = self.hit_count = self.priority = 0
        self.run = self.run_offset = 0
        self.memo: Any = None
        self.order_key: OrderKey | None = None

    @property
    def start(self) -> int:
        """Tokens from the root to its first one."""
        return self.end - len(self.slots)

    @property
    def codes(self) -> Int32Array:
        """(n,) int32, read-only: `key` as far as there are slots."""
        return np.frombuffer(self.key, np.int32, len(self.slots))

    @property
    def is_alive(self) -> bool:
        """Holds tokens of the tree: it is not evicted and not a root."""
        return self.end > 0


class Root(Node):
    """The top of one namespace; it goes with its last child."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace, share: int) -> None:
        super().__init__(0, None, b"", EMPTY)
        self.namespace, self.share = namespace, share


class Policy:
    """What is evicted first: a hook for each thing that happens to the nodes.

    A policy overrides what it needs; as it stands this is LRU. It has the same hooks in
    `kernels/tree/policies/policy.hpp`. `reset` starts a new one; it is pickled with its tree.

        insert    split if the key ends inside a node, use, then add_root, add_leaf if it is new
        lock      split if the handle ends inside a node
        evict     begin_eviction, then victim and trim for each, then end_eviction

    `order_key` is asked after each of them for the leaves that it changed; a match only makes
    nodes newer, which changes a key but calls no other hook.
    """

    def __init__(self, page_size: int) -> None:
        """For an empty tree."""

    def order_key(self, leaf: Node) -> OrderKey:
        """Where an evictable leaf stands: the smallest key goes first.

        Computed again when the leaf is used, split or trimmed. Cost: O(1).
        """
        return (leaf.recency,)

    def add_root(self, root: Root) -> None:
        """A namespace got its root."""

    def use(self, path: Sequence[Node]) -> None:
        """A whole key is inserted; `path` is what was there of it, from the top."""

    def add_leaf(self, leaf: Node, *, chunked: bool) -> None:
        """A leaf was added; chunked: more of its key is coming."""

    def split(self, head: Node, tail: Node) -> None:
        """`head` was cut off the front of `tail` and is its parent now."""

    def trim(self, leaf: Node, keep: int) -> None:
        """A leaf is about to lose its tokens from `keep` on; at 0 it goes."""

    def advance_clock(self, milliseconds: int) -> None:
        """The time of what comes next; time that goes back counts as no time passed."""

    def begin_eviction(self, size: int, count: int) -> None:
        """`count` tokens of a tree of `size` tokens are about to go."""

    def victim(self, leaves: "SortedDict[OrderKey, Node]") -> Node:
        """The leaf to evict, of all evictable ones of a share by their keys (never empty)."""
        first: Node = leaves.peekitem(0)[1]
        return first

    def rank(self, victim: Node) -> OrderKey:
        """Where a victim stands among those of other shares: the smallest goes first."""
        return self.order_key(victim)

    def end_eviction(self, size: int) -> None:
        """`size` tokens are left."""

    def check_node(self, node: Node) -> Iterator[str]:
        """A line for each broken invariant of what the policy keeps about a node."""
        return iter(())

    def check(self, size: int) -> Iterator[str]:
        """The same of what it keeps of all together; the tree has `size` tokens."""
        return iter(())


class Found(NamedTuple):
    """How far a key is cached.

    path: the nodes matched whole, from the top. partial: the one matched in part.
    """

    path: list[Node]
    partial: Node | None
    length: int


class Known(NamedTuple):
    """The beginning of a key that a locked handle stands for: it is not compared again.

    node: where it ends; None for a length of 0.
    """

    length: int = 0
    node: Node | None = None


class PythonHandle(Handle):
    """See `Handle`. node: None for a length of 0. locks: how often it is locked."""

    __slots__ = ("epoch", "length", "locks", "node", "owner")

    def __init__(self, owner: "Nodes", node: Node | None, length: int) -> None:
        self.owner = owner
        self.epoch = owner.epoch
        self.node = node
        self.locks = 0
        self.length = length


class NodeWatcher(Protocol):
    """Gets what each node holds before that changes, and after: a check that goes on meanwhile."""

    def leaves(self, node: Node, keep: int) -> None:
        """The node is about to change; its tokens from `keep` on go, all of them with the node."""

    def enters(self, node: Node, known: int) -> None:
        """The node has changed, or is new; its tokens from `known` on came meanwhile."""

    def placed(self, node: Node, step: int) -> None:
        """The node got a place in the order of eviction (step 1), or lost it (-1)."""


class Nodes:
    """The nodes under the roots of all namespaces.

    shares: what is cached of each share. leaves: of each, its evictable leaves by
    `Policy.order_key`, the smallest first.
    locked: the handles that are locked, with how often.
    changes: what was stored and trimmed since they were last taken; None: not tracked.
    watchers: checks under way.
    """

    def __init__(self, page_size: int, policy: type[Policy], shares: ShareCounts) -> None:
        assert page_size > 0
        self.page_size, self.shares = page_size, shares
        self.epoch = 0
        self.changes: list[Change] | None = None
        self.watchers: tuple[NodeWatcher, ...] = ()
        self._new_policy = policy
        self.clear()

    def clear(self) -> None:
        """Forget everything; every handle becomes stale."""
        self.epoch += 1
        self.watchers = ()
        self.roots: dict[Namespace, Root] = {}
        self.shares.clear()
        self.leaves: list[SortedDict[OrderKey, Node]] = [SortedDict() for _ in self.shares.all]
        self.policy = self._new_policy(self.page_size)
        self.locked: dict[Handle, int] = {}
        self.content = ContentTable()
        self.evictable = self.protected = self.num_nodes = 0
        self._touches = self._runs = self._ids = 0
        if self.changes is not None:
            self.changes.clear()

    @property
    def size(self) -> int:
        """Cached tokens."""
        return self.evictable + self.protected

    # ---- looking ----

    def match(self, codes: Int32Array, namespace: Namespace) -> MatchResult:
        """The longest prefix of `codes`; refreshes the nodes matched whole."""
        path, partial, length = self.find(codes, namespace)
        self._refresh(path)
        last = partial or (path[-1] if path else None)
        return MatchResult(
            length, _slots_on(path, partial, length), PythonHandle(self, last, length)
        )

    def find(self, codes: Int32Array, namespace: Namespace, known: Node | None = None) -> Found:
        """How far `codes` are cached; not compared again up to the end of the node `known`."""
        key, page = codes.tobytes(), self.page_size * 4
        path = _path_to(known) if known is not None else []
        node = known or self.roots.get(namespace)
        at = known.end * 4 if known is not None else 0
        while node is not None and at + page <= len(key):
            node = node.children.get(key[at : at + page])
            if node is None:
                break
            if not key.startswith(node.key, at):
                common = self._common(node.codes, codes[at // 4 :])
                if common < len(node.slots):
                    return Found(path, node, at // 4 + common)
            path.append(node)
            at += len(node.slots) * 4
        return Found(path, None, at // 4)

    def _common(self, one: Int32Array, other: Int32Array) -> int:
        """Leading tokens in whole pages that are equal."""
        n = min(len(one), len(other))
        differ = one[:n] != other[:n]
        same = int(differ.argmax()) if differ.any() else n
        return same - same % self.page_size

    def first_page(self, key: bytes) -> bytes:
        """What an edge is found by."""
        return key[: self.page_size * 4]

    def path_slots(self, handle: Handle) -> Int32Array:
        """The slots of the handle's tokens. Raises StaleHandleError."""
        own, node = self.resolve(handle)
        path = _path_to(node) if node is not None else []
        return _slots_on(path, None, own.length)[: own.length]

    # ---- recency and the order of eviction ----

    def _refresh(self, path: Sequence[Node]) -> None:
        """Make the path the newest there is, its top newer than its leaf."""
        for node in reversed(path):
            self._touches += 1
            node.recency = self._touches
        if path:
            self._place(path[-1])  # the others have children and so no place

    def place_of(self, node: Node) -> OrderKey | None:
        """Where a node belongs among the evictable leaves; None: it is not one."""
        if node.is_alive and not node.children and not node.lock_ref:
            return (*self.policy.order_key(node), node.id)
        return None

    def _place(self, node: Node) -> None:
        """Put a node where it belongs among the evictable leaves, or take it out."""
        key = self.place_of(node)
        if key == node.order_key:
            return
        for each in self.watchers:
            each.placed(node, (key is not None) - (node.order_key is not None))
        if node.order_key is not None:
            del self.leaves[node.share][node.order_key]
        if key is not None:
            self.leaves[node.share][key] = node
        node.order_key = key

    # ---- locks ----

    def lock(self, handle: Handle) -> None:
        """Protect the handle's tokens; one that ends inside a node splits it there."""
        own, node = self.resolve(handle)
        if node is not None and own.length < node.end:
            node = self._split(node, own.length - node.start)
            self._refresh(_path_to(node))
        own.node = node
        own.locks += 1
        self.locked[own] = own.locks
        self._add_lock(node, 1)

    def unlock(self, handle: Handle) -> None:
        """Undo one `lock`."""
        own, node = self.resolve(handle)
        if not own.locks:
            raise NotLockedError("the handle is not locked; inc_lock_ref comes first")
        own.locks -= 1
        self.locked[own] = own.locks
        if not own.locks:
            del self.locked[own]
        self._add_lock(node, -1)

    def _add_lock(self, node: Node | None, step: int) -> None:
        """Lock the path down to `node` `step` times more."""
        while node is not None and node.parent is not None:
            was_free = node.lock_ref == 0
            self._leaves(node, len(node.slots))
            node.lock_ref += step
            assert node.lock_ref >= 0
            if was_free or node.lock_ref == 0:
                moved = len(node.slots) if was_free else -len(node.slots)
                self.protected += moved
                self.evictable -= moved
                share = self.shares.all[node.share]
                share.protected += moved
                share.evictable -= moved
                self._place(node)
            self._enters(node, len(node.slots))
            node = node.parent

    def _leaves(self, node: Node, keep: int) -> None:
        for each in self.watchers:
            each.leaves(node, keep)

    def _enters(self, node: Node, known: int) -> None:
        for each in self.watchers:
            each.enters(node, known)

    def resolve(self, handle: Handle, name: str = "handle") -> tuple[PythonHandle, Node | None]:
        """The handle and the node of its last token.

        Raises StaleHandleError for a handle of another tree or epoch, or of evicted tokens.
        """
        if not isinstance(handle, PythonHandle):
            raise StaleHandleError(f"{name} must be a Handle of this tree; got {handle!r}")
        if handle.owner is not self:
            raise StaleHandleError(f"{name} must be a Handle of this tree; got one of another")
        if handle.epoch != self.epoch:
            raise StaleHandleError(
                f"the handle is of epoch {handle.epoch}, the tree is in {self.epoch}; match again",
                epoch=self.epoch,
            )
        node = handle.node
        while node is not None and not (node.is_alive and node.start < handle.length):
            node = node.parent
        if handle.length and (node is None or node.end < handle.length):
            raise StaleHandleError(
                "the handle's tokens were evicted; match again", length=handle.length
            )
        return handle, node

    def path_of(self, handle: Handle) -> KeptPath:
        """The codes and slots of a handle's tokens, copies. Raises StaleHandleError."""
        own, node = self.resolve(handle)
        path = [] if node is None else _path_to(node)
        codes, slots = ([getattr(each, what) for each in path] for what in ("codes", "slots"))
        return KeptPath(_concat(codes)[: own.length], _concat(slots)[: own.length])

    def known(self, after: Handle | None, namespace: Namespace) -> Known:
        """What a locked handle stands for.

        Raises StaleHandleError, NotLockedError, or InvalidArgumentError for another namespace.
        """
        if after is None:
            return Known()
        own, node = self.resolve(after, "after")
        if not own.locks:
            raise NotLockedError("after is not locked; inc_lock_ref comes first")
        if node is not None and _root_of(node) is not self.roots.get(namespace):
            raise InvalidArgumentError(
                "after must be of the given namespace; got a handle of another namespace"
            )
        return Known(own.length, node)

    def namespace_of(self, handle: Handle) -> Namespace | None:
        """Where a handle's tokens are; None for a length of 0. Raises StaleHandleError."""
        _, node = self.resolve(handle)
        if node is None:
            return None
        root = _root_of(node)
        assert isinstance(root, Root)
        return root.namespace

    # ---- inserting and evicting ----

    def insert(
        self,
        codes: Int32Array,
        slots: Int32Array,
        namespace: Namespace,
        *,
        priority: int,
        chunked: bool,
        known: Known,
    ) -> InsertResult:
        """Store the whole pages of `codes`; `slots` are those of the codes behind `known`."""
        assert len(codes) == known.length + len(slots)
        codes = codes[: round_down(len(codes), self.page_size)]
        path, partial, length = self.find(codes, namespace, known.node)
        found = _slots_on(path, partial, length)[known.length :]
        if partial is not None:
            path.append(self._split(partial, length - partial.start))
        if not chunked:
            self.policy.use(path)
        if length < len(codes):
            own = slots[length - known.length : len(codes) - known.length]
            leaf = self._add_leaf(path, namespace, codes[length:], own)
            leaf.priority = priority
            path.append(leaf)
            self.policy.add_leaf(leaf, chunked=chunked)
        self.content.settle()
        for node in path:
            node.priority = max(node.priority, priority)
            node.hit_count += not chunked
        self._refresh(path)
        last = path[-1] if path else None
        assert len(codes) == (last.end if last else 0)
        return InsertResult(length, found, PythonHandle(self, last, len(codes)))

    def _add_leaf(
        self, path: list[Node], namespace: Namespace, codes: Int32Array, slots: Int32Array
    ) -> Node:
        """A leaf with these tokens below `path`."""
        parent = path[-1] if path else self._root_of(namespace)
        self._ids += 1
        self._runs += 1
        leaf = Node(self._ids, parent, codes.tobytes(), _kept(slots))
        leaf.run, leaf.created = self._runs, self._touches
        parent.children[self.first_page(leaf.key)] = leaf
        self.evictable += len(slots)
        self.shares.add(leaf.share, len(slots))
        self.num_nodes += 1
        self.content.retain(codes)
        self._place(parent)
        self._enters(leaf, 0)
        if self.changes is not None:
            above = parent.run_offset + len(parent.slots)
            self.changes.append(Stored(leaf.run, parent.run, above, leaf.codes, namespace))
        return leaf

    def _root_of(self, namespace: Namespace) -> Root:
        if namespace not in self.roots:
            self.roots[namespace] = root = Root(namespace, self.shares.number(namespace))
            self.policy.add_root(root)
        return self.roots[namespace]

    def _split(self, node: Node, at: int) -> Node:
        """Cut `node` after `at` of its tokens; returns the new head, which it now hangs under."""
        assert node.parent is not None
        assert 0 < at < len(node.slots)
        assert at % self.page_size == 0
        self._leaves(node, 0)
        self._ids += 1
        head = Node(self._ids, node.parent, node.key[: at * 4], _kept(node.slots[:at]))
        head.lock_ref, head.hit_count, head.priority = node.lock_ref, node.hit_count, node.priority
        head.recency, head.created = node.recency, node.created
        head.run, head.run_offset = node.run, node.run_offset
        node.parent.children[self.first_page(head.key)] = head
        node.key, node.slots = node.key[at * 4 :], _kept(node.slots[at:])
        node.run_offset += at
        node.parent = head
        head.children[self.first_page(node.key)] = node
        self.num_nodes += 1
        self.policy.split(head, node)
        self._place(node)
        self._enters(head, 0)
        self._enters(node, 0)
        assert node.start == head.end
        return head

    def evict(self, count: int, whom: int | None = None, own: int = 0) -> Int32Array:
        """Slots of `count` tokens (whole pages), at most what the shares have room for.

        whom: for which share. own: how many of them come from it, before others.
        """
        assert own <= count <= self.shares.room_for(whom)
        freed: list[Int32Array] = []
        self.policy.begin_eviction(self.size, count)
        while count > 0:
            victim, most = self._victim(whom, own)
            slots = self._trim(victim, min(count, most, len(victim.slots)))
            freed.append(slots)
            count -= len(slots)
            own = max(own - len(slots), 0)
        self.policy.end_eviction(self.size)
        return _concat(freed)

    def _victim(self, whom: int | None, own: int) -> tuple[Node, int]:
        """What to evict next for a share, and how many of its tokens at most."""
        if own:
            assert whom is not None
            return self.policy.victim(self.leaves[whom]), own
        most = self.shares.may_give(whom)
        victims = [self.policy.victim(self.leaves[number]) for number in most]
        first = min(victims, key=self.policy.rank)
        return first, most[first.share]

    def evict_below(self, codes: Int32Array, namespace: Namespace) -> Int32Array:
        """Slots of all that continues `codes` and is under no lock."""
        path, partial, length = self.find(codes, namespace)
        top = partial or (path[-1] if path else self.roots.get(namespace))
        if top is None or length < len(codes):
            return EMPTY
        # What is not locked has nothing locked below it.
        going = [(node, len(node.slots)) for node in _below(top) if not node.lock_ref][::-1]
        if partial is not None and not partial.lock_ref:
            going.append((partial, partial.end - length))
        if not going:
            return EMPTY
        self.policy.begin_eviction(self.size, sum(count for _, count in going))
        freed = [self._trim(node, count) for node, count in going]
        self.policy.end_eviction(self.size)
        return _concat(freed)

    def _trim(self, node: Node, count: int) -> Int32Array:
        """Drop the last `count` tokens of an evictable leaf, and the leaf with its last one."""
        assert not node.lock_ref
        assert not node.children
        keep = len(node.slots) - count
        slots = node.slots[keep:]
        self._leaves(node, keep)
        self.policy.trim(node, keep)
        self.evictable -= count
        self.shares.evict(node.share, count)
        self.content.release(node.codes[keep:])
        if self.changes is not None:
            self.changes.append(Trimmed(node.run, node.run_offset + keep))
        if keep:
            node.slots = node.slots[:keep]
            node.end -= count
            if len(node.key) > 8 * keep:  # copied when half is gone: O(1) a trimmed token over time
                node.key, node.slots = node.key[: keep * 4], _kept(node.slots)
            self._place(node)
            self._enters(node, keep)
        else:
            self._remove(node)
        return slots

    def _remove(self, node: Node) -> None:
        """Keeps `node.parent`: handles that end above a later split climb through dead nodes."""
        parent = node.parent
        assert parent is not None
        node.end = 0
        self._place(node)
        del parent.children[self.first_page(node.key)]
        self.num_nodes -= 1
        self._place(parent)
        if isinstance(parent, Root) and not parent.children:
            del self.roots[parent.namespace]

    # ---- all of them ----

    def walk(self) -> Iterator[tuple[Namespace, Node]]:
        """Every node with its namespace, depth first, parents before children."""
        for namespace, root in self.roots.items():
            for node in _below(root):
                yield namespace, node

    def run_ends(self) -> list[Node]:
        """The last node of each run: a run's nodes are a path."""
        ends: dict[int, Node] = {}
        for _, node in self.walk():
            ends[node.run] = node
        return list(ends.values())

    def run_path(self, end: Node, run: int) -> list[Node]:
        """The nodes that a run has now, by where it ended before; none: it is gone."""
        path, node = [], end
        while node.run == run and node.parent is not None:
            if node.is_alive:
                path.append(node)
            node = node.parent
        return path[::-1]

    def state(self) -> dict[str, Any]:
        """Everything but locks, handles and changes, flat, so that depth costs no recursion."""
        nodes = [
            (
                space,
                node.id,
                node.parent and node.parent.id,
                node.key,
                node.slots,
                [getattr(node, field) for field in _PICKLED],
            )
            for space, node in self.walk()
        ]
        return {
            "nodes": nodes,
            "counters": (self._touches, self._runs, self._ids),
            "content": self.content,
            "policy": self.policy,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Fill empty nodes from what `state` gave."""
        assert not self.num_nodes
        self.content, self.policy = state["content"], state["policy"]
        by_id: dict[int, Node] = {}
        for space, id_, parent_id, key, slots, values in state["nodes"]:
            parent = by_id.get(parent_id) or self._root_of(space)
            node = by_id[id_] = Node(id_, parent, key, _kept(slots))
            for field, value in zip(_PICKLED, values, strict=True):
                setattr(node, field, value)
            parent.children[self.first_page(key)] = node
            self.evictable += len(slots)
            self.shares.add(node.share, len(slots))
            self.num_nodes += 1
        for node in by_id.values():
            self._place(node)
        self._touches, self._runs, self._ids = state["counters"]


def _below(top: Node) -> Iterator[Node]:
    """The nodes below `top`, depth first, parents before children."""
    stack = list(reversed(top.children.values()))
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children.values()))


def _path_to(node: Node) -> list[Node]:
    """The nodes from below the root to `node`."""
    path = []
    while node.parent is not None:
        path.append(node)
        node = node.parent
    return path[::-1]


def _root_of(node: Node) -> Node:
    """The top of the node's namespace."""
    while node.parent is not None:
        node = node.parent
    return node


def _slots_on(path: list[Node], partial: Node | None, length: int) -> Int32Array:
    """The slots of the first `length` tokens, all of `path` and some of `partial`; a copy."""
    parts = [node.slots for node in path]
    if partial is not None:
        parts.append(partial.slots[: length - partial.start])
    return _concat(parts)


def _kept(slots: Int32Array) -> Int32Array:
    """A copy that `walk` can show without letting anyone write into the tree."""
    copy = slots.copy()
    copy.flags.writeable = False
    return copy


def _concat(parts: list[Int32Array]) -> Int32Array:
    """The parts in one array; empty if there are no parts."""
    return np.concatenate(parts) if parts else EMPTY
