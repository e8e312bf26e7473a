"""Every invariant of the Python core, checked from the nodes up, without trust in a counter."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.errors import StaleHandleError
from radixkv.tree.content import count_codes
from radixkv.tree.nodes import Node, Nodes

# A node with so many tokens takes as long as two without any.
_TOKENS_OF_A_NODE = 256
_SHOWN = 10


class NodesCheck:
    """See `TreeCheck`. Lines begin with what is broken: I1 slots, I2 sizes, I3 locks, I7 reach,
    order, content, or what the policy keeps.

    A node that was there at the beginning is reached from its parent, or from the head that was cut
    off it since; what is newer was shown by `enters`.
    """

    def __init__(self, nodes: Nodes, num_slots: int | None) -> None:
        self._nodes, self._epoch = nodes, nodes.epoch
        self._num_slots = num_slots
        self._coming: list[Node] = list(nodes.roots.values())
        self._seen: set[int] = set()  # ids of nodes that had their turn
        self._tokens: Counter[tuple[int, bool]] = Counter()  # by share, and whether locked
        self._num_locks = self._num_places = 0
        self._codes: Counter[int] = Counter()  # of content, by number
        self._holders: Counter[int] = Counter()  # by slot
        self.is_done = False
        nodes.watchers = (*nodes.watchers, self)

    def close(self) -> None:
        """See `TreeCheck`."""
        self._epoch = -1
        self._nodes.watchers = tuple(each for each in self._nodes.watchers if each is not self)

    def take(self, num_nodes: int) -> list[str]:
        """See `TreeCheck`."""
        self._check_epoch()
        if not self._coming:
            self.is_done = True
            return list(self._compare_sums())
        lines: list[str] = []
        cost = 0
        while self._coming and cost < num_nodes:
            node = self._coming.pop()
            self._coming.extend(node.children.values())
            cost += 1 + len(node.slots) // _TOKENS_OF_A_NODE
            if node.is_alive and node.parent is not None:
                lines += _check_node(self._nodes, node)
                self._add(node)
        return lines

    def marks(self, first: int, end: int) -> NDArray[np.bool_]:
        """See `TreeCheck`."""
        self._check_epoch()
        return np.array([slot in self._holders for slot in range(first, end)], np.bool_)

    def _check_epoch(self) -> None:
        if self._epoch != self._nodes.epoch:
            raise StaleHandleError("the tree was reset during its check; begin again")

    # ---- what changes meanwhile ----

    def leaves(self, node: Node, keep: int) -> None:
        """The node is about to change; its tokens from `keep` on go."""
        if node.id not in self._seen:
            return
        self._count(node, -1)
        self._count_tokens(node.slots[keep:], node.codes[keep:], -1)
        if not keep:
            self._seen.discard(node.id)
            self._num_places -= node.order_key is not None

    def enters(self, node: Node, known: int) -> None:
        """The node has changed, or is new; its tokens from `known` on came meanwhile."""
        if node.id in self._seen:
            self._count(node, 1)
            self._count_tokens(node.slots[known:], node.codes[known:], 1)
        elif not known:
            self._add(node)

    def _add(self, node: Node) -> None:
        if node.id not in self._seen:
            self._seen.add(node.id)
            self._num_places += node.order_key is not None
            self._count(node, 1)
            self._count_tokens(node.slots, node.codes, 1)

    def placed(self, node: Node, step: int) -> None:
        """The node got a place in the order of eviction (step 1), or lost it (-1)."""
        if node.id in self._seen:
            self._num_places += step

    def _count(self, node: Node, step: int) -> None:
        self._tokens[node.share, node.lock_ref > 0] += step * len(node.slots)
        self._num_locks += step * node.lock_ref

    def _count_tokens(self, slots: Int32Array, codes: Int32Array, step: int) -> None:
        for counter, found in (
            (self._holders, Counter(slots.tolist())),
            (self._codes, count_codes([codes])),
        ):
            for key, count in found.items():
                counter[key] += step * count
                if not counter[key]:
                    del counter[key]

    # ---- sums ----

    def _compare_sums(self) -> Iterator[str]:
        yield from self._compare_sizes()
        yield from self._compare_shares()
        yield from self._compare_locks()
        yield from self._compare_order()
        yield from self._compare_slots()
        said = self._nodes.content.uses()
        if self._codes != said or len(self._codes) != len(self._nodes.content):
            yield f"content: {said} codes are counted, {dict(self._codes)} are there"
        yield from self._nodes.policy.check(self._nodes.size)

    def _compare_sizes(self) -> Iterator[str]:
        nodes = self._nodes
        there = {
            is_locked: sum(count for key, count in self._tokens.items() if key[1] == is_locked)
            for is_locked in (False, True)
        }
        if (there[False], there[True]) != (nodes.evictable, nodes.protected):
            yield (
                f"I2 sizes: evictable {nodes.evictable} and protected {nodes.protected} are "
                f"counted, {there[False]} and {there[True]} are there"
            )
        if len(self._seen) != nodes.num_nodes:
            yield f"I2 sizes: {nodes.num_nodes} nodes are counted, {len(self._seen)} are there"

    def _compare_shares(self) -> Iterator[str]:
        for number, share in enumerate(self._nodes.shares.all):
            counted = share.evictable, share.protected
            there = self._tokens[number, False], self._tokens[number, True]
            if counted != there:
                yield f"I2 sizes: {counted} tokens are counted of share {number}, {there} are there"

    def _compare_locks(self) -> Iterator[str]:
        """Only what a handle locks is looked at, unless more is locked."""
        nodes, held = self._nodes, Counter[Node]()
        for handle, count in nodes.locked.items():
            try:
                _, node = nodes.resolve(handle)
            except StaleHandleError:
                length = handle.length
                yield f"I3 locks: a locked handle of length {length} holds tokens that are gone"
                continue
            if node is not None and node.end != handle.length:
                length = handle.length
                yield f"I3 locks: a locked handle of length {length} ends inside node {node.id}"
            while node is not None and node.parent is not None:
                held[node] += count
                node = node.parent
        is_all = held.total() == self._num_locks
        others = () if is_all else (node for _, node in nodes.walk() if node not in held)
        for node in chain(held, others):
            if node.lock_ref != held[node]:
                counted, there = node.lock_ref, held[node]
                yield f"I3 locks: node {node.id} has lock_ref {counted}, {there} handles hold it"

    def _compare_order(self) -> Iterator[str]:
        """Each node that has a place was found there: these are all unless there are more."""
        places = sum(map(len, self._nodes.leaves))
        if places != self._num_places:
            yield f"order: {places} leaves stand in it, {self._num_places} belong there"

    def _compare_slots(self) -> Iterator[str]:
        if len(self._holders) != self._holders.total():
            twice = sorted(slot for slot, count in self._holders.items() if count > 1)
            yield f"I1 partition: the tree holds slots {twice[:_SHOWN]} more than once"
        if self._num_slots is not None:
            outside = sorted(slot for slot in self._holders if not 0 <= slot < self._num_slots)
            if outside:
                yield f"I1 partition: the tree holds slots {outside[:_SHOWN]}, not in the pool"


def _check_node(nodes: Nodes, node: Node) -> Iterator[str]:
    """What holds of one node and its parent."""
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
    if node.share != parent.share:
        yield f"I2 sizes: node {node.id} is of another share than its parent"
    if parent.parent is not None and node.recency > parent.recency:
        yield f"order: node {node.id} is newer than its parent {parent.id}"
    if parent.parent is not None and node.lock_ref > parent.lock_ref:
        yield f"I3 locks: node {node.id} is locked more often than its parent {parent.id}"
    yield from _check_place(nodes, node)
    yield from nodes.policy.check_node(node)


def _check_place(nodes: Nodes, node: Node) -> Iterator[str]:
    belongs, place = nodes.place_of(node), node.order_key
    if belongs != place:
        yield f"order: node {node.id} stands at {place}, it belongs at {belongs}"
    elif place is not None and nodes.leaves[node.share].get(place) is not node:
        yield f"order: node {node.id} has no place in the order"
