"""The policy `adaptive`: evict what is expected to bring the fewest hits for the room it takes.

LRU fails where prompts come round in a loop that is larger than the cache: each is evicted just
before it is needed. Frequency alone keeps what was popular once. This policy learns when tokens are
used again, estimates for each leaf what keeping it would bring, and never falls behind LRU by more
than a little.

*Kinds* are classes of the last gap between two uses, by never used again, once, more often. Ages
are in steps of 64 ms of a clock that is given (`RadixTree.advance_clock`), in requests otherwise.
*Ghosts* are evicted tokens that are still watched, by hashes of their prefixes. *Worth* is the best
rate of hits that keeping a token can reach. The victim is the leaf worth least of the least and the
most recently used one of each kind. *The floor*: `LruShadow` knows what LRU would hold here; where
the victim is part of that and what was won so far does not cover the loss of it, the least recently
used leaf goes instead. What was learnt is lost on `reset()` and is pickled with the tree.

docs/adaptive.md explains each of these, says what it gives and what else was tried.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from sortedcontainers import SortedDict

from radixkv.pages import ceil_div, round_up
from radixkv.tree.nodes import Node, OrderKey, Policy, Root
from radixkv.tree.policies.lru_shadow import LruShadow
from radixkv.tree.policies.reuse_model import KINDS, STEP, ReuseModel
from radixkv.tree.prefix_hash import extend_hash, hash_space, shorten_hash

_GHOST_TOKENS_PER_TOKEN = 4
_MOST_GHOSTS_EVERY = 8
_SIZE_OF_MOST_GHOSTS = 2_048
_MOST_COUNT = 2
_LATEST = 1 << 53
_GAPS = 6  # classes; the first: none yet


def gap_class(age: int) -> int:
    """The class of a gap between two uses: up to a step, 8, 64, 512 or more."""
    steps = ceil_div(age, STEP)
    return min(1 + (max(steps - 1, 0).bit_length() + 2) // 3, _GAPS - 1)


class Ghost(NamedTuple):
    """What was known about the last token of an evicted prefix.

    tokens: how many it stands for.
    """

    used: int
    kind: int
    tokens: int


@dataclass(slots=True)
class Uses:
    """The memo of a node.

    hash: of the prefix that ends with it. used: the time of its last use. count: how often it was
    used again, up to 2. gap: the class of its last gap.
    """

    hash: int
    used: int = 0
    count: int = 0
    gap: int = 0

    @property
    def kind(self) -> int:
        """As far as the policy makes a difference."""
        return self.count * _GAPS + self.gap


class Adaptive(Policy):
    """Evict what is expected to bring the fewest hits for the room it takes; see the module."""

    def __init__(self, page_size: int) -> None:
        self.model, self.shadow = ReuseModel(), LruShadow()
        self._clock = 0  # the latest time that was given
        self._to_evict = 0
        self._ghosts: OrderedDict[int, Ghost] = OrderedDict()
        self.ghost_tokens = 0  # what all of them stand for
        self._page_size = page_size
        self._every = round_up(16 * _MOST_GHOSTS_EVERY, page_size)  # tokens to a ghost

    def order_key(self, leaf: Node) -> OrderKey:
        """The leaves of a kind stand together, by age."""
        uses: Uses = leaf.memo
        return uses.kind, uses.used, leaf.recency

    def victim(self, leaves: "SortedDict[OrderKey, Node]") -> Node:
        begins = [leaves.bisect_left((kind,)) for kind in range(KINDS + 1)]
        ends = [(first, end - 1) for first, end in pairwise(begins) if first < end]
        candidates: list[Node] = [leaves.peekitem(at)[1] for pair in ends for at in pair]
        victim = min(candidates, key=self.rank)
        if self._may_lose(victim):
            return victim
        oldest: Node = min(candidates[::2], key=lambda leaf: (leaf.memo.used, leaf.recency))
        return oldest

    def _may_lose(self, victim: Node) -> bool:
        going = min(self._to_evict, len(victim.slots))
        return not self.shadow.holds(victim.memo.used) or self.shadow.may_lose(going)

    def rank(self, victim: Node) -> tuple[int, int, int]:
        """What is worth least comes first."""
        uses: Uses = victim.memo
        return self.model.worth(uses.kind, uses.used), uses.used, victim.recency

    def add_root(self, root: Root) -> None:
        root.memo = Uses(hash_space(root.namespace))

    def advance_clock(self, milliseconds: int) -> None:
        self._clock = max(self._clock, min(milliseconds, _LATEST))

    def use(self, path: Sequence[Node]) -> None:
        """A request begins."""
        before = self.model.now
        now = max(self._clock, before + 1) if self._clock else before + STEP
        self.model.begin(now)
        self.shadow.begin(now)
        for node in path:
            uses: Uses = node.memo
            tokens = len(node.slots)
            if node.hit_count:
                self.model.reuse(uses.used, uses.kind, tokens, now - uses.used)
                self.shadow.use(uses.used, tokens)
                uses.count, uses.gap = min(uses.count + 1, _MOST_COUNT), gap_class(now - uses.used)
            else:  # nothing but chunks went through it: it was not there before
                self.model.remove(uses.used, uses.kind, tokens)
                self.shadow.take(uses.used, tokens)
            uses.used = now
            self._add(uses, tokens)

    def _add(self, uses: Uses, tokens: int, *, chunked: bool = False) -> None:
        """Tokens of the request wait from now on."""
        self.model.add(uses.used, uses.kind, tokens)
        if chunked:
            self.shadow.add_chunk(tokens)
        elif self.model.uses == 1:
            self.shadow.add_first(tokens)
        else:
            self.shadow.add(tokens)

    def add_leaf(self, leaf: Node, *, chunked: bool) -> None:
        """The request of a chunk comes later."""
        assert leaf.parent is not None
        above: Uses = leaf.parent.memo
        leaf.memo = uses = Uses(above.hash, self.model.now, gap=above.gap)
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
                age = self.model.now + chunked * STEP - ghost.used
                self.model.reuse(*ghost, age)
                self.shadow.use_gone(ghost.used, ghost.tokens)
                uses.gap = gap_class(age)
        uses.count = int(came_back > 0 and 2 * came_back >= asked)
        self._add(uses, len(leaf.slots), chunked=chunked)

    def split(self, head: Node, tail: Node) -> None:
        assert head.parent is not None
        uses: Uses = tail.memo
        above = extend_hash(head.parent.memo.hash, head.codes)
        head.memo = Uses(above, uses.used, uses.count, uses.gap)

    def trim(self, leaf: Node, keep: int) -> None:
        uses: Uses = leaf.memo
        going = len(leaf.slots) - keep
        self.model.remove(uses.used, uses.kind, going)
        self.shadow.lose(uses.used, going)
        self._to_evict -= going
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

    def begin_eviction(self, size: int, count: int) -> None:
        self.model.refresh(size)
        self.shadow.shrink(size - count)
        self._to_evict = count
        # Of a cache too small for work, few: its prompts hardly fit.
        fewer = (
            16
            if size < _SIZE_OF_MOST_GHOSTS // 2
            else 1 << max(size // _SIZE_OF_MOST_GHOSTS, 1).bit_length() - 1
        )
        self._every = round_up(_MOST_GHOSTS_EVERY * fewer, self._page_size)

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
        if uses.used > self.model.now:
            used, now = uses.used, self.model.now
            yield f"history: node {node.id} was used at {used}, now is {now}"
