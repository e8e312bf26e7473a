"""The resident runs of the Python core, a part at a time."""

import numpy as np

from radixkv.errors import StaleHandleError
from radixkv.tree.nodes import Node, Nodes, Root
from radixkv.tree.radix_tree import Stored


class PythonRunParts:
    """See `RunParts`."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes, self._epoch = nodes, nodes.epoch
        self._ends = [(node, node.run) for node in nodes.run_ends()]

    @property
    def is_done(self) -> bool:
        return not self._ends

    def sort(self) -> None:
        self._ends.sort(key=lambda end: -end[1])  # taken from the back

    def take(self, num_tokens: int) -> list[Stored]:
        if self._epoch != self._nodes.epoch:
            raise StaleHandleError("the tree was reset; begin again")
        found: list[Stored] = []
        size = 0
        while self._ends and size < num_tokens:
            path = self._nodes.run_path(*self._ends.pop())
            if path:
                found.append(_stored(path))
                size += len(found[-1].codes)
        return found


def _stored(path: list[Node]) -> Stored:
    first, root = path[0], path[0]
    while root.parent is not None:
        root = root.parent
    assert isinstance(root, Root)
    assert first.parent is not None
    assert first.run_offset == 0
    above = first.parent
    codes = np.concatenate([node.codes for node in path])
    return Stored(first.run, above.run, above.run_offset + len(above.slots), codes, root.namespace)
