"""Every invariant of the Python core, checked from the nodes up, without trust in a counter."""

from collections import Counter
from collections.abc import Iterator

from radixkv.errors import StaleHandleError
from radixkv.tree.content import count_codes
from radixkv.tree.nodes import Node, Nodes


def check_nodes(nodes: Nodes) -> list[str]:
    """One line for each broken invariant (I2 sizes, I3 locks, I7 reach, order, content, policy)."""
    found = [node for _, node in nodes.walk()]
    return [
        *_sizes(nodes, found),
        *_shares(nodes, found),
        *_locks(nodes, found),
        *(line for node in found for line in _shape(nodes, node)),
        *_order(nodes, found),
        *_slots(found),
        *_content(nodes, found),
        *nodes.policy.check(found, nodes.size),
    ]


def _sizes(nodes: Nodes, found: list[Node]) -> Iterator[str]:
    protected = sum(len(node.slots) for node in found if node.lock_ref)
    evictable = sum(len(node.slots) for node in found if not node.lock_ref)
    if (evictable, protected) != (nodes.evictable, nodes.protected):
        yield (
            f"I2 sizes: evictable {nodes.evictable} and protected {nodes.protected} are counted, "
            f"{evictable} and {protected} are there"
        )
    if len(found) != nodes.num_nodes:
        yield f"I2 sizes: {nodes.num_nodes} nodes are counted, {len(found)} are there"


def _shares(nodes: Nodes, found: list[Node]) -> Iterator[str]:
    there: Counter[tuple[int, bool]] = Counter()
    for node in found:
        there[node.share, node.lock_ref > 0] += len(node.slots)
        if node.parent is not None and node.share != node.parent.share:
            yield f"I2 sizes: node {node.id} is of another share than its parent"
    for number, share in enumerate(nodes.shares.all):
        counted, seen = (
            (share.evictable, share.protected),
            (there[number, False], there[number, True]),
        )
        if counted != seen:
            yield f"I2 sizes: {counted} tokens are counted of share {number}, {seen} are there"


def _locks(nodes: Nodes, found: list[Node]) -> Iterator[str]:
    held: Counter[int] = Counter()
    for handle, count in nodes.locked.items():
        try:
            _, node = nodes.resolve(handle)
        except StaleHandleError:
            yield f"I3 locks: a locked handle of length {handle.length} holds tokens that are gone"
            continue
        if node is not None and node.end != handle.length:
            yield f"I3 locks: a locked handle of length {handle.length} ends inside node {node.id}"
        while node is not None and node.parent is not None:
            held[node.id] += count
            node = node.parent
    for node in found:
        if node.lock_ref != held[node.id]:
            counted, there = node.lock_ref, held[node.id]
            yield f"I3 locks: node {node.id} has lock_ref {counted}, {there} handles hold it"


def _shape(nodes: Nodes, node: Node) -> Iterator[str]:
    parent = node.parent
    if parent is None or parent.children.get(nodes.first_page(node.key)) is not node:
        yield f"I7 reach: node {node.id} is not found from its parent by its first page"
        return
    if node.end != parent.end + len(node.slots):
        yield f"I7 reach: node {node.id} ends at {node.end}, its parent at {parent.end}"
    if (
        not len(node.slots)
        or len(node.slots) % nodes.page_size
        or len(node.key) < 4 * len(node.slots)
    ):
        tokens, slots = len(node.key) // 4, len(node.slots)
        yield f"I7 reach: node {node.id} has {tokens} tokens and {slots} slots"
    if parent.parent is not None and node.recency > parent.recency:
        yield f"order: node {node.id} is newer than its parent {parent.id}"
    if parent.parent is not None and node.lock_ref > parent.lock_ref:
        yield f"I3 locks: node {node.id} is locked more often than its parent {parent.id}"


def _order(nodes: Nodes, found: list[Node]) -> Iterator[str]:
    there = {node.id for node in found if not node.children and not node.lock_ref}
    places = [place for leaves in nodes.leaves for place in leaves.items()]
    held = {node.id for _, node in places}
    if there != held:
        yield f"order: evictable leaves are {sorted(there)}, the order holds {sorted(held)}"
    for key, node in places:
        if key != nodes.place_of(node):
            yield f"order: node {node.id} stands at {key}, it belongs at {nodes.place_of(node)}"


def _slots(found: list[Node]) -> Iterator[str]:
    seen: Counter[int] = Counter()
    for node in found:
        seen.update(node.slots.tolist())
    twice = sorted(slot for slot, count in seen.items() if count > 1)
    if twice:
        yield f"I1 partition: the tree holds slots {twice[:10]} more than once"


def _content(nodes: Nodes, found: list[Node]) -> Iterator[str]:
    there = count_codes(node.codes for node in found)
    if there != nodes.content.uses() or len(there) != len(nodes.content):
        yield f"content: {nodes.content.uses()} codes are counted, {there} are there"
