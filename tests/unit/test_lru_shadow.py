"""What LRU would hold: counted beside a cache that is LRU, and the floor that follows from it."""

import numpy as np
import pytest

from radixkv import new_tree
from radixkv.tree.policies.lru_shadow import LruShadow


class Cache:
    """Keys of some size each, kept by LRU; the shadow gets the same requests."""

    def __init__(self, room: int) -> None:
        self.room, self.shadow = room, LruShadow()
        self.used: dict[int, int] = {}  # every key ever, by last use
        self.sizes: dict[int, int] = {}
        self.held: dict[int, int] = {}  # of LRU: tokens, the key used longest ago first
        self.now = 0

    def ask(self, key: int, size: int) -> None:
        self.now += 1
        self.shadow.begin(self.now)
        found = self.held.pop(key, 0)
        if key in self.used:
            assert self.shadow.take(self.used[key], self.sizes[key]) == found
        self.held[key] = self.sizes[key] = size
        self.used[key] = self.now
        self.shadow.add(size)
        self.evict()

    def evict(self) -> None:
        while (over := sum(self.held.values()) - self.room) > 0:
            first = next(iter(self.held))
            self.held[first] -= min(over, self.held[first])
            if not self.held[first]:
                del self.held[first]
        self.shadow.shrink(self.room)


@pytest.mark.parametrize("room", [1, 40, 300, 5000])
def test_it_knows_what_lru_holds(rng, room):
    cache = Cache(room)
    sizes = rng.integers(1, 30, 60)
    for key in rng.zipf(1.2, 800) % 60:
        cache.ask(int(key), int(sizes[key]))


def test_joined_cells_keep_their_tokens(rng):
    shadow = LruShadow()
    for now in range(1, 5000):
        shadow.begin(now)
        shadow.add(10)
        shadow.shrink(30_000)
    assert len(shadow._cells) <= 1024
    held = sum(shadow.take(now, 10) for now in range(1, 5000))
    assert held == pytest.approx(30_000, abs=10 + 30_000 / 256)


def test_the_credit_is_what_was_won_and_the_debt_what_may_be_lost():
    shadow = LruShadow()
    shadow.begin(1)
    shadow.add_first(100)
    shadow.shrink(100)
    assert shadow.may_lose(100)
    assert not shadow.may_lose(101)
    shadow.lose(1, 60)
    assert shadow.may_lose(40)
    assert not shadow.may_lose(41)
    shadow.use_gone(1, 60)  # the debt came due: it is paid, and the credit is less
    assert shadow.debt == 0
    assert shadow.may_lose(40)
    assert not shadow.may_lose(41)
    shadow.use(0, 50)  # a hit where LRU had lost the tokens
    assert shadow.may_lose(90)
    assert not shadow.may_lose(91)


def test_of_debts_that_expire_more_is_allowed():
    shadow = LruShadow()
    shadow.begin(1)
    shadow.add_first(100)
    for now in range(2, 6):
        shadow.lose(now - 1, 100)
        shadow.begin(now)
        shadow.add(100)
        shadow.shrink(100)  # LRU loses them too
    assert shadow.debt == 0
    assert shadow.may_lose(300)


def test_it_stays_by_lru_where_what_was_learnt_misleads(core):
    """A loop teaches it to evict what was used last; then that is what comes back."""
    lru, adaptive = (hits(new_tree(policy=policy, core=core)) for policy in ("lru", "adaptive"))
    asked = 100 * sum(map(len, PHASES))
    assert adaptive >= lru - 100 - asked // 4096


LOOP = [*range(12)] * 20
PHASES = [LOOP, [number for at in range(400) for number in (100 + at, 100 + at - at % 7)]]


def hits(tree) -> int:
    """Tokens found of prompts of 100, by a cache of 1,000."""
    found, slots = 0, np.arange(100, dtype=np.int32)
    for number in [number for phase in PHASES for number in phase]:
        prompt = np.arange(100, dtype=np.int32) + 1000 * number
        found += tree.probe(prompt)
        tree.insert(prompt, slots)
        tree.evict(max(tree.total_size - 1000, 0))
    return found
