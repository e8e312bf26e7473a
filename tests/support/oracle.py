"""A slow, obvious model of PrefixCache: a prefix is a tuple, the tree a dict, a pool a set.

The model works out everything by itself but two choices, which it takes from the cache and judges:
which free slots were handed out, and which evictable tokens the policy gave up (the policy's order
has tests of its own).
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from radixkv import DEFAULT, Namespace
from radixkv.tree import Stored, Trimmed
from radixkv.tree.shares import NO_SHARES, Shares
from tests.support.oracle_shares import OracleShares


@dataclass(eq=False)
class Fence:
    done: bool = False

    def query(self) -> bool:
        return self.done


def codes_of(tokens, spans) -> tuple:
    """Text stands for itself; inside a span it also says what it stands for and where it begins."""
    codes = list(tokens)
    for start, length, name in spans:
        for at in range(start, min(start + length, len(codes))):
            codes[at] = (codes[at], name, at == start)
    return tuple(codes)


def cut(spans, length: int) -> list:
    return [(start, min(n, length - start), name) for start, n, name in spans if start < length]


@dataclass
class Numbers:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    resumed_tokens: int = 0
    published_tokens: int = 0


@dataclass(eq=False)
class Twin:
    """What the model knows of one request. row: all its slots, the reserved ones too."""

    namespace: Namespace = DEFAULT
    tokens: list = field(default_factory=list)
    spans: list = field(default_factory=list)
    store: bool = True
    row: list = field(default_factory=list)
    shared: int = 0
    cached_len: int = 0
    generation: int = 0
    state: str = "running"
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def codes(self) -> tuple:
        return codes_of(self.tokens, self.spans)

    def give_up(self) -> None:
        if self.state == "retracted":
            self.state = "aborted"

    def prefix(self, length: int) -> tuple:
        return (self.namespace, *self.codes[:length])


class Oracle:
    def __init__(
        self,
        num_slots: int,
        page_size: int,
        max_requests: int,
        max_context_len: int,
        max_cached_tokens: int | None,
        shares: Shares = NO_SHARES,
    ) -> None:
        self.shares = OracleShares(shares, page_size)
        self.page_size, self.max_requests = page_size, max_requests
        self.longest = min(num_slots, max_context_len)
        self.max_cached_tokens = max_cached_tokens
        self.everything = set(range(page_size, num_slots + page_size))
        self.free = set(self.everything)
        self.tree: dict[tuple, list[int]] = {}  # prefix in whole pages -> slots of its last page
        self.live: list[Twin] = []
        self.deferred: list[tuple[Fence, list[int]]] = []
        self.retired: set[int] = set()
        self.read_until: dict[int, list[Fence]] = {}  # readers of a slot on the device
        self.totals: Counter[str] = Counter()
        self.weight_version = self.generation = 0
        self.runs: dict[int, list[int]] = {}  # what the events speak of
        self.changes: deque = deque()  # of the call that is being judged

    def longest_of(self, space) -> int:
        """The longest request of a namespace that may ever run."""
        reserves = {salt: self.up(share.reserve) for salt, share in self.shares.shares.items()}
        others = sum(reserves.values()) - reserves.get(space.salt, 0)
        return min(self.longest, len(self.everything) - others)

    # ---- sets ----

    def up(self, n: int) -> int:
        return -(-n // self.page_size) * self.page_size

    def down(self, n: int) -> int:
        return n // self.page_size * self.page_size

    def pages(self, prefix: tuple) -> list[tuple]:
        """The prefixes of `prefix` in whole pages, shortest first."""
        whole = self.down(len(prefix) - 1)
        return [prefix[: n + 1] for n in range(self.page_size, whole + 1, self.page_size)]

    def match(self, prefix: tuple) -> list[int]:
        slots: list[int] = []
        for page in self.pages(prefix):
            if page not in self.tree:
                break
            slots += self.tree[page]
        return slots

    @property
    def locked(self) -> set[tuple]:
        return {page for twin in self.live for page in self.pages(twin.prefix(twin.shared))}

    @property
    def held(self) -> Counter[int]:
        """Slots outside the tree, and their owners."""
        return Counter(slot for twin in self.live for slot in twin.row[twin.shared :])

    @property
    def total_size(self) -> int:
        return len(self.tree) * self.page_size

    @property
    def evictable_size(self) -> int:
        return self.total_size - len(self.locked) * self.page_size

    @property
    def by_share(self) -> dict:
        """Evictable and protected tokens of each share."""
        sizes: dict = {}
        locked = self.locked
        for page in self.tree:
            share = self.shares.of(page[0])
            both = list(sizes.get(share, (0, 0)))
            both[page in locked] += self.page_size
            sizes[share] = tuple(both)
        return sizes

    def room_for(self, space) -> int:
        return self.shares.room_for(space, self.by_share)

    @property
    def deferred_size(self) -> int:
        return sum(len(slots) for _, slots in self.deferred)

    # ---- slots ----

    def collect(self) -> None:
        while self.deferred and self.deferred[0][0].done:
            self.free.update(self.deferred.pop(0)[1])

    def take(self, n: int, given, space) -> bool:
        """Whether `n` slots are to be had; judges those that were `given` (None: a refusal)."""
        self.collect()
        missing = n - len(self.free) - self.deferred_size
        if missing <= self.room_for(space):
            self.evict(missing, None, space, n)
        has_room = n <= len(self.free)
        assert has_room == (given is not None)
        if has_room:
            self.hand_out(n, [int(slot) for slot in given])
        return has_room

    def hand_out(self, n: int, slots: list[int]) -> None:
        assert len(slots) == n
        assert set(slots) <= self.free
        for at in range(0, n, self.page_size):
            first = slots[at]
            assert first % self.page_size == 0
            assert slots[at : at + self.page_size] == list(range(first, first + self.page_size))
        for slot in slots:
            readers = self.read_until.pop(slot, [])
            assert all(fence.done for fence in readers), f"slot {slot} may still be read"
        self.free -= set(slots)

    def evict(self, n: int, fence: Fence | None = None, space=None, wanted: int = 0) -> int:
        before, may_give = self.by_share, self.shares.may_give(space, self.by_share)
        n = min(self.up(max(n, 0)), sum(may_give.values()))
        own = min(n, self.shares.beyond_cap(space, before, wanted))
        victims: list[int] = []
        while len(victims) < n:
            change = self.changes.popleft()
            assert isinstance(change, Trimmed)
            victims += self.runs[change.run][change.keep :]
            del self.runs[change.run][change.keep :]
        assert len(victims) == n
        locked = self.locked
        for page, slots in list(self.tree.items()):
            if slots[0] in victims:
                assert page not in locked
                assert set(slots) <= set(victims)
                del self.tree[page]
        for share, sizes in before.items():
            lost = sum(sizes) - sum(self.by_share.get(share, (0, 0)))
            assert (own if share == self.shares.of(space) else 0) <= lost <= may_give.get(share, 0)
        self.totals["evicted_tokens"] += n
        self.put(victims, fence)
        return n

    def put(self, slots, fence: Fence | None) -> None:
        if fence is None and self.deferred:
            fence = self.deferred[-1][0]
        if fence is None:
            self.free.update(slots)
        else:
            self.deferred.append((fence, list(slots)))

    def give_back(self, slots, fence: Fence | None) -> None:
        """Slots that left a row."""
        done = [slot for slot in slots if slot not in self.held]
        self.retired -= set(done)
        self.put(done, fence)

    def reads(self, slots, fence: Fence | None) -> None:
        if fence is not None:
            for slot in slots:
                self.read_until.setdefault(slot, []).append(fence)

    def keep_bound(self, fence: Fence | None) -> None:
        for space in self.shares.spaces:
            if beyond := self.shares.beyond_cap(space, self.by_share):
                self.evict(beyond, fence, space, 0)
        if self.max_cached_tokens is not None and self.total_size > self.max_cached_tokens:
            self.evict(self.total_size - self.max_cached_tokens, fence)

    # ---- the life of a request ----

    def admit(self, twin: Twin, max_cached: int | None, got, *, resumed: bool) -> bool:
        """`twin` has all but its row. `got`: the request that the cache gave."""
        length = len(twin.tokens)
        limit = min(length - 1, length if max_cached is None else max_cached)
        if len(self.live) == self.max_requests:
            assert got is None
            return False
        twin.row = self.match(twin.prefix(limit))
        twin.shared = twin.cached_len = found = len(twin.row)
        self.live.append(twin)
        need = self.up(length) - found
        if not self.take(
            need, None if got is None else got.table[found : found + need], twin.namespace
        ):
            self.live.remove(twin)
            return False
        twin.row += got.table[found : found + need].tolist()
        twin.generation, twin.state = self.generation, "running"
        self.count_admission(twin, length, found, resumed=resumed)
        return True

    def count_admission(self, twin: Twin, length: int, found: int, *, resumed: bool) -> None:
        if resumed:
            twin.numbers.resumed_tokens += found
            self.totals["resumed_tokens"] += found
            return
        twin.numbers = Numbers(length, found)
        self.totals.update(prompt_tokens=length, cached_tokens=found)
        self.totals.update(lookup_tokens=length, hit_tokens=found)

    def reserve(self, twin: Twin, n: int, row, got) -> bool:
        missing = max(0, self.up(len(twin.tokens) + n) - len(twin.row))
        new = row[len(twin.row) : len(twin.row) + missing]
        if missing and not self.take(missing, None if got is None else new, twin.namespace):
            return False
        assert got is not None
        twin.row += new.tolist() if missing else []
        assert got.tolist() == twin.row[len(twin.tokens) : len(twin.tokens) + n]
        return True

    def publish(self, twin: Twin, up_to: int, fence: Fence | None, *, chunked: bool) -> None:
        length = self.down(up_to)
        may = twin.store and twin.generation == self.generation
        if not may or not length or (chunked and length <= twin.shared):
            return
        path = twin.prefix(length)
        there = self.match(path)
        duplicates = twin.row[twin.shared : len(there)]
        twin.row[: len(there)] = there
        new = twin.row[len(there) : length]
        for at, page in enumerate(self.pages(path)):
            self.tree[page] = twin.row[at * self.page_size : (at + 1) * self.page_size]
        if new:
            self.expect_stored(path, len(there), new)
        twin.shared = length
        self.reads(duplicates, fence)
        self.give_back(duplicates, fence)
        twin.numbers.published_tokens += len(new)
        self.totals["published_tokens"] += len(new)

    def expect_stored(self, path: tuple, above: int, slots: list[int]) -> None:
        stored = self.changes.popleft()
        assert isinstance(stored, Stored)
        assert stored.namespace == path[0]
        assert stored.run not in self.runs
        assert same_codes(stored.codes.tolist(), path[above + 1 :])
        if above:
            parent = self.tree[path[: above + 1]][-1]
            assert self.runs[stored.parent_run][stored.parent_offset - 1] == parent
        else:
            assert (stored.parent_run, stored.parent_offset) == (0, 0)
        self.runs[stored.run] = list(slots)

    def end(self, twin: Twin, state: str, fence: Fence | None) -> None:
        self.live.remove(twin)
        twin.state = state
        self.reads(twin.row, fence)
        self.give_back(twin.row[twin.shared :], fence)
        self.keep_bound(fence)

    # ---- branching and going back ----

    def fork(self, twin: Twin, n: int, fence: Fence | None, got) -> list[Twin] | None:
        whole, page = self.down(len(twin.tokens)), self.page_size
        if n > self.max_requests - len(self.live):
            assert got is None
            return None
        rows = [] if got is None else [fork.table for fork in got.requests]
        new = [slot for row in rows for slot in row[whole : self.up(len(twin.tokens))]]
        size = n * page if whole < len(twin.tokens) else 0
        if not self.take(size, None if got is None else new, twin.namespace):
            return None
        self.publish(twin, len(twin.tokens), fence, chunked=True)
        forks = []
        for at in range(n):
            own = [int(slot) for slot in new[at * page : (at + 1) * page]]
            fork = replace(twin, tokens=list(twin.tokens), row=twin.row[:whole] + own)
            fork.cached_len, fork.numbers = len(twin.tokens), Numbers()
            forks.append(fork)
        self.live += forks
        self.keep_bound(fence)
        return forks

    def rollback(self, twin: Twin, length: int, fence: Fence | None, row, got) -> bool:
        whole, keep = self.down(length), self.up(length)
        is_cut = whole < length
        is_foreign = is_cut and (whole < twin.shared or self.held[twin.row[whole]] > 1)
        size = self.page_size if is_foreign else 0
        if not self.take(size, None if got is None else row[whole : whole + size], twin.namespace):
            return False
        old, own_from = twin.row, max(twin.shared, whole if is_foreign else keep)
        twin.shared = min(twin.shared, whole)
        twin.row = old[:whole] + row[whole : whole + size].tolist() if is_foreign else old[:keep]
        twin.tokens, twin.spans = twin.tokens[:length], cut(twin.spans, length)
        twin.cached_len = min(twin.cached_len, length)
        self.reads(set(old) - set(twin.row), fence)
        self.give_back(old[own_from:], fence)
        self.keep_bound(fence)
        return True

    # ---- the whole cache ----

    def forget(self) -> None:
        slots = [slot for page in self.tree.values() for slot in page]
        self.tree.clear()
        self.runs.clear()
        self.generation += 1
        for twin in self.live:
            twin.shared = 0
        self.retired |= set(slots) & self.held.keys()
        self.put([slot for slot in slots if slot not in self.held], None)


def same_codes(codes, expected) -> bool:
    """Content has numbers of the tree's own choice, all negative."""
    return len(codes) == len(expected) and all(
        code < 0 if isinstance(want, tuple) else code == want
        for code, want in zip(codes, expected, strict=True)
    )
