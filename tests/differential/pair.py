"""The two cores side by side: every call goes to both, and their answers must be equal."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from radixkv import RadixTree, errors, new_tree
from radixkv.tree import Handle, InsertResult, MatchResult, NodeInfo, Stored, format_tree
from radixkv.tree.radix_tree import InsertFromResult, TreeCheck
from radixkv.tree.shares import NO_SHARES, Shares


class Both:
    """One object of each core, as an argument: each core gets its own."""

    def __init__(self, python: Any, native: Any) -> None:
        self.both = (python, native)


class Handles(Both):
    """One handle of each core."""

    def __init__(self, python: Handle, native: Handle) -> None:
        assert python.length == native.length
        super().__init__(python, native)


class Pair:
    """Both cores."""

    def __init__(self, page_size: int, policy: str, shares: Shares = NO_SHARES) -> None:
        self.both = tuple(
            new_tree(page_size, policy, core, shares) for core in ("python", "native")
        )
        for tree in self.both:
            tree.track_changes()
        self._checks: dict[RadixTree, TreeCheck] = {}

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """The Python core's answer (handles paired), or its error; asserts that both are equal."""
        answers = [
            outcome(
                getattr(tree, name),
                *(_own(arg, at) for arg in args),
                **{key: _own(arg, at) for key, arg in kwargs.items()},
            )
            for at, tree in enumerate(self.both)
        ]
        assert plain(answers[0]) == plain(answers[1]), name
        return _paired(*answers)

    def pickled(self) -> "Pair":
        """Both after a trip through pickle; they track no changes any more."""
        copy = Pair.__new__(Pair)
        copy._checks = {}
        copy.both = tuple(pickle.loads(pickle.dumps(tree)) for tree in self.both)
        return copy

    def check(self) -> None:
        """All that can be seen is equal, and sound in itself."""
        python, native = (seen(tree) for tree in self.both)
        assert python == native
        for tree in self.both:
            assert tree.check_integrity() == []
            self._check_on(tree)

    def _check_on(self, tree: RadixTree) -> None:
        """A slice of a check that goes on from call to call: nothing that they change is wrong."""
        check = self._checks.get(tree)
        try:
            if check is None or check.is_done:
                check = self._checks[tree] = tree.begin_check()
            assert check.take(1) == []
        except errors.StaleHandleError:  # a reset
            del self._checks[tree]


def _own(value: Any, at: int) -> Any:
    return value.both[at] if isinstance(value, Both) else value


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except Exception as error:
        return error


def _paired(python: Any, native: Any) -> Any:
    if isinstance(python, Handle):
        return Handles(python, native)
    if isinstance(python, MatchResult | InsertResult | InsertFromResult):
        return python._replace(handle=Handles(python.handle, native.handle))  # type: ignore[arg-type]
    return python


def plain(answer: Any) -> Any:
    """An answer as something that == compares in full."""
    if isinstance(answer, Exception):
        return type(answer), str(answer), getattr(answer, "details", None)
    if isinstance(answer, np.ndarray):
        return answer.dtype.str, answer.shape, answer.tolist()
    if isinstance(answer, MatchResult | InsertResult):
        return type(answer), answer[0], plain(answer.slots), answer.handle.length
    if isinstance(answer, InsertFromResult):
        own = InsertResult(*answer[:3])
        return type(answer), plain(own), plain(answer.taken)
    if type(answer).__name__.endswith("Handle"):  # of either core
        return answer.length
    if isinstance(answer, Stored):
        fields = ("run", "parent_run", "parent_offset", "namespace")
        return [getattr(answer, field) for field in fields], plain(answer.codes)
    if isinstance(answer, list):
        return [plain(item) for item in answer]
    if hasattr(answer, "num_bytes"):  # the changes of either core
        return answer.num_bytes, len(answer), [plain(change) for change in answer]
    return answer


def seen(tree: RadixTree) -> Any:
    number_of = {0: 0}
    nodes = [_node(node, number_of) for node in tree.walk()]
    sizes = (tree.evictable_size, tree.protected_size, tree.total_size, tree.num_nodes, tree.epoch)
    return nodes, sizes, tree.all_slots().tolist(), format_tree(tree)[len(repr(tree)) :]


def _node(node: NodeInfo, number_of: dict[int, int]) -> Any:
    """A node with ids by order of appearance: only who is whose parent counts."""
    assert node.id not in number_of
    number_of[node.id] = len(number_of)
    return node._replace(
        id=number_of[node.id],
        parent_id=number_of[node.parent_id],
        codes=plain(node.codes),
        slots=plain(node.slots),
    )
