"""What a radix tree must do, slow and obvious: a dict from (namespace, whole path) to a node.

Keys are tuples of symbols (`symbols`), compared from the root each time. Time is the number of
touches so far. The adaptive policy gets every use and every loss, and sees every leaf; what it
makes of that is the business of `ReuseModel` and `LruShadow`, which have tests of their own. Keys
are too short for ghosts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from typing import Any

from radixkv.tree.policies.adaptive import gap_class
from radixkv.tree.policies.lru_shadow import LruShadow
from radixkv.tree.policies.reuse_model import KINDS, STEP, ReuseModel
from tests.support.oracle_shares import OracleShares

Path = tuple[Any, tuple[Any, ...]]  # namespace, symbols from the root on


@dataclass
class OracleNode:
    start: int
    slots: list[int]
    serials: list[int]  # one a token ever stored: the same slot may come back with other tokens
    used: int
    made: int
    hits: int
    priority: int
    tick: int = 0  # of the last whole insert through it
    uses: int = 0
    gap: int = 0

    @property
    def kind(self) -> int:
        return 6 * min(self.uses, 2) + self.gap


@dataclass(frozen=True)
class OracleHandle:
    path: Path
    serial: int  # of its last token; 0: no token


FIRST_OUT: dict[str, Callable[[OracleNode], Any]] = {
    "lru": lambda node: node.used,
    "mru": lambda node: -node.used,
    "fifo": lambda node: node.made,
    "filo": lambda node: -node.made,
    "lfu": lambda node: (node.hits, node.used),
    "slru": lambda node: (node.hits >= 2, node.used),
    "priority": lambda node: (node.priority, node.used),
    "hits_per_token": lambda node: (Fraction(node.hits + 1, len(node.slots)), node.used),
    "adaptive": lambda node: (node.tick, node.used),  # within a kind, from both ends
}


def symbols(token_ids: Sequence[int], content: Sequence[tuple[int, int, bytes]] = ()) -> tuple:
    """Text stands for itself; in a span it matters whose it is and where a span begins."""
    out: list[Any] = [int(token) for token in token_ids]
    for start, length, id_ in content:
        for at in range(start, start + length):
            out[at] = (out[at], id_, at == start)
    return tuple(out)


class OracleTree:
    def __init__(self, page_size: int, policy: str, shares: OracleShares | None = None) -> None:
        self.page_size, self.policy, self.first_out = page_size, policy, FIRST_OUT[policy]
        self.shares = shares or OracleShares({}, page_size)
        self.model, self.shadow = ReuseModel(), LruShadow()
        self.nodes: dict[Path, OracleNode] = {}
        self.locks: list[OracleHandle] = []
        self.clock, self.numbers = 0, count(1)

    def match(self, space: Any, key: tuple, *, touch: bool = True) -> list[int]:
        """The slots of the longest cached prefix."""
        slots = []
        for path, node in self.on_the_way(space, key):
            same = self.common(path[1], key)
            slots += node.slots[: same - node.start]
            if touch and same == len(path[1]):
                node.used = self.clock + 1
        self.clock += 1
        return slots

    def insert(self, space: Any, key: tuple, slots: list[int], priority: int, hit: bool) -> int:
        key = key[: len(key) - len(key) % self.page_size]
        there = len(self.match(space, key, touch=False))
        self.cut((space, key[:there]))
        if hit:
            self.count_uses(space, key[:there])
        if there < len(key):
            serials = [next(self.numbers) for _ in key[there:]]
            node = OracleNode(there, slots[there : len(key)], serials, 0, self.clock, 0, priority)
            node.tick = self.model.now
            above = self.on_the_way(space, key[:there])
            node.gap = above[-1][1].gap if above else 0
            self.wait(node, chunked=not hit)
            self.nodes[space, key] = node
        for _, node in self.on_the_way(space, key):
            node.used, node.hits = self.clock, node.hits + hit
            node.priority = max(node.priority, priority)
        return there

    def count_uses(self, space: Any, key: tuple) -> None:
        now = self.model.now + STEP
        self.model.begin(now)
        self.shadow.begin(now)
        for _, node in self.on_the_way(space, key):
            size, age = len(node.slots), now - node.tick
            if node.hits:
                self.model.reuse(node.tick, node.kind, size, age)
                self.shadow.use(node.tick, size)
                node.uses += 1
                node.gap = gap_class(age)
            else:
                self.model.remove(node.tick, node.kind, size)
                self.shadow.take(node.tick, size)
            node.tick = now
            self.wait(node)

    def wait(self, node: OracleNode, *, chunked: bool = False) -> None:
        size = len(node.slots)
        self.model.add(node.tick, node.kind, size)
        if chunked:
            self.shadow.add_chunk(size)
        elif self.model.uses == 1:
            self.shadow.add_first(size)
        else:
            self.shadow.add(size)

    def evict(self, num_tokens: int, space: Any = None, wanted: int = 0) -> list[int]:
        up = -(-num_tokens // self.page_size) * self.page_size
        left = min(up, self.shares.room_for(space, self.by_share()))
        own = min(left, self.shares.beyond_cap(space, self.by_share(), wanted))
        return self.evict_so_many(left, space, own)

    def evict_beyond_caps(self) -> list[int]:
        freed: list[int] = []
        for space in self.shares.spaces:
            beyond = self.shares.beyond_cap(space, self.by_share())
            freed += self.evict_so_many(beyond, space, beyond) if beyond else []
        return freed

    def evict_so_many(self, left: int, space: Any, own: int) -> list[int]:
        self.begin_eviction(left)
        freed: list[int] = []
        while left:
            victim, most = self.victim(space, own, left)
            node = self.nodes.pop(victim)
            going = min(left, most, len(node.slots))
            self.lose(node, going)
            keep = len(node.slots) - going
            freed += node.slots[keep:]
            left, own = left - going, max(own - going, 0)
            if keep:
                shorter = (victim[0], victim[1][: node.start + keep])
                node.slots, node.serials = node.slots[:keep], node.serials[:keep]
                self.nodes[shorter] = node
        return freed

    def begin_eviction(self, count: int) -> None:
        self.model.refresh(sum(self.sizes()))
        self.shadow.shrink(sum(self.sizes()) - count)

    def lose(self, node: OracleNode, count: int) -> None:
        self.model.remove(node.tick, node.kind, count)
        self.shadow.lose(node.tick, count)

    def victim(self, space: Any, own: int, left: int) -> tuple[Path, int]:
        """What goes next of `left` tokens, and how much of it at most."""
        leaves = [path for path in self.nodes if self.is_evictable_leaf(path)]
        most = self.shares.may_give(space, self.by_share())
        if own:
            most = {self.shares.of(space): own}
        firsts = [
            self.first_of([path for path in leaves if self.shares.of(path[0]) == share], left)
            for share in most
        ]
        victim = min(firsts, key=self.rank)
        return victim, most[self.shares.of(victim[0])]

    def first_of(self, leaves: list[Path], left: int) -> Path:
        if self.policy != "adaptive":
            return self.first(leaves)
        path = self.least_worth(leaves)
        node = self.nodes[path]
        going = min(left, len(node.slots))
        may_lose = not self.shadow.holds(node.tick) or self.shadow.may_lose(going)
        return path if may_lose else self.first(leaves)

    def rank(self, path: Path) -> Any:
        node = self.nodes[path]
        if self.policy != "adaptive":
            return self.first_out(node)
        return (self.model.worth(node.kind, node.tick), *self.first_out(node))

    def by_share(self) -> dict[Any, tuple[int, int]]:
        """Evictable and protected tokens of each share."""
        sizes: dict[Any, tuple[int, int]] = {}
        for path, node in self.nodes.items():
            share, size = self.shares.of(path[0]), len(node.slots)
            evictable, protected = sizes.get(share, (0, 0))
            is_locked = self.lock_ref(path) > 0
            sizes[share] = evictable + size * (not is_locked), protected + size * is_locked
        return sizes

    def evict_below(self, space: Any, key: tuple) -> list[int]:
        """The slots of all that continues `key` and is under no lock, in any order."""
        if len(self.match(space, key, touch=False)) < len(key):
            return []
        going = [path for path in self.nodes if is_above((space, key), path) and path[1] != key]
        going = [path for path in going if not self.lock_ref(path)]
        if not going:
            return []
        keeps = {path: max(len(key) - self.nodes[path].start, 0) for path in going}
        self.begin_eviction(sum(len(self.nodes[path].slots) - keeps[path] for path in going))
        freed: list[int] = []
        for path, keep in keeps.items():
            node = self.nodes.pop(path)
            self.lose(node, len(node.slots) - keep)
            freed += node.slots[keep:]
            if keep:
                node.slots, node.serials = node.slots[:keep], node.serials[:keep]
                self.nodes[space, key] = node
        return freed

    def first(self, leaves: list[Path]) -> Path:
        return min(leaves, key=lambda path: self.first_out(self.nodes[path]))

    def least_worth(self, leaves: list[Path]) -> Path:
        ends = []
        for kind in range(KINDS):
            of_kind = [path for path in leaves if self.nodes[path].kind == kind]
            of_kind.sort(key=lambda path: self.first_out(self.nodes[path]))
            ends += of_kind[:1] + of_kind[-1:]
        return min(ends, key=self.rank)

    # ---- handles ----

    def handle(self, space: Any, key: tuple) -> OracleHandle:
        serials = [n.serials for _, n in self.on_the_way(space, key)]
        flat = [serial for node in serials for serial in node][: len(key)]
        return OracleHandle((space, key), flat[-1] if flat else 0)

    def is_good(self, handle: OracleHandle) -> bool:
        resident = {serial for node in self.nodes.values() for serial in node.serials}
        return handle.serial in resident or handle.serial == 0

    def lock(self, handle: OracleHandle) -> None:
        if self.cut(handle.path):
            self.match(*handle.path)
        self.locks.append(handle)

    def unlock(self, handle: OracleHandle) -> None:
        self.locks.remove(handle)

    def lock_ref(self, path: Path) -> int:
        return sum(is_above(path, handle.path) for handle in self.locks)

    # ---- shape ----

    def on_the_way(self, space: Any, key: tuple) -> list[tuple[Path, OracleNode]]:
        """The nodes that share a page or more of their own with `key`, from the root down."""
        way = [
            (path, node)
            for path, node in self.nodes.items()
            if path[0] == space and self.common(path[1], key) > node.start
        ]
        return sorted(way, key=lambda item: item[1].start)

    def common(self, a: tuple, b: tuple) -> int:
        same = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        same = min(len(a), len(b)) if same is None else same
        return same - same % self.page_size

    def cut(self, at: Path) -> bool:
        """Make a node end at `at`; whether one had to be cut for that."""
        space, key = at
        for path, node in self.on_the_way(space, key):
            if node.start < len(key) < len(path[1]):
                n = len(key) - node.start
                head = replace(node, slots=node.slots[:n], serials=node.serials[:n])
                node.start, node.slots, node.serials = len(key), node.slots[n:], node.serials[n:]
                self.nodes[at] = head
                return True
        return False

    def is_evictable_leaf(self, path: Path) -> bool:
        return not self.has_child(path) and not self.lock_ref(path)

    def has_child(self, path: Path) -> bool:
        return any(other != path and is_above(path, other) for other in self.nodes)

    def resident(self) -> set[Path]:
        """Every (namespace, prefix) that is cached."""
        return {
            (space, key[: at + 1])
            for (space, key), node in self.nodes.items()
            for at in range(node.start, len(key))
        }

    def sizes(self) -> tuple[int, int]:
        """Evictable and protected tokens."""
        protected = [len(n.slots) for path, n in self.nodes.items() if self.lock_ref(path)]
        return sum(len(n.slots) for n in self.nodes.values()) - sum(protected), sum(protected)


def is_above(path: Path, other: Path) -> bool:
    return path[0] == other[0] and other[1][: len(path[1])] == path[1]
