"""The adaptive policy: evict what promises the fewest hits for the room it takes.

LRU falls off a cliff where prompts come around in turn and together outgrow the cache: each is
evicted just before it is needed. Frequency alone keeps what was popular once. This policy learns
when things are used again, and asks for each leaf what it would bring to keep it.

**What is learnt.** Time is counted in turns: one for each whole insert, which is a request. Every
cached token waits, since its last use, for the next. For each *kind* (used never again, once, ...
seven times or more) and group of ages, `ReuseModel` knows how many tokens came to that age and how
many of them were used then: the chance of a use at each age. Kinds of which little is known share
what is known of all, and at first a guess by which older is worse, as under LRU.

**Ghosts.** What is evicted is watched on: hashes of its prefixes, one at every 128th token (every
256th from 65,536 cached tokens on, and so forth), with its kind and last use. A prompt that brings
such a prefix back counts as a use at that age, a hit that more room would have given; without it
nobody could learn that what is evicted was worth keeping. A leaf of which a half was ghosts is of
the kind used once. Ghosts stand for at most four times as many tokens as are cached, and go first
in, first out: two or three bytes a cached token, and never more than a quarter of a megabyte.

**Worth.** From the chances follows, for a token of some kind and age, the best rate of hits a turn
that keeping it can reach: expected uses until some later age at which one gives up, over the turns
that it stays, at the best such age. (This is the index of Gittins; "hit density" in caches.) In a
loop of sixteen sessions, what was used fifteen turns ago is worth much, what was used just now
little, and what was used seventeen turns ago nothing: it is over. Deep tokens cost more to compute
again, and are worth that much more.

**The victim.** The leaves of a kind differ in age alone. The one used last longest ago and the one
used last are looked at, of each kind, and whichever is worth least goes, from its tail. What lies
between is seldom worth less than both, and so a victim costs O(log leaves).

A use is an insert that is not `chunked`: matching refreshes recency, which decides between equals
only. Priorities are ignored. What was learnt fades by halves, goes with `reset()`, and travels with
a pickled tree. Nothing is to be tuned.

bench/README.md has what it reaches, and what else was tried.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from radixkv.tree.namespace import Namespace
from radixkv.tree.node import Node
from radixkv.tree.prefix_hash import extend_hash, shorten_hash
from radixkv.tree.reuse_model import ReuseModel

_GHOST_TOKENS_PER_TOKEN = 4
_MOST_GHOSTS_EVERY = 128
_SIZE_OF_MOST_GHOSTS = 32_768


class Ghost(NamedTuple):
    """What was known of the last token of a prefix that was evicted.

    tokens: for how many it stands.
    """

    used: int
    kind: int
    tokens: int


class UseHistory:
    """When every node was used: `Node.used` (a turn), `Node.uses`, `Node.hash`."""

    def __init__(self, page_size: int) -> None:
        self.model = ReuseModel()
        self._ghosts: OrderedDict[int, Ghost] = OrderedDict()
        self.ghost_tokens = 0  # for which all of them stand
        self._most_every = -(-_MOST_GHOSTS_EVERY // page_size) * page_size
        self._every = self._most_every  # tokens for which one more ghost stands

    def order_key(self, node: Node) -> tuple[int, int, int]:
        """What is worth least comes first; see the module."""
        return self.model.worth(node.kind, node.used, node.start), node.used, node.recency

    def split(self, head: Node, tail: Node) -> None:
        """`head` was cut off `tail`."""
        assert head.parent is not None
        head.used, head.uses = tail.used, tail.uses
        head.hash = extend_hash(head.parent.hash, head.codes)

    def use(self, path: Sequence[Node]) -> None:
        """The nodes of a key that is asked for as a whole: a turn begins."""
        self.model.next_turn()
        for node in path:
            if node.hit_count:
                age = self.model.turn - node.used
                self.model.reuse(node.used, node.kind, len(node.slots), age)
                node.uses += 1
            else:  # nothing but chunks went through it: it was not there before
                self.model.remove(node.used, node.kind, len(node.slots))
            node.used = self.model.turn
            self.model.add(node.used, node.kind, len(node.slots))

    def add(self, leaf: Node, *, chunked: bool) -> None:
        """A new leaf; of a chunk the turn comes later."""
        assert leaf.parent is not None
        leaf.hash, leaf.used = leaf.parent.hash, self.model.turn
        asked = came_back = 0
        for end in self._cuts(leaf.start, leaf.end):
            at = max(leaf.start, (end - 1) // self._every * self._every)
            leaf.hash = extend_hash(leaf.hash, leaf.codes[at - leaf.start : end - leaf.start])
            if end % self._every:
                continue
            asked += 1
            ghost = self._take_ghost(leaf.hash)
            if ghost is not None:
                came_back += 1
                self.model.reuse(*ghost, self.model.turn + chunked - ghost.used)
        leaf.uses = int(came_back > 0 and 2 * came_back >= asked)
        self.model.add(leaf.used, leaf.kind, len(leaf.slots))

    def trim(self, node: Node, keep: int) -> None:
        """The node is about to lose its tokens from `keep` on."""
        self.model.remove(node.used, node.kind, len(node.slots) - keep)
        to = node.start + keep
        for end in reversed(self._cuts(to, node.end)):
            if end % self._every == 0:
                self._add_ghost(node.hash, Ghost(node.used, node.kind, self._every))
            at = max(to, (end - 1) // self._every * self._every)
            node.hash = shorten_hash(node.hash, node.codes[at - node.start : end - node.start])

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
        """Of a tree of `size` tokens."""
        self.model.refresh(size)
        fewer = 1 << max(size // _SIZE_OF_MOST_GHOSTS, 1).bit_length() - 1
        self._every = self._most_every * fewer

    def end_eviction(self, size: int) -> None:
        """`size` tokens are left."""
        while self.ghost_tokens > _GHOST_TOKENS_PER_TOKEN * size:
            oldest = next(iter(self._ghosts))
            ghost = self._take_ghost(oldest)
            assert ghost is not None
            self.model.give_up(*ghost)


def hash_space(namespace: Namespace) -> int:
    """Where the hashes of a namespace's prefixes begin: ghosts of two namespaces are told apart."""
    return int.from_bytes(blake2b(repr(namespace).encode(), digest_size=4).digest(), "little")
