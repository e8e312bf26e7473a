"""Faults that users of prefix caches have reported, each with the rest of its class.

Those of the tree and the allocator.
"""

import pickle
import random
import sys
from itertools import permutations

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace, new_tree
from radixkv.cache.events import Event
from radixkv.cache.runs import replay
from radixkv.errors import InvalidSlotsError, SlotNotAllocatedError
from radixkv.memory import new_allocator
from radixkv.tree import POLICIES, Stored, Trimmed, format_tree
from tests.support.oracle_tree import OracleTree


@pytest.fixture
def put(tree, fresh):
    """Insert a key with slots of its own."""
    return lambda key, *where, **how: tree.insert(key, fresh(len(key)), *where, **how)


# ---- B02: locking starts at the parent ----


def test_B02_locking_starts_at_the_handles_own_node(tree, put):
    put([1, 2])
    put([1, 2, 3, 4])
    match = tree.match_prefix([1, 2, 3, 4])
    tree.inc_lock_ref(match.handle)
    assert tree.protected_size == 4
    assert tree.evict(4).tolist() == []
    tree.dec_lock_ref(match.handle)
    assert tree.protected_size == 0
    assert len(tree.evict(4)) == 4


@pytest.mark.parametrize("depth", range(1, 6))
def test_B02_every_node_of_the_path_and_no_other_is_locked(tree, put, depth):
    for length in range(1, 6):
        put(list(range(length)))
        put([*range(length), 90 + length])
    handle = tree.match_prefix(range(depth)).handle
    tree.inc_lock_ref(handle)
    locked = {node.start for node in tree.walk() if node.lock_ref == 1}
    assert locked == set(range(depth))
    assert tree.protected_size == depth
    assert len(tree.evict(100)) == 10 - depth
    tree.dec_lock_ref(handle)
    assert {node.lock_ref for node in tree.walk()} == {0}


# ---- B03: a split does not carry the size bookkeeping ----


def test_B03_a_split_carries_the_lock_and_the_sizes(tree, put):
    leaf = put([1, 2, 3, 4, 5]).handle
    tree.inc_lock_ref(leaf)
    assert (tree.evictable_size, tree.protected_size) == (0, 5)
    put([1, 2, 9])
    assert (tree.evictable_size, tree.protected_size) == (1, 5)
    tree.dec_lock_ref(leaf)
    assert (tree.evictable_size, tree.protected_size) == (6, 0)
    handle = tree.match_prefix([1, 2, 3]).handle
    tree.inc_lock_ref(handle)
    assert (tree.evictable_size, tree.protected_size) == (3, 3)
    tree.dec_lock_ref(handle)
    assert (tree.total_size, tree.evictable_size, tree.protected_size) == (6, 6, 0)


@pytest.mark.parametrize("unlock_order", list(permutations(range(3))))
def test_B03_sizes_come_out_even_whatever_is_split_under_locks(tree, put, unlock_order):
    whole = put([1, 2, 3, 4, 5, 6]).handle
    handles = [whole, *(tree.match_prefix(range(1, end)).handle for end in (6, 4))]
    for handle, other in zip(handles, ([1, 2, 3, 4, 9], [1, 9], [1, 2, 3, 9]), strict=True):
        tree.inc_lock_ref(handle)
        put(other)
        assert tree.protected_size == 6
        assert tree.evictable_size >= 0
        assert tree.check_integrity() == []
    for at in unlock_order:
        tree.dec_lock_ref(handles[at])
        assert tree.check_integrity() == []
    assert (tree.evictable_size, tree.protected_size) == (9, 0)


# ---- B06: a double free is silent at page size 1 ----


def test_B06_a_double_free_is_refused_at_page_size_1():
    pool = new_allocator(6)
    assert pool.allocate(3).tolist() == [1, 2, 3]
    pool.free([2])
    with pytest.raises(SlotNotAllocatedError, match="got 2, which is free"):
        pool.free([2, 3])
    assert pool.free_size == 4
    rest = pool.allocate(4).tolist()
    assert sorted(rest) == [2, 4, 5, 6]
    assert pool.allocate(1) is None


@pytest.mark.parametrize("slot", [0, 7, -1, 2**31])
def test_B06_a_slot_outside_the_pool_is_refused(slot):
    pool = new_allocator(6)
    pool.allocate(6)
    with pytest.raises(InvalidSlotsError, match=f"slots must be from 1 to 6; got {slot}"):
        pool.free([3, slot])
    assert pool.free_size == 0


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_B06_no_slot_is_out_twice_however_frees_are_cut_and_shuffled(page_size):
    """Freed in any order of slots, in any cut: what comes out is in one place at a time."""
    draw, held = random.Random(6), []
    pool = new_allocator(8 * page_size, page_size)
    for _ in range(300):
        if draw.random() < 0.5:
            slots = pool.allocate(draw.randint(0, 3) * page_size)
            held += [] if slots is None else slots.tolist()
        else:
            pages = sorted({slot // page_size for slot in held})
            chosen = set(draw.sample(pages, draw.randint(0, len(pages))))
            gone = [slot for slot in held if slot // page_size in chosen]
            draw.shuffle(gone)
            pool.free(gone)
            held = [slot for slot in held if slot // page_size not in chosen]
        assert len(set(held)) == len(held)
        assert sorted(held + pool.free_slots().tolist()) == list(range(page_size, 9 * page_size))


# ---- B11: each eviction looks at every leaf ----


def leaf(at):
    return np.array([at, 1, 2, 3, 4, 5, 6, 7], np.int32)


def slots_of(at):
    return np.arange(8 * at, 8 * at + 8, dtype=np.int32)


def test_B11_eviction_costs_what_it_frees_with_50_000_leaves(core):
    tree = new_tree(core=core)
    for at in range(50_000):
        tree.insert(leaf(at), slots_of(at))
    rounds = []
    for at in range(1_000):
        calls = 0

        def tick(*_):
            nonlocal calls
            calls += 1

        sys.setprofile(tick if at % 100 == 0 else None)
        freed = tree.evict(8)
        sys.setprofile(None)
        rounds.append(calls)
        assert freed.tolist() == slots_of(at).tolist()
        tree.insert(leaf(50_000 + at), slots_of(at))
    assert max(rounds) < 500
    assert (tree.num_nodes, tree.total_size) == (50_000, 400_000)
    assert tree.check_integrity() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_B11_victims_are_those_of_looking_at_every_leaf(core, policy):
    draw = random.Random(11)
    tree, oracle = new_tree(policy=policy, core=core), OracleTree(1, policy)
    for at in range(150):
        key = [draw.randrange(25), *[draw.randrange(3) for _ in range(7)]]
        slots, priority = slots_of(at).tolist(), draw.randrange(3)
        tree.insert(key, slots, priority=priority)
        oracle.insert(DEFAULT, tuple(key), slots, priority, hit=True)
        for _ in range(3):
            seen = [draw.randrange(25), *[draw.randrange(3) for _ in range(3)]]
            assert tree.match_prefix(seen).slots.tolist() == oracle.match(DEFAULT, tuple(seen))
        if tree.total_size > 160:
            assert tree.evict(8).tolist() == oracle.evict(8)


# ---- B12: the recursion limit on a deep tree ----

DEPTH = 6_000


@pytest.fixture
def deep(core):
    """[7] * i + [100 + i] for every i, the deepest first so that building it costs little."""
    tree, sevens = new_tree(core=core), np.full(DEPTH + 1, 7, np.int32)
    for at in range(DEPTH, 0, -1):
        key = sevens[: at + 1].copy()
        key[at] = 100 + at
        slots = np.full(at + 1, 2 * at, np.int32)
        slots[at] = 2 * at + 1
        if at == DEPTH:
            slots[:at] = np.arange(2 * DEPTH + 2, 3 * DEPTH + 2)
        tree.insert(key, slots)
    return tree


def test_B12_everything_works_6_000_nodes_deep(deep):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        match = deep.match_prefix([7] * DEPTH + [100 + DEPTH])
        assert match.length == DEPTH + 1
        assert deep.probe([7] * 5_000 + [100 + 5_000]) == 5_001
        assert (deep.num_nodes, deep.total_size) == (2 * DEPTH - 1, 2 * DEPTH)
        assert max(node.start for node in deep.walk()) == DEPTH - 1
        assert deep.check_integrity() == []
        text = format_tree(deep, max_nodes=10**6)
        assert len(text.splitlines()) == deep.num_nodes + 1
        assert max(map(len, text.splitlines())) < 200
        deep.inc_lock_ref(match.handle)
        assert deep.protected_size == DEPTH + 1
        assert deep.check_integrity() == []
        deep.dec_lock_ref(match.handle)
        back = pickle.loads(pickle.dumps(deep))
        assert back.check_integrity() == []
        assert back.match_prefix([7] * DEPTH).slots.tolist() == match.slots.tolist()[:DEPTH]
        assert back.evict(10**6).tolist() == deep.evict(10**6).tolist()
        assert (back.num_nodes, deep.num_nodes, deep.total_size) == (0, 0, 0)
        del back, match
    finally:
        sys.setrecursionlimit(limit)


def test_B12_a_deep_tree_is_reset_and_dropped(deep):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        handle = deep.match_prefix([7] * DEPTH).handle
        assert len(deep.reset()) == 2 * DEPTH
        assert (deep.num_nodes, deep.check_integrity()) == (0, [])
        del handle
    finally:
        sys.setrecursionlimit(limit)


def test_B12_tiny_chunks_of_a_long_prompt_make_a_deep_path(core):
    tree, key = new_tree(16, core=core), np.arange(32_000, dtype=np.int32)
    for length in range(16, len(key) + 1, 16):
        # As an engine publishes: every chunk from the beginning, here a long way at once.
        if length % 1_600 == 0 or length < 800:
            assert tree.insert(key[:length], key[:length], chunked=True).prefix_length < length
    assert tree.match_prefix(key).length == len(key)
    assert tree.check_integrity() == []
    assert len(tree.evict(len(key))) == len(key)


# ---- B13: LRU ties within one clock tick ----


def test_B13_the_order_of_use_is_a_counter_not_a_clock(tree, put, monkeypatch):
    for clock in (
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
    ):
        monkeypatch.setattr(f"time.{clock}", lambda: 0)
    a, b = [1, 2], [3, 4]
    put(a)
    put(b)
    tree.match_prefix(a)
    assert len(tree.evict(2)) == 2
    assert (tree.probe(a), tree.probe(b)) == (2, 0)


@pytest.mark.parametrize("used", list(permutations(range(4))))
def test_B13_any_order_of_use_is_the_order_of_eviction(tree, used):
    for key in range(4):
        tree.insert([key], [key])
    for key in used:
        tree.match_prefix([key])
    assert [int(tree.evict(1)[0]) for _ in range(4)] == list(used)


def test_B13_a_split_gives_a_parent_no_older_than_its_child(tree, put):
    put([1, 2, 3, 4])
    put([5])
    handle = tree.match_prefix([1, 2]).handle
    tree.inc_lock_ref(handle)
    tree.dec_lock_ref(handle)
    recency = {node.id: node.recency for node in tree.walk()}
    below = [node for node in tree.walk() if node.parent_id]
    assert below
    assert all(recency[node.parent_id] >= node.recency for node in below)
    assert tree.evict(2).tolist() == [3, 4]


@pytest.mark.parametrize("policy", POLICIES)
def test_B13_nodes_that_are_alike_are_ordered_without_fail(core, policy):
    tree = new_tree(policy=policy, core=core)
    for salt in range(50):
        tree.insert([1, 2], [2 * salt, 2 * salt + 1], Namespace(salt=str(salt)))
    assert sorted(tree.evict(100).tolist()) == list(range(100))


# ---- B14: namespaces joined as plain strings ----


def test_B14_namespaces_are_compared_field_by_field(tree, put):
    put([1, 2, 3], Namespace(salt="ab", adapter="c"))
    assert tree.probe([1, 2, 3], Namespace(salt="a", adapter="bc")) == 0
    assert tree.probe([1, 2, 3], Namespace(salt="abc")) == 0
    assert tree.probe([1, 2, 3], Namespace(salt="ab", adapter="c")) == 3


@pytest.mark.parametrize("field", ["salt", "adapter", "extra_key"])
def test_B14_none_is_neither_empty_nor_its_own_name(tree, put, field):
    spaces = [Namespace(**{field: value}) for value in (None, "", "None", "null", "\0", " ")]
    for space in spaces:
        assert put([1, 2, 3], space).prefix_length == 0
    assert tree.total_size == 3 * len(spaces)


@pytest.mark.parametrize(
    "salt",
    [
        "adapter=c",
        "c|adapter",
        "('ab', 'c')",
        "lora:c",
        "Namespace(salt=None)",
        "weight_version=1",
        "a/b",
    ],
)
def test_B14_no_salt_can_equal_another_field(tree, put, salt):
    put([1, 2, 3], Namespace(salt=salt))
    for other in (
        DEFAULT,
        Namespace(adapter=salt),
        Namespace(extra_key=salt),
        Namespace(salt=salt, adapter=""),
        Namespace(salt="", adapter=salt),
        Namespace(salt=salt, weight_version=1),
        Namespace(adapter="c"),
        Namespace(weight_version=1),
    ):
        assert tree.probe([1, 2, 3], other) == 0


# ---- B15: the same placeholder ids for different images ----

IMG = 9


def test_B15_images_with_equal_low_16_bits_do_not_share(tree, put):
    x = (0x1111_BEEF).to_bytes(32, "big")
    y = (0x2222_BEEF).to_bytes(32, "big")
    assert x[-2:] == y[-2:]
    key = [5, IMG, IMG, 6]
    put(key, content=[(1, 2, x)])
    assert tree.probe(key, content=[(1, 2, y)]) == 1
    assert tree.match_prefix(key, content=[(1, 2, y)]).length == 1
    assert tree.match_prefix(key, content=[(1, 2, x)]).length == 4


def test_B15_more_images_than_16_bits_can_name_stay_distinct(core):
    """No id is cut, hashed or repeated."""
    tree = new_tree(core=core)
    number = 2**16 + 5_000
    for at in range(0, number, 7):
        tree.insert([IMG], [at], content=[(0, 1, at.to_bytes(4, "big"))])
    for at in range(0, number, 97):
        slots = tree.match_prefix([IMG], content=[(0, 1, at.to_bytes(4, "big"))]).slots.tolist()
        assert slots == ([at] if at % 7 == 0 else [])


def test_B15_text_around_an_image_is_shared_as_far_as_it_goes(tree, put):
    x, y = b"image x", b"image y"
    put([1, 2, 3, IMG, IMG, 4, 5], content=[(3, 2, x)])
    assert tree.probe([1, 2, 3, IMG, IMG, 4, 5], content=[(3, 2, y)]) == 3
    assert tree.probe([1, 2, IMG, IMG, 3, 4, 5], content=[(2, 2, x)]) == 2
    assert tree.probe([1, 2, 3, IMG, IMG, 4, 6], content=[(3, 2, x)]) == 6
    assert tree.probe([1, 2, 3, IMG, IMG, 4, 5]) == 3


# ---- B16: splitting a node announces a removal ----


def test_B16_a_split_announces_nothing(tree, put):
    tree.track_changes()
    put([1, 2, 3, 4])
    put([1, 2, 9])
    first, second = tree.take_changes()
    assert isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert (first.codes.tolist(), first.parent_run) == ([1, 2, 3, 4], 0)
    assert (second.codes.tolist(), second.parent_run, second.parent_offset) == ([9], first.run, 2)
    runs = replay([Event(1, first), Event(2, second)])
    held = {
        tuple(runs[run.parent_run].codes[: run.parent_offset].tolist() if run.parent_run else ())
        + tuple(run.codes.tolist())
        for run in runs.values()
    }
    assert held == {(1, 2, 3, 4), (1, 2, 9)}


def test_B16_no_shape_of_the_tree_is_ever_announced(tree, put):
    """Every way to split: inserts, locks, in the middle of a trimmed run."""
    put(list(range(20)))
    tree.track_changes()
    for length in range(19, 0, -1):
        put(list(range(length)))
    tree.inc_lock_ref(tree.match_prefix(range(7)).handle)
    assert not tree.take_changes()
    assert tree.num_nodes == 20
    tree.evict(3)
    keeps = [change.keep for change in tree.take_changes() if isinstance(change, Trimmed)]
    assert keeps == [19, 18, 17]
