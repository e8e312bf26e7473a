"""Nodes of the plain core and the slots in them."""

import numpy as np

from radixkv.tree.namespace import Namespace
from radixkv.tree.reuse_model import KINDS
from radixkv.tree.tokens import EMPTY, Int32Array


class Node:
    """A run of tokens with their slots. A root has no tokens and no parent.

    key: int32 codes as bytes, so that a whole edge is compared by one memcmp. After a trim it may
    run on behind the last slot: only `codes` counts.
    end: tokens from the root to its last one; 0 once it is evicted.
    """

    end: int

    __slots__ = (
        "children", "created", "end", "hash", "hit_count", "id", "key", "lock_ref", "order_key",
        "parent", "priority", "recency", "run", "run_offset", "slots", "used", "uses",
    )  # fmt: skip

    def __init__(self, id: int, parent: "Node | None", key: bytes, slots: Int32Array) -> None:
        self.id = id
        self.parent = parent
        self.key = key
        self.slots = slots
        self.end = len(slots) + (parent.end if parent else 0)
        self.children: dict[bytes, Node] = {}
        self.lock_ref = 0
        self.recency = self.created = self.hit_count = self.priority = 0
        self.run = self.run_offset = 0
        self.used = self.uses = self.hash = 0  # what `UseHistory` knows of it
        self.order_key: tuple[int, ...] | None = None  # its place among the evictable leaves

    @property
    def start(self) -> int:
        return self.end - len(self.slots)

    @property
    def codes(self) -> Int32Array:
        return np.frombuffer(self.key, np.int32, len(self.slots))

    @property
    def kind(self) -> int:
        """How often it was used again, as far as the adaptive policy makes a difference."""
        return min(self.uses, KINDS - 1)

    @property
    def is_alive(self) -> bool:
        """Holds tokens of the tree: is neither evicted nor a root."""
        return self.end > 0


class Root(Node):
    """The top of one namespace; it goes with its last child."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(0, None, b"", EMPTY)
        self.namespace = namespace


def path_to(node: Node) -> list[Node]:
    """The nodes from below the root to `node`."""
    path = []
    while node.parent is not None:
        path.append(node)
        node = node.parent
    return path[::-1]


def root_of(node: Node) -> Node:
    """The top of the node's namespace."""
    while node.parent is not None:
        node = node.parent
    return node


def slots_on(path: list[Node], partial: Node | None, length: int) -> Int32Array:
    """The slots of the first `length` tokens, all of `path` and some of `partial`; a copy."""
    parts = [node.slots for node in path]
    if partial is not None:
        parts.append(partial.slots[: length - partial.start])
    return concat(parts)


def kept(slots: Int32Array) -> Int32Array:
    """A copy that `walk` can show without letting anyone write into the tree."""
    copy = slots.copy()
    copy.flags.writeable = False
    return copy


def concat(parts: list[Int32Array]) -> Int32Array:
    """The parts in one array; empty for none."""
    return np.concatenate(parts) if parts else np.empty(0, np.int32)
