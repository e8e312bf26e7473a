"""The order of dfs-weight is that of SGLang's own function over nodes."""

import random

import numpy as np

from radixkv.integrations.sglang.order import depth_first


class Node:
    def __init__(self):
        self.children = {}


def over_nodes(paths):
    """SGLang's `_dfs_weight_order`, on a trie of tickets: weights are of whole subtrees."""
    root, ends = Node(), {}
    for i, path in enumerate(paths):
        node = root
        for ticket in path:
            node = node.children.setdefault(ticket, Node())
        ends.setdefault(node, []).append(i)

    def weight(node):
        return len(ends.get(node, ())) + sum(map(weight, node.children.values()))

    def visit(node):
        for child in sorted(node.children.values(), key=lambda child: -weight(child)):
            yield from visit(child)
        yield from ends.get(node, ())

    return list(visit(root))


def test_subtrees_by_weight_and_paths_after_what_goes_on_from_them():
    rng = random.Random(1)
    for _ in range(300):
        paths = [
            [rng.randrange(2) + 2 * depth for depth in range(rng.randrange(6))]
            for _ in range(rng.randrange(9))
        ]
        arrays = [np.array(path, np.int32) for path in paths]
        assert depth_first(arrays) == over_nodes(paths)


def test_paths_that_each_go_on_from_another():
    paths = [np.arange(n, dtype=np.int32) for n in range(100)]
    assert depth_first(paths) == list(reversed(range(100)))
