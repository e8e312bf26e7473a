"""Parts of the Python core: nodes that holders share, and the runs of each holder."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from radixkv.arrays import INT32_MAX, Int32Array, common_length


class HeldNode:
    """Tokens that some holders hold, `start` tokens below the root.

    full: bits of the holders that hold all of it, and so all above it. partial: of those that hold
    a beginning, the run that ends where that ends. ends: all other runs that end inside or at the
    end.
    A child is never empty, and a holder holds its last token.
    """

    __slots__ = ("children", "codes", "ends", "full", "parent", "partial", "start")

    def __init__(self, parent: "HeldNode | None", start: int, codes: Int32Array) -> None:
        self.parent, self.start, self.codes = parent, start, codes
        self.full = 0
        self.partial: dict[int, HeldRun] = {}
        self.ends: set[HeldRun] = set()
        self.children: dict[int, HeldNode] = {}

    @property
    def end(self) -> int:
        return self.start + len(self.codes)

    @property
    def num_bytes(self) -> int:
        """Of its parts."""
        parts = (self.codes, self.full, self.partial, self.ends, self.children)
        return sum(map(sys.getsizeof, parts))

    def add_last(self, run: "HeldRun") -> None:
        """`run` is the last of its holder here: what that holds ends where the run ends."""
        if run.end == self.end:
            self.full |= 1 << run.holder
            self.add_end(run)
        else:
            run.node = self
            self.full &= ~(1 << run.holder)
            self.partial[run.holder] = run

    def add_end(self, run: "HeldRun") -> None:
        """`run` ends here, and its holder holds all of the node."""
        run.node = self
        self.ends.add(run)

    def held_end(self, holder: int) -> int:
        """Where what `holder` has of it ends; `start`: it has nothing of it."""
        if self.full >> holder & 1:
            return self.end
        return self.partial[holder].end if holder in self.partial else self.start

    def remove_end(self, run: "HeldRun") -> None:
        """`run` no longer ends here; the caller says which holders hold what."""
        if self.partial.get(run.holder) is run:
            del self.partial[run.holder]
        else:
            self.ends.discard(run)

    def set_full(self, holder: int) -> None:
        """`holder` holds all of it now."""
        self.full |= 1 << holder
        if holder in self.partial:
            self.ends.add(self.partial.pop(holder))

    def take_ends(self, other: "HeldNode") -> None:
        """The ends in `other` up to the end of this one become this one's."""
        for run in [run for run in other.ends if run.end <= self.end]:
            other.ends.remove(run)
            self.ends.add(run)
            run.node = self
        for run in [run for run in other.partial.values() if run.end <= self.end]:
            del other.partial[run.holder]
            self.add_last(run)


class HeldRun:
    """A run of one holder; its end is known by the node that holds its last token.

    Number 0 stands for a holder's roots: what starts there has it as its parent.
    """

    __slots__ = ("children", "content", "holder", "length", "node", "number", "offset", "parent",
                 "private_from", "start")  # fmt: skip

    def __init__(self, holder: int, number: int, parent: "HeldRun | None", offset: int) -> None:
        self.holder, self.number, self.parent, self.offset = holder, number, parent, offset
        self.start = self.length = 0
        self.node: HeldNode | None = None
        self.children: dict[int, HeldRun] = {}
        self.private_from = INT32_MAX  # what follows is its holder's alone: it names content
        self.content = 0  # the code there, which the tree has under another number

    @property
    def end(self) -> int:
        return self.start + self.length


def as_codes(codes: Int32Array | bytes) -> Int32Array:
    """(n,) int32, of little-endian bytes too."""
    return np.frombuffer(codes, "<i4") if isinstance(codes, bytes) else np.asarray(codes, np.int32)


def climb(run: HeldRun, offset: int) -> HeldNode:
    """The node that holds the run's token number `offset`, from 1."""
    assert run.node is not None
    return ancestor(run.node, run.start + offset)


def ancestor(node: HeldNode, depth: int) -> HeldNode:
    """The node, at or above `node`, that holds the last of the path's first `depth` tokens."""
    while node.start >= depth:
        assert node.parent is not None
        node = node.parent
    return node


def held_length(node: HeldNode, run: HeldRun, codes: Int32Array) -> int:
    """How many of `codes`, the first of the run, its holder has there already."""
    at = 0
    while at < len(codes):
        depth = run.start + at
        if depth == node.end:
            if int(codes[at]) not in node.children:
                break
            node = node.children[int(codes[at])]
        held = node.codes[depth - node.start : max(node.held_end(run.holder), depth) - node.start]
        at += common_length(codes[at:], held)
        if run.start + at < node.end:
            break
    return at


def note(out: Int32Array, node: HeldNode, matched: int, seen: int) -> int:
    """Write how far each holder of any of `node` reaches that was not seen below it."""
    for holder in _bits(node.full & ~seen):
        out[holder] = min(node.end, matched)
    for holder, run in node.partial.items():
        out[holder] = min(run.end, matched)
        seen |= 1 << holder
    return seen | node.full


def _bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def descend(top: HeldRun) -> Iterator[HeldRun]:
    """All runs below `top`, parents first."""
    waiting = list(top.children.values())
    while waiting:
        run = waiting.pop()
        yield run
        waiting += run.children.values()


def below(root: HeldNode) -> Iterator[HeldNode]:
    """All nodes below `root`, parents first."""
    waiting = list(root.children.values())
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children.values()


def faults(node: HeldNode) -> Iterator[str]:
    """A line for each invariant that the node breaks."""
    assert node.parent is not None
    where = f"the node at {node.start} to {node.end}"
    if not len(node.codes) or node.start != node.parent.end:
        yield f"{where} hangs below {node.parent.end}"
    if not node.full:
        yield f"no holder holds the last token of {where}"
    if len(node.children) == 1 and next(iter(node.children.values())).full == node.full:
        yield f"{where} and its only child are held alike, and apart"
    held = node.full | sum(1 << holder for holder in node.partial)
    if node.parent.parent is not None and held & ~node.parent.full:
        yield f"a holder holds {where} and not what is above it"
    for holder, run in node.partial.items():
        if node.full >> holder & 1 or not node.start < run.end < node.end or run.holder != holder:
            yield f"run {run.number} of {holder} does not end inside {where}"
    for run in (*node.ends, *node.partial.values()):
        if run.node is not node or not node.start < run.end <= node.end:
            yield f"run {run.number} of {run.holder} does not end in {where}"


def held_codes(run: HeldRun) -> tuple[Int32Array, HeldNode]:
    """A run's codes as its holder reported them, and the root above them."""
    node, parts, end = run.node, [], run.end
    assert node is not None
    while end > run.start:
        parts.append(node.codes[max(run.start - node.start, 0) : end - node.start])
        end, last = node.start, node
        node = node.parent or last
    while node.parent is not None:
        node = node.parent
    codes = np.concatenate(parts[::-1])
    if run.content and run.private_from < len(codes):
        codes[run.private_from] = run.content
    return codes, node


def num_branches(
    nodes: Iterable[HeldNode], page_sizes: Mapping[int, int]
) -> Counter[tuple[int, HeldNode]]:
    """How many runs beyond the first go on below each node, of each holder, inside a page."""
    found: Counter[tuple[int, HeldNode]] = Counter()
    for node in nodes:
        above = node.parent
        assert above is not None
        for holder in {*_bits(node.full), *node.partial}:
            found[holder, above] += node.start % page_sizes[holder] != 0
    found.subtract(Counter(list(found)))
    return +found
