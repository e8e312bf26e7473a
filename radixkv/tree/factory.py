"""Which tree runs."""

from radixkv.cores import load
from radixkv.tree.radix_tree import RadixTree


def new_tree(page_size: int = 1, policy: str = "lru", core: str | None = None) -> RadixTree:
    """An empty tree of the core that is to run; see `RadixTree` for the arguments and errors.

    >>> tree = new_tree()
    >>> tree.insert([1, 2, 3], [11, 12, 13]).prefix_length
    0
    >>> tree.match_prefix([1, 2, 9]).slots.tolist()
    [11, 12]
    """
    chosen: type[RadixTree] = load(
        core,
        native="radixkv.tree.native_tree:NativeRadixTree",
        python="radixkv.tree.python_tree:PythonRadixTree",
    )
    return chosen(page_size, policy, core)
