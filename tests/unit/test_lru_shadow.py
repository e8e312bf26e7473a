"""What LRU would hold: counted beside a cache that is LRU, and the floor that follows from it."""

import pytest

from radixkv.lab.logs.workloads import generate
from radixkv.lab.replay.curve import shrink
from radixkv.lab.replay.paths import find_paths
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
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


@pytest.mark.parametrize(("seed", "capacity"), [(0, 2_700), (2, 1_250)])
def test_it_stays_by_lru_where_what_was_learnt_misleads(core, seed, capacity):
    """Of the agents, made small; without the floor these are 1.5 and 3 points below LRU."""
    log = shrink(find_paths(generate("agents", requests=800, seed=seed)), 32)
    lru, adaptive = (
        replay(log, Setting(capacity=capacity, policy=policy, core=core, capacity_of="cache"))
        for policy in ("lru", "adaptive")
    )
    assert adaptive.hit_rate >= lru.hit_rate - 0.001 - 1 / len(log)  # one mean prompt


def test_a_prompt_in_chunks_brings_the_credit_of_the_whole_prompt():
    """Chunks come first; the request then takes them from where they are and adds them again."""
    chunked, whole = LruShadow(), LruShadow()
    for shadow in (chunked, whole):
        shadow.begin(1)
        shadow.add_first(100)
    for _ in range(50):
        chunked.add_chunk(1_000)
    chunked.begin(2)
    chunked.take(1, 50_000)
    chunked.add(50_000)
    whole.begin(2)
    whole.add(50_000)
    for shadow in (chunked, whole):
        shadow.shrink(50_100)
        assert shadow.may_lose(112)  # 100 + 50,000 / 4,096
        assert not shadow.may_lose(113)
