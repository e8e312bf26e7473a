"""The fast core, in C++: see `kernels/tree/` and, bound to Python, `kernels/binding/`."""

from typing import Any

from radixkv.kernels._core import Tree
from radixkv.tree.radix_tree import RadixTree


class NativeRadixTree(Tree, RadixTree):
    """See `RadixTree`."""

    core = "native"

    # Pickling is flat, so that depth costs no recursion; locks and handles stay behind.

    def __getstate__(self) -> dict[str, Any]:
        return {
            "made": (self.page_size, self.policy, self.shares),
            "nodes": list(self.walk()),
            "counters": self._counters(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["made"])  # type: ignore[misc]
        self._restore(state["nodes"], state["counters"])
