"""A tree as text."""

from collections.abc import Iterator
from itertools import islice

from radixkv.tree.radix_tree import NodeInfo, RadixTree

# Deeper levels keep this indentation: a path of thousands of nodes must not print a triangle.
MAX_INDENT = 24
SHOWN_TOKENS = 8


def format_tree(tree: RadixTree, max_nodes: int = 200) -> str:
    """The tree as text: a line a node, indented by depth, at most `max_nodes` of them.

    Parameters
    ----------
    tree
        The tree.
    max_nodes
        Nodes to show at most.

    Returns
    -------
    str
        A line a node.
    """
    lines = [repr(tree), *islice(_lines(tree), max_nodes)]
    if tree.num_nodes > max_nodes:
        lines.append(f"... {tree.num_nodes - max_nodes} more nodes")
    return "\n".join(lines)


def _lines(tree: RadixTree) -> Iterator[str]:
    depth_of = {0: 0}
    for node in tree.walk():
        depth = depth_of[node.id] = depth_of[node.parent_id] + 1
        indent = "  " * min(depth, MAX_INDENT)
        yield (
            f"{indent}{_tokens(node)} x{len(node.codes)} lock={node.lock_ref} "
            f"recency={node.recency}" + (f" {node.namespace}" if node.parent_id == 0 else "")
        )


def _tokens(node: NodeInfo) -> str:
    shown = " ".join(map(str, node.codes[:SHOWN_TOKENS].tolist()))
    return f"[{shown}{' ...' if len(node.codes) > SHOWN_TOKENS else ''}]"
