"""Every invariant of the plain core, checked from the nodes up, trusting no counter."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from radixkv.errors import StaleHandleError
from radixkv.tree.content import count_codes
from radixkv.tree.prefix_hash import extend_hash

if TYPE_CHECKING:
    from radixkv.tree.node import Node
    from radixkv.tree.python_tree import PythonRadixTree


def check_tree(tree: "PythonRadixTree") -> list[str]:
    """One line for each broken invariant (I2 sizes, I3 locks, I7 reach, order, content)."""
    nodes = [node for _, node in tree._walk_nodes()]
    return [
        *_sizes(tree, nodes),
        *_locks(tree, nodes),
        *(line for node in nodes for line in _shape(tree, node)),
        *_order(tree, nodes),
        *_slots(nodes),
        *_content(tree, nodes),
        *_history(tree, nodes),
    ]


def _sizes(tree: "PythonRadixTree", nodes: list["Node"]) -> Iterator[str]:
    protected = sum(len(node.slots) for node in nodes if node.lock_ref)
    evictable = sum(len(node.slots) for node in nodes if not node.lock_ref)
    if (evictable, protected) != (tree.evictable_size, tree.protected_size):
        yield (
            f"I2 sizes: evictable {tree.evictable_size} and protected {tree.protected_size} "
            f"are said, "
            f"{evictable} and {protected} are there"
        )
    if len(nodes) != tree.num_nodes:
        yield f"I2 sizes: {tree.num_nodes} nodes are said, {len(nodes)} are there"


def _locks(tree: "PythonRadixTree", nodes: list["Node"]) -> Iterator[str]:
    held: Counter[int] = Counter()
    for handle, count in tree._locked.items():
        try:
            _, node = tree._resolve(handle)
        except StaleHandleError:
            yield f"I3 locks: a locked handle of length {handle.length} holds tokens that are gone"
            continue
        if node is not None and node.end != handle.length:
            yield f"I3 locks: a locked handle of length {handle.length} ends inside node {node.id}"
        while node is not None and node.parent is not None:
            held[node.id] += count
            node = node.parent
    for node in nodes:
        if node.lock_ref != held[node.id]:
            said, there = node.lock_ref, held[node.id]
            yield f"I3 locks: node {node.id} says lock_ref {said}, {there} handles hold it"


def _shape(tree: "PythonRadixTree", node: "Node") -> Iterator[str]:
    parent = node.parent
    if parent is None or parent.children.get(tree._page(node.key)) is not node:
        yield f"I7 reach: node {node.id} is not found from its parent by its first page"
        return
    if node.end != parent.end + len(node.slots):
        yield f"I7 reach: node {node.id} ends at {node.end}, its parent at {parent.end}"
    if (
        not len(node.slots)
        or len(node.slots) % tree.page_size
        or len(node.key) < 4 * len(node.slots)
    ):
        tokens, slots = len(node.key) // 4, len(node.slots)
        yield f"I7 reach: node {node.id} has {tokens} tokens and {slots} slots"
    if parent.parent is not None and node.recency > parent.recency:
        yield f"order: node {node.id} is newer than its parent {parent.id}"
    if parent.parent is not None and node.lock_ref > parent.lock_ref:
        yield f"I3 locks: node {node.id} is locked more often than its parent {parent.id}"


def _order(tree: "PythonRadixTree", nodes: list["Node"]) -> Iterator[str]:
    there = {node.id for node in nodes if not node.children and not node.lock_ref}
    said = {node.id for node in tree._leaves.values()}
    if there != said:
        yield f"order: evictable leaves are {sorted(there)}, the order holds {sorted(said)}"
    for key, node in tree._leaves.items():
        if key != (*tree._order_of(node), node.id):
            yield f"order: node {node.id} stands at {key}, it belongs at {tree._order_of(node)}"


def _slots(nodes: list["Node"]) -> Iterator[str]:
    seen: Counter[int] = Counter()
    for node in nodes:
        seen.update(node.slots.tolist())
    twice = sorted(slot for slot, count in seen.items() if count > 1)
    if twice:
        yield f"I1 partition: the tree holds slots {twice[:10]} more than once"


def _content(tree: "PythonRadixTree", nodes: list["Node"]) -> Iterator[str]:
    there = count_codes(node.codes for node in nodes)
    if there != tree._content.uses() or len(there) != len(tree._content):
        yield f"content: {tree._content.uses()} codes are said, {there} are there"


def _history(tree: "PythonRadixTree", nodes: list["Node"]) -> Iterator[str]:
    history = tree._history
    if history is None:
        return
    said, there = history.model.waiting_tokens, tree.total_size + history.ghost_tokens
    if said != there:
        yield f"history: {said} tokens are said to wait, {there} are there or ghosts"
    for node in nodes:
        assert node.parent is not None
        if node.hash != extend_hash(node.parent.hash, node.codes):
            yield f"history: node {node.id} has the hash of another prefix"
        if node.used > history.model.turn:
            yield f"history: node {node.id} was used in turn {node.used}, which is to come"
