"""The policy `adaptive`: evict what is expected to bring the fewest hits for the room it takes.

LRU fails where prompts come round in a loop that is larger than the cache: each is evicted just
before it is needed. Frequency alone keeps what was popular once. This policy learns when tokens are
used again, and estimates for each leaf what keeping it would bring.

Time is counted in ticks, one for each whole insert, which is a request. *Kinds* are by number of
uses: never used again, once, ... seven times or more. *Ghosts* are evicted tokens that are still
watched, by hashes of their prefixes. *Worth* is the best rate of hits a tick that keeping a token
can reach. The victim is the leaf worth least of the least and the most recently used one of each
kind. What was learnt is lost on `reset()` and is pickled with the tree. There is nothing to tune.

docs/adaptive.md says why, what it gives and what else was tried.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sortedcontainers import SortedDict

from radixkv.pages import round_up
from radixkv.tree.nodes import Node, OrderKey, Policy, Root
from radixkv.tree.policies.reuse_model import KINDS, ReuseModel
from radixkv.tree.prefix_hash import extend_hash, hash_space, shorten_hash

_GHOST_TOKENS_PER_TOKEN = 4
_MOST_GHOSTS_EVERY = 128
_SIZE_OF_MOST_GHOSTS = 32_768


class Ghost(NamedTuple):
    """What was known about the last token of an evicted prefix.

    tokens: how many it stands for.
    """

    used: int
    kind: int
    tokens: int


@dataclass(slots=True)
class Uses:
    """The memo of a node. used: the tick of its last use. hash: of the prefix that ends with it."""

    hash: int
    used: int = 0
    count: int = 0

    @property
    def kind(self) -> int:
        """How often it was used again, as far as the policy makes a difference."""
        return min(self.count, KINDS - 1)


class Adaptive(Policy):
    """Evict what is expected to bring the fewest hits for the room it takes; see the module."""

    def __init__(self, page_size: int) -> None:
        self.model = ReuseModel()
        self._ghosts: OrderedDict[int, Ghost] = OrderedDict()
        self.ghost_tokens = 0  # what all of them stand for
        self._most_every = round_up(_MOST_GHOSTS_EVERY, page_size)
        self._every = self._most_every  # tokens to a ghost

    def order_key(self, leaf: Node) -> OrderKey:
        """The leaves of a kind stand together, by age."""
        uses: Uses = leaf.memo
        return uses.kind, uses.used, leaf.recency

    def victim(self, leaves: "SortedDict[OrderKey, Node]") -> Node:
        begins = [leaves.bisect_left((kind,)) for kind in range(KINDS + 1)]
        ends = (at for first, end in pairwise(begins) if first < end for at in (first, end - 1))
        candidates: Iterator[Node] = (leaves.peekitem(at)[1] for at in ends)
        return min(candidates, key=self.rank)

    def rank(self, victim: Node) -> tuple[int, int, int]:
        """What is worth least comes first."""
        uses: Uses = victim.memo
        return self.model.worth(uses.kind, uses.used, victim.start), uses.used, victim.recency

    def add_root(self, root: Root) -> None:
        root.memo = Uses(hash_space(root.namespace))

    def use(self, path: Sequence[Node]) -> None:
        """A tick begins."""
        self.model.next_tick()
        for node in path:
            uses: Uses = node.memo
            if node.hit_count:
                age = self.model.tick - uses.used
                self.model.reuse(uses.used, uses.kind, len(node.slots), age)
                uses.count += 1
            else:  # nothing but chunks went through it: it was not there before
                self.model.remove(uses.used, uses.kind, len(node.slots))
            uses.used = self.model.tick
            self.model.add(uses.used, uses.kind, len(node.slots))

    def add_leaf(self, leaf: Node, *, chunked: bool) -> None:
        """The tick of a chunk comes later."""
        assert leaf.parent is not None
        leaf.memo = uses = Uses(leaf.parent.memo.hash, self.model.tick)
        asked = came_back = 0
        for end in self._cuts(leaf.start, leaf.end):
            at = max(leaf.start, (end - 1) // self._every * self._every)
            uses.hash = extend_hash(uses.hash, leaf.codes[at - leaf.start : end - leaf.start])
            if end % self._every:
                continue
            asked += 1
            ghost = self._take_ghost(uses.hash)
            if ghost is not None:
                came_back += 1
                self.model.reuse(*ghost, self.model.tick + chunked - ghost.used)
        uses.count = int(came_back > 0 and 2 * came_back >= asked)
        self.model.add(uses.used, uses.kind, len(leaf.slots))

    def split(self, head: Node, tail: Node) -> None:
        assert head.parent is not None
        uses: Uses = tail.memo
        above = extend_hash(head.parent.memo.hash, head.codes)
        head.memo = Uses(above, uses.used, uses.count)

    def trim(self, leaf: Node, keep: int) -> None:
        uses: Uses = leaf.memo
        self.model.remove(uses.used, uses.kind, len(leaf.slots) - keep)
        start, to = leaf.start, leaf.start + keep
        for end in reversed(self._cuts(to, leaf.end)):
            if end % self._every == 0:
                self._add_ghost(uses.hash, Ghost(uses.used, uses.kind, self._every))
            at = max(to, (end - 1) // self._every * self._every)
            uses.hash = shorten_hash(uses.hash, leaf.codes[at - start : end - start])

    def _cuts(self, start: int, end: int) -> list[int]:
        """Where ghosts end between `start` and `end`, and `end`."""
        first = (start // self._every + 1) * self._every
        return [*range(first, end, self._every), end]

    def _take_ghost(self, hash: int) -> Ghost | None:
        ghost = self._ghosts.pop(hash, None)
        if ghost is not None:
            self.ghost_tokens -= ghost.tokens
        return ghost

    def _add_ghost(self, hash: int, ghost: Ghost) -> None:
        same = self._take_ghost(hash)
        if same is not None:
            self.model.give_up(*same)
        self._ghosts[hash] = ghost
        self.ghost_tokens += ghost.tokens
        self.model.add(*ghost)

    def begin_eviction(self, size: int) -> None:
        self.model.refresh(size)
        fewer = 1 << max(size // _SIZE_OF_MOST_GHOSTS, 1).bit_length() - 1
        self._every = self._most_every * fewer

    def end_eviction(self, size: int) -> None:
        while self.ghost_tokens > _GHOST_TOKENS_PER_TOKEN * size:
            oldest = next(iter(self._ghosts))
            ghost = self._take_ghost(oldest)
            assert ghost is not None
            self.model.give_up(*ghost)

    def check(self, size: int) -> Iterator[str]:
        waiting, there = self.model.waiting_tokens, size + self.ghost_tokens
        if waiting != there:
            yield f"history: {waiting} tokens wait by count, {there} are cached or ghosts"

    def check_node(self, node: Node) -> Iterator[str]:
        assert node.parent is not None
        uses: Uses = node.memo
        if uses.hash != extend_hash(node.parent.memo.hash, node.codes):
            yield f"history: node {node.id} has the hash of another prefix"
        if uses.used > self.model.tick:
            used, now = uses.used, self.model.tick
            yield f"history: node {node.id} was used in tick {used}, now is {now}"
