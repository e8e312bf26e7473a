"""Holdings driven by real trees, and a slow model of what each holder holds."""

from typing import Any

import numpy as np

from radixkv import DEFAULT, Namespace, new_tree
from radixkv.cache.events import Event, Update
from radixkv.cache.runs import Runs, replay
from radixkv.router.holdings import Holdings
from radixkv.tree import Stored, Trimmed

OTHER = Namespace(salt="other")
EPOCH = 77


def codes(*ids: int) -> Any:
    return np.array(ids, np.int32)


def update(revision, *changes, epoch=EPOCH, **how):
    return Update(epoch, revision, tuple(Event(revision, change) for change in changes), **how)


def stored(run, *ids, parent=0, offset=0, namespace=Namespace()):  # noqa: B008 - it is frozen
    return Stored(run, parent, offset, codes(*ids), namespace)


def prefixes_of(runs: Runs) -> set[tuple[Namespace, tuple[int, ...]]]:
    """Every prefix that these runs make resident, the slow way."""
    found = set()
    for number in runs:
        path = _path(runs, number)
        own = len(runs[number].codes)
        found |= {
            (runs[number].namespace, path[:end])
            for end in range(len(path) - own + 1, len(path) + 1)
        }
    return found


def _path(runs: Runs, number: int) -> tuple[int, ...]:
    path: tuple[int, ...] = ()
    offset = len(runs[number].codes)
    while number:
        run = runs[number]
        path = (*run.codes[:offset].tolist(), *path)
        number, offset = run.parent_run, run.parent_offset
    return path


def plain(runs: Runs) -> dict[int, Any]:
    """Runs as values that compare."""
    return {
        number: (run.parent_run, run.parent_offset, run.codes.tolist(), run.namespace)
        for number, run in runs.items()
    }


class Engine:
    """A worker's tree, whose changes one holder follows."""

    def __init__(self, holdings: Holdings, roots: dict[Namespace, int], page_size: int = 1) -> None:
        self.holdings, self.roots, self.page_size = holdings, roots, page_size
        self.holder = holdings.add_holder(page_size)
        self.tree = new_tree(page_size, core="python")
        self.tree.track_changes()
        self.runs: Runs = {}

    def insert(self, ids: Any, namespace: Namespace = DEFAULT, content: Any = ()) -> None:
        self.tree.insert(ids, range(1, len(ids) + 1), namespace, content=content)
        self.follow()

    def evict(self, n: int) -> None:
        self.tree.evict(n)
        self.follow()

    def reset(self) -> None:
        self.tree.reset()
        self.runs.clear()
        self.holdings.clear(self.holder)

    def follow(self) -> None:
        changes = self.tree.take_changes()
        replay([Event(1, change) for change in changes], self.runs)
        for change in changes:
            assert apply(self.holdings, self.holder, change, self.roots)

    def check(self) -> None:
        """The holder holds what the tree holds, run by run."""
        names = {root: namespace for namespace, root in self.roots.items()}
        held = {
            run.run: (run.parent_run, run.parent_offset, run.codes.tolist(), names[run.root])
            for run in self.holdings.runs(self.holder)
        }
        assert held == plain(self.runs)
        assert self.holdings.num_tokens(self.holder) == self.tree.total_size

    def length(self, ids: Any, namespace: Namespace = DEFAULT) -> int:
        return self.tree.probe(ids, namespace)


def apply(holdings: Holdings, holder: int, change: Any, roots: dict[Namespace, int]) -> bool:
    if isinstance(change, Stored):
        if change.namespace not in roots:
            roots[change.namespace] = holdings.add_root()
        return holdings.store(
            holder,
            change.run,
            change.parent_run,
            change.parent_offset,
            change.codes,
            roots[change.namespace],
        )
    assert isinstance(change, Trimmed)
    return holdings.trim(holder, change.run, change.keep)
