"""`check_integrity` of the plain core names each invariant that is broken by hand.

A healthy tree cannot show that the check can fail.
"""

import numpy as np
import pytest

from radixkv import new_tree
from radixkv.tree.nodes import Node
from radixkv.tree.python_tree import PythonRadixTree


@pytest.fixture
def tree() -> PythonRadixTree:
    tree = new_tree(core="python")
    assert isinstance(tree, PythonRadixTree)
    tree.insert([1, 2, 3, 4], [11, 12, 13, 14])
    tree.insert([1, 2, 9], [11, 12, 19], content=[(2, 1, b"image")])
    tree.inc_lock_ref(tree.match_prefix([1, 2, 3, 4]).handle)
    assert tree.check_integrity() == []
    return tree


def node(tree: PythonRadixTree, last_slot: int) -> Node:
    return next(node for _, node in tree.nodes.walk() if node.slots[-1] == last_slot)


def set_slots(node: Node, *slots: int) -> None:
    node.slots = np.array(slots, np.int32)


BREAKS = {
    "a size that drifted": (
        lambda tree: setattr(tree.nodes, "evictable", -3), "I2 sizes: evictable -3"
    ),
    "a node not counted": (lambda tree: setattr(tree.nodes, "num_nodes", 7), "7 nodes are counted"),
    "a lock of no handle": (lambda tree: setattr(node(tree, 19), "lock_ref", 1), "I3 locks: node"),
    "a lock that was lost": (lambda tree: setattr(node(tree, 14), "lock_ref", 0), "1 handles hold"),
    "a parent locked less": (lambda tree: setattr(node(tree, 12), "lock_ref", 0), "its parent"),
    "a handle that was forgotten": (lambda tree: tree.nodes.locked.clear(), "I3 locks: node"),
    "an edge that leads nowhere": (
        lambda tree: setattr(node(tree, 14), "parent", node(tree, 19)), "I7 reach: node"
    ),
    "a node that ends elsewhere": (lambda tree: setattr(node(tree, 19), "end", 9), "ends at 9"),
    "a node newer than its parent": (
        lambda tree: setattr(node(tree, 19), "recency", 99), "is newer than its parent"
    ),
    "a leaf that is no candidate": (
        lambda tree: tree.nodes.leaves[0].clear(), "has no place in the order"
    ),
    "a candidate that is gone": (
        lambda tree: tree.nodes.leaves[0].update({(9,): node(tree, 14)}),
        "2 leaves stand in it, 1 belong there",
    ),
    "a candidate in a wrong place": (
        lambda tree: setattr(node(tree, 19), "recency", 0), "order: node"
    ),
    "a slot that two nodes hold": (
        lambda tree: set_slots(node(tree, 14), 13, 19), "I1 partition: the tree holds slots [19]"
    ),
    "tokens gone from under a lock": (
        lambda tree: setattr(node(tree, 14), "end", 3), "a locked handle of length 4 holds tokens"
    ),
    "a node without a token": (lambda tree: set_slots(node(tree, 14)), "0 slots"),
    "content that was not released": (
        lambda tree: tree.nodes.content.retain(np.array([-1], np.int32)), "content:"
    ),
    "content that was not stored": (
        lambda tree: tree.nodes.content.encode(
            np.array([1], np.int32), [(0, 1, b"other")], intern=True
        ),
        "content:",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("break_it", "line"), BREAKS.values(), ids=BREAKS)
def test_what_is_broken_is_named(tree, break_it, line):
    break_it(tree)
    lines = tree.check_integrity()
    assert any(line in each for each in lines), lines


def test_a_locked_handle_that_ends_inside_a_node_is_named(tree):
    inside = tree.match_prefix([1]).handle
    tree.nodes.locked[inside] = 1
    assert any(
        "a locked handle of length 1 ends inside node" in line for line in tree.check_integrity()
    )
