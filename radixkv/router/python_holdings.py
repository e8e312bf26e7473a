"""`Holdings` in Python: the readable core, which also runs where there is no compiler."""

import sys
from collections import Counter
from itertools import count

import numpy as np

from radixkv.arrays import EMPTY, INT32_MAX, Int32Array, common_length
from radixkv.router.holdings import RunInfo
from radixkv.router.pick_input import IntArray
from radixkv.router.python_nodes import (
    HeldNode,
    HeldRun,
    ancestor,
    as_codes,
    below,
    climb,
    descend,
    faults,
    held_codes,
    held_length,
    note,
    num_branches,
)
from radixkv.tree import TokenIds
from radixkv.tree.reader import PYTHON_READER


class PythonHoldings:
    """See `holdings.Holdings`."""

    core = "python"

    def __init__(self) -> None:
        self._roots: dict[int, HeldNode] = {}
        self._runs: dict[int, dict[int, HeldRun]] = {}
        self._sizes: dict[int, int] = {}
        self._page_sizes: dict[int, int] = {}
        # Of a holder, at nodes that end inside a page: runs beyond the first that go on there.
        self._branches: Counter[tuple[int, HeldNode]] = Counter()
        self._total_size = self._num_nodes = 0
        self._next_content = -1

    # ---- holders and roots ----

    def add_holder(self, page_size: int = 1) -> int:
        holder = next(number for number in count() if number not in self._runs)
        self._runs[holder], self._sizes[holder] = {0: HeldRun(holder, 0, None, 0)}, 0
        self._page_sizes[holder] = page_size
        return holder

    def remove_holder(self, holder: int) -> None:
        self.clear(holder)
        del self._runs[holder], self._sizes[holder], self._page_sizes[holder]

    def add_root(self) -> int:
        root = next(number for number in count(1) if number not in self._roots)
        self._roots[root] = HeldNode(None, 0, EMPTY)
        return root

    def remove_root(self, root: int) -> None:
        if not self.is_empty_root(root):
            raise IndexError(f"root {root} is not empty")
        del self._roots[root]

    def is_empty_root(self, root: int) -> bool:
        return not self._roots[root].children

    # ---- storing ----

    def store(
        self,
        holder: int,
        run: int,
        parent_run: int,
        parent_offset: int,
        codes: Int32Array | bytes,
        root: int,
    ) -> bool:
        runs, own, page = self._runs[holder], as_codes(codes), self._page_sizes[holder]
        above = runs.get(parent_run)
        if above is None or run in runs or not len(own) or len(own) % page:
            return False
        if parent_run and (not 0 < parent_offset <= above.length or parent_offset % page):
            return False
        new = HeldRun(holder, run, above, parent_offset if parent_run else 0)
        new.length = len(own)
        node = self._roots[root] if not parent_run else climb(above, parent_offset)
        new.start = above.start + parent_offset if parent_run else 0
        own = self._hide_content(new, own)
        shared = held_length(node, new, own[:page])
        if shared == page:
            return False
        self._hang(node, new, own)
        if shared:
            self._branches[holder, climb(new, shared)] += 1
        self._merge_above(new)
        runs[run] = above.children[run] = new
        self._sizes[holder] += new.length
        return True

    def _hide_content(self, run: HeldRun, codes: Int32Array) -> Int32Array:
        """The codes, the first of them that names content under a number that no other run has.

        Another run that uses its number means other content; nothing below it is shared either.
        """
        assert run.parent is not None
        if run.parent.private_from < run.offset:
            run.private_from = 0
        elif codes.min() < 0:
            run.private_from = at = int(np.argmax(codes < 0))
            codes = codes.copy()
            run.content, codes[at] = int(codes[at]), self._next_content
            self._next_content = self._next_content - 1 if self._next_content > -INT32_MAX else -1
        return codes

    def _hang(self, node: HeldNode, run: HeldRun, codes: Int32Array) -> None:
        """Walk down from the run's start, hold what is there, and add the rest."""
        at, depth = 0, run.start
        while at < len(codes):
            if depth == node.end:
                child = node.children.get(int(codes[at]))
                node = self._grow(node, run.holder, codes[at:]) if child is None else child
            same = common_length(codes[at:], node.codes[depth - node.start :])
            at, depth = at + same, depth + same
            if depth < node.end and at < len(codes):
                node = self._split(node, depth - node.start)
            if depth == node.end:
                node.set_full(run.holder)
        if node.partial.get(run.holder) is run.parent and run.parent is not None:
            node.ends.add(node.partial.pop(run.holder))
        node.add_last(run)

    def _grow(self, node: HeldNode, holder: int, codes: Int32Array) -> HeldNode:
        """The node that has `codes` behind `node`, which has no child that begins so."""
        if node.parent is None or node.children or node.full != 1 << holder:
            return self._add_leaf(node, codes)
        # What it alone holds grows: a node of its own would be joined with that one again.
        node.codes = np.concatenate([node.codes, codes])
        self._total_size += len(codes)
        return node

    def _add_leaf(self, parent: HeldNode, codes: Int32Array) -> HeldNode:
        leaf = HeldNode(parent, parent.end, codes.copy())
        parent.children[int(codes[0])] = leaf
        self._num_nodes += 1
        self._total_size += len(codes)
        return leaf

    def _split(self, node: HeldNode, at: int) -> HeldNode:
        """A head of its own for the first `at` tokens; `node` keeps the rest and its identity."""
        assert node.parent is not None
        head = HeldNode(node.parent, node.start, node.codes[:at].copy())
        node.parent.children[int(head.codes[0])] = head
        head.full = node.full
        for holder, run in node.partial.items():
            head.full |= (run.end >= head.end) << holder
        node.codes, node.start, node.parent = node.codes[at:].copy(), head.end, head
        head.children[int(node.codes[0])] = node
        head.take_ends(node)
        self._num_nodes += 1
        return head

    # ---- trimming ----

    def trim(self, holder: int, run: int, keep: int) -> bool:
        runs = self._runs[holder]
        own = runs.get(run) if run else None
        if own is None or not 0 <= keep <= own.length or keep % self._page_sizes[holder]:
            return False
        if any(child.offset > keep for child in own.children.values()):
            return False
        if keep < own.length:
            self._cut(own, keep)
        return True

    def _cut(self, run: HeldRun, keep: int) -> None:
        node, above, goal = run.node, run.parent, run.start + keep
        assert node is not None
        assert above is not None
        node.remove_end(run)
        self._sizes[run.holder] -= run.length - keep
        run.length = keep
        goes_on = False  # with a run that shares the beginning of a page
        while node.end > goal and not (goes_on := self._leave_branch(run.holder, node)):
            if node.start < goal or node.parent is None:
                break
            node = self._give_up(node, run.holder)
        if not keep:
            del self._runs[run.holder][run.number], above.children[run.number]
        if goes_on:
            if keep:
                ancestor(node, goal).add_end(run)
            self._merge(node)
        elif goal < node.end:
            # What is left ends inside: with this run, or with the one that it continued.
            last = run if keep else above
            node.remove_end(last)
            node.add_last(last)
            self._settle(node)
        else:
            if keep:
                node.add_last(run)
            self._merge(node)

    def _leave_branch(self, holder: int, node: HeldNode) -> bool:
        """Whether the holder has other runs that go on below `node`; one fewer from now on."""
        branches = self._branches.pop((holder, node), 0)
        if branches > 1:
            self._branches[holder, node] = branches - 1
        return branches > 0

    def _give_up(self, node: HeldNode, holder: int) -> HeldNode:
        """`holder` holds nothing of `node` from now on; returns the node above it."""
        parent = node.parent
        assert parent is not None
        node.full &= ~(1 << holder)
        if node.full or node.partial:
            self._settle(node)
        else:
            del parent.children[int(node.codes[0])]
            self._num_nodes -= 1
            self._total_size -= len(node.codes)
        return parent

    def _settle(self, node: HeldNode) -> None:
        """A holder gave up a part of `node`: drop what has no holder, join what became alike."""
        if node.full:
            self._merge(node)
            return
        end = max(run.end for run in node.partial.values())
        self._total_size -= node.end - end
        node.codes = node.codes[: end - node.start].copy()
        for run in [run for run in node.partial.values() if run.end == end]:
            node.set_full(run.holder)
        if node.parent is not None:
            self._merge(node.parent)

    def _merge_above(self, run: HeldRun) -> None:
        """After `run` was hung: join the nodes that it passed with those above, where it can be."""
        node = run.node
        while node is not None and node.parent is not None and node.end >= run.start:
            above = node.parent
            self._merge(above)
            if node.parent is above:
                node = above

    def _merge(self, node: HeldNode) -> None:
        """Join a node with its only child where the same holders hold both whole."""
        if node.parent is None or len(node.children) != 1:
            return
        (child,) = node.children.values()
        if child.full != node.full:
            return
        child.codes = np.concatenate([node.codes, child.codes])
        child.start, child.parent = node.start, node.parent
        node.parent.children[int(node.codes[0])] = child
        child.take_ends(node)
        self._num_nodes -= 1

    def clear(self, holder: int) -> None:
        for run in reversed(list(descend(self._runs[holder][0]))):
            self._cut(run, 0)

    # ---- looking ----

    def lengths(
        self, token_ids: TokenIds, root: int, holders: IntArray | None = None
    ) -> Int32Array:
        key = PYTHON_READER.token_ids(token_ids)
        out = np.zeros(max(self._runs, default=-1) + 1, np.int32)
        node, at = self._roots[root], 0
        while at == node.end < len(key) and int(key[at]) in node.children:
            node = node.children[int(key[at])]
            at += common_length(key[at:], node.codes)
        seen = 0
        while node.parent is not None:
            seen = note(out, node, at, seen)
            node = node.parent
        return out if holders is None else out[holders]

    def runs(self, holder: int) -> list[RunInfo]:
        return [self._held(run) for run in descend(self._runs[holder][0])]

    def _held(self, run: HeldRun) -> RunInfo:
        assert run.parent is not None
        codes, above = held_codes(run)
        root = next(number for number, top in self._roots.items() if top is above)
        return RunInfo(run.number, run.parent.number, run.offset, codes, root)

    def num_tokens(self, holder: int) -> int:
        return self._sizes[holder]

    @property
    def num_nodes(self) -> int:
        return self._num_nodes

    @property
    def total_size(self) -> int:
        return self._total_size

    @property
    def num_bytes(self) -> int:
        nodes = [node for root in self._roots.values() for node in below(root)]
        runs = [run for own in self._runs.values() for run in own.values()]
        return sum(map(sys.getsizeof, [*nodes, *runs])) + sum(node.num_bytes for node in nodes)

    # ---- checking ----

    def check_integrity(self) -> list[str]:
        wrong: list[str] = []
        nodes = [node for root in self._roots.values() for node in below(root)]
        for node in nodes:
            wrong += faults(node)
        if len(nodes) != self._num_nodes:
            wrong.append(f"{len(nodes)} nodes are there, {self._num_nodes} counted")
        if sum(len(node.codes) for node in nodes) != self._total_size:
            wrong.append(f"{self._total_size} tokens are counted, the nodes have others")
        for holder, runs in self._runs.items():
            if sum(run.length for run in runs.values()) != self._sizes[holder]:
                wrong.append(f"holder {holder} has {self._sizes[holder]} tokens, its runs others")
        if self._branches != num_branches(nodes, self._page_sizes):
            wrong.append("runs that share the beginning of a page are counted, there are others")
        ends = sum(len(node.ends) + len(node.partial) for node in nodes)
        if ends != sum(len(runs) - 1 for runs in self._runs.values()):
            wrong.append(f"{ends} ends of runs are in nodes; there are others")
        return wrong
