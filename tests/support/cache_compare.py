"""A PrefixCache and its model: every answer is judged, and everything compared after each call.

K/V is one number a slot, which names the whole prefix that it was computed after: a request that
reads another number reads memory of others.
"""

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from radixkv import PrefixCache, Request
from radixkv.errors import RadixKVError
from tests.support.caches import Memory
from tests.support.oracle import Oracle, Twin, same_codes

POISON = -1


@dataclass(eq=False)
class Pair:
    """A request and what the model knows of it."""

    request: Request
    twin: Twin


class ComparedCache:
    def __init__(self, cache: PrefixCache, oracle: Oracle, memory: Memory) -> None:
        self.cache, self.oracle, self.memory = cache, oracle, memory
        self.pairs: list[Pair] = []  # live ones and a few that ended
        self.rows: dict[Hashable, list[int]] = {}  # by name, as they were last
        self.revision = 0
        self.counts: Counter[str] = Counter()

    def refused(self, error: type[RadixKVError], call, *args, **how) -> None:
        self.counts["refused"] += 1
        with pytest.raises(error):
            call(*args, **how)
        self.judge(lambda: None)

    def judge(self, expected):
        """What the model makes of the call just made, whose events are all accounted for."""
        events = self.cache.events.since(self.revision)
        assert len({event.revision for event in events}) <= 1
        self.revision = self.cache.events.revision
        self.oracle.changes = deque(event.change for event in events)
        answer = expected()
        assert not self.oracle.changes
        return answer

    def compare(self, *, integrity: bool = True) -> None:
        """Everything the model knows is so in the cache."""
        self.oracle.collect()
        self.compare_sizes()
        self.compare_tree()
        for pair in self.pairs:
            compare_pair(pair)
        assert self.cache.live_requests == [pair.request for pair in self.live_pairs()]
        self.compare_versions()
        self.compare_memory()
        if integrity:
            assert self.cache.check_integrity() == []

    def live_pairs(self) -> list[Pair]:
        live = {id(twin): at for at, twin in enumerate(self.oracle.live)}
        pairs = [pair for pair in self.pairs if id(pair.twin) in live]
        return sorted(pairs, key=lambda pair: live[id(pair.twin)])

    def compare_versions(self) -> None:
        """A row of the same version as before has only grown, reserved slots included."""
        rows = {
            each.row_version: each.table[: each.capacity].tolist()
            for each in self.cache.live_requests
        }
        for name in rows.keys() & self.rows.keys():
            before = self.rows[name]
            assert rows[name][: len(before)] == before
        self.rows |= rows

    def compare_sizes(self) -> None:
        oracle, stats = self.oracle, self.cache.stats()
        protected = len(oracle.locked) * oracle.page_size
        assert (stats.free, stats.waiting, stats.allocated) == (
            len(oracle.free),
            oracle.deferred_size + len(oracle.retired),
            len(oracle.held.keys() - oracle.retired),
        )
        assert (stats.evictable, stats.protected) == (oracle.total_size - protected, protected)
        assert stats.live_requests == len(oracle.live)
        assert stats.revision == self.revision
        assert {name: getattr(stats, name) for name in oracle.totals} == oracle.totals
        assert self.cache.free_size == len(oracle.free)
        assert set(self.cache.allocator.free_slots().tolist()) == oracle.free
        self.compare_partition()

    def compare_partition(self) -> None:
        oracle = self.oracle
        parts = [
            list(oracle.free),
            [slot for page in oracle.tree.values() for slot in page],
            list(oracle.held),
            [slot for _, slots in oracle.deferred for slot in slots],
        ]
        slots = [slot for part in parts for slot in part]
        assert len(slots) == len(set(slots))
        assert set(slots) == oracle.everything

    def compare_tree(self) -> None:
        """The same prefixes in the same slots, whatever the nodes."""
        size = self.oracle.page_size
        page_at = {tuple(slots): page for page, slots in self.oracle.tree.items()}
        last_of: dict[int, tuple] = {}
        seen = 0
        for node in self.cache.tree.walk():
            above = last_of.get(node.parent_id, (node.namespace,))
            assert node.start == len(above) - 1
            for at in range(0, len(node.slots), size):
                page = page_at[tuple(node.slots[at : at + size].tolist())]
                assert page[:-size] == above
                assert same_codes(node.codes[at : at + size].tolist(), page[-size:])
                above, seen = page, seen + 1
            last_of[node.id] = above
        assert seen == len(page_at) == len(self.oracle.tree)

    def compare_memory(self) -> None:
        """Every live row and every cached prefix reads what was computed for it."""
        values, oracle = self.memory.values, self.oracle
        for twin in oracle.live:
            for at in range(len(twin.tokens)):
                assert values[twin.row[at]] == value_of(twin.prefix(at + 1))
        for page, slots in oracle.tree.items():
            for at, slot in enumerate(slots):
                assert values[slot] == value_of(page[: len(page) - len(slots) + at + 1])
        values[list(oracle.free)] = POISON


def compare_pair(pair: Pair) -> None:
    request, twin = pair.request, pair.twin
    assert request.state == twin.state
    assert request.token_ids.tolist() == twin.tokens
    assert [getattr(request, name) for name in vars(twin.numbers)] == list(
        vars(twin.numbers).values()
    )
    assert twin.numbers.cached_tokens <= twin.numbers.prompt_tokens
    if twin.state != "running":
        assert not len(request.slots)
        return
    assert request.table[: len(twin.row)].tolist() == twin.row
    assert request.slots.tolist() == twin.row[: len(twin.tokens)]
    assert (request.length, request.capacity) == (len(twin.tokens), len(twin.row))
    assert (request.shared, request.cached_len) == (twin.shared, twin.cached_len)
    assert request.namespace == twin.namespace


def value_of(prefix: tuple) -> int:
    return hash(prefix) & 0x7FFF_FFFF_FFFF_FFFF
