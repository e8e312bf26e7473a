"""A check in slices: what it says of a tree and a cache that change between the slices."""

import threading

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace, PrefixCache, RadixTree, new_tree
from radixkv.cache import integrity
from radixkv.cache.loans import Insert
from radixkv.errors import StaleHandleError
from radixkv.memory.python_allocator import PythonAllocator
from radixkv.tree import Changes, Stored
from tests.support.caches import admit, store
from tests.support.trees import CORES

NODES = 40


@pytest.fixture(params=CORES)
def tree(request) -> RadixTree:
    """40 nodes of four tokens, in two namespaces."""
    tree = new_tree(core=request.param, policy="adaptive")
    for at in range(NODES):
        fill(tree, at)
    return tree


def space(at: int) -> Namespace:
    return Namespace(salt="a" if at % 2 else None)


def fill(tree: RadixTree, at: int) -> None:
    slots = np.arange(1 + 4 * at, 5 + 4 * at, dtype=np.int32)
    tree.insert([100 * at + 1, 2, 3, 4], slots, space(at), content=[(1, 2, b"image")])


def held(tree: RadixTree) -> list[int]:
    return sorted(tree.all_slots().tolist())


def split_and_lock(tree: RadixTree, at: int) -> None:
    match = tree.match_prefix([100 * at + 1, 2], space(at), content=[(1, 1, b"image")])
    tree.inc_lock_ref(match.handle)


def replace(tree: RadixTree, at: int) -> None:
    tree.evict(4)
    fill(tree, NODES + at)


CHANGES = {
    "nodes come": lambda tree, at: fill(tree, NODES + at),
    "tokens go": lambda tree, at: tree.evict(3),
    "nodes go and others come": lambda tree, at: replace(tree, at),
    "nodes are split and locked": lambda tree, at: split_and_lock(tree, at),
    "nodes are split at the end": lambda tree, at: split_and_lock(tree, NODES - 1 - at),
    "prompts are matched": lambda tree, at: tree.match_prefix([100 * at + 1, 2, 3, 4], space(at)),
    "prompts are stored again": lambda tree, at: fill(tree, NODES - 1 - at),
}


@pytest.mark.parametrize("num_nodes", [1, 7])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tree_that_changes_between_slices_is_not_reported(tree, change, num_nodes):
    end = 4 * (3 * NODES) + 1
    check, at = tree.begin_check(end), 0
    while not check.is_done:
        assert check.take(num_nodes) == []
        if at < NODES:
            change(tree, at)
            at += 1
    assert tree.check_integrity() == []
    assert np.flatnonzero(check.marks(0, end)).tolist() == held(tree)


def test_what_changes_after_the_last_slice_is_followed(tree):
    end = 4 * (3 * NODES) + 1
    check = tree.begin_check(end)
    while not check.is_done:
        assert check.take(NODES) == []
    fill(tree, NODES)
    tree.evict(7)
    split_and_lock(tree, NODES - 2)
    assert np.flatnonzero(check.marks(0, end)).tolist() == held(tree)
    assert check.marks(5, 9).tolist() == [slot in held(tree) for slot in range(5, 9)]


def test_what_breaks_before_the_last_slice_is_found(tree):
    check = tree.begin_check()
    for _ in range(NODES // 2):
        assert check.take(2) == []
    tree.insert([9], [1], space(1))  # a slot that another node holds
    lines = []
    while not check.is_done:
        lines += check.take(1)
    assert any("I1 partition: the tree holds slot" in line for line in lines), lines


def test_a_slot_of_no_pool_is_found(tree):
    check = tree.begin_check(4 * NODES)  # the last slot is the one behind it
    lines = []
    while not check.is_done:
        lines += check.take(NODES)
    assert any("not in the pool" in line for line in lines), lines


def test_the_last_node_is_looked_at():
    tree = new_tree(core="python")
    for at in range(NODES):
        fill(tree, at)
    check = tree.begin_check()
    assert check.take(NODES - 1) == []
    for _, node in tree.nodes.walk():
        node.recency = 2 * NODES  # newer than its place says
    lines = []
    while not check.is_done:
        lines += check.take(1)
    assert len(lines) >= 1
    assert all(line.startswith("order: node") for line in lines)


def test_a_reset_ends_a_check(tree):
    check = tree.begin_check()
    check.take(3)
    tree.reset()
    with pytest.raises(StaleHandleError, match="begin again"):
        check.take(3)
    with pytest.raises(StaleHandleError, match="begin again"):
        check.marks(0, 3)


def test_checks_go_on_beside_each_other(tree):
    first, second = tree.begin_check(), tree.begin_check()
    first.take(5)
    second.take(20)
    tree.evict(30)
    second.close()
    fill(tree, NODES)
    while not first.is_done:
        assert first.take(5) == []


def test_a_closed_check_says_so(tree):
    check = tree.begin_check()
    check.close()
    with pytest.raises(StaleHandleError):
        check.take(1)


# ---- a cache ----


@pytest.fixture(params=CORES)
def cache(request, monkeypatch) -> PrefixCache:
    """Something of everything, checked in slices of a node or four slots."""
    for name, size in (("_NODES", 1), ("_SLOTS", 4), ("_TOKENS", 1), ("_RUNS", 1)):
        monkeypatch.setattr(integrity, name, size)
    cache = PrefixCache(64, core=request.param)
    for at in range(6):
        store(cache, [at, 1, 2])
    cache.publish(admit(cache, [0, 1, 2, 9, 9]), 4)
    cache.fork(admit(cache, [30, 31, 32], store=False), 1)
    cache.loans.pin([1, 1, 2])
    cache.loans.allocate(cache.loans.new_borrower(), 3)
    return cache


def work(cache: PrefixCache, at: int) -> None:
    """A bit of everything that a cache is for."""
    request = cache.admit([at % 7, 1, 2, 50 + at, 60])
    if request is not None:
        cache.extend(request, [70])
        cache.publish(request, 4)
        (cache.finish if at % 3 else cache.abort)(request)
    cache.evict(2)
    borrower = cache.loans.new_borrower()
    lent = cache.loans.allocate(borrower, 2)
    assert lent is not None
    pin = cache.loans.pin([at % 7, 1, 2])
    insert = Insert(np.array([80 + at, 5], np.int32), lent[0], keep=True)
    (stored,) = cache.loans.store(borrower, [insert])
    cache.loans.unpin(pin)
    if at % 4 and stored.pin is not None:
        cache.loans.unpin(stored.pin)
    cache.loans.free_aside(cache.loans.set_aside(borrower, []))


def test_a_cache_that_is_used_between_slices_is_not_reported(cache):
    slices = 0
    for at, lines in enumerate(cache.check_in_steps()):
        assert lines == []
        if at < 30:
            work(cache, at)
        slices += 1
    assert slices > 30
    assert cache.check_integrity() == []


def test_a_cache_that_is_reset_between_slices_is_checked_from_the_beginning(cache):
    slices = cache.check_in_steps()
    for at in range(12):
        assert next(slices) == []
        if at in (3, 10):
            cache.reset(force=True)
            store(cache, [5, 6])
    assert [line for lines in slices for line in lines] == []


def test_a_cache_that_is_always_reset_is_checked_as_a_whole(cache):
    for at, lines in enumerate(cache.check_in_steps()):
        assert lines == []
        if at < 20:
            cache.reset(force=True)


def test_what_breaks_before_its_slice_is_found(cache):
    slices = cache.check_in_steps()
    for _ in range(3):
        assert next(slices) == []
    cache.allocator.allocate(1)
    lines = [line for lines in slices for line in lines]
    assert any("lost: neither free nor held" in line for line in lines), lines


def test_each_run_is_compared_with_the_log(cache):
    """The last one, too, which has a slice of its own."""
    run = cache.events.revision + 1000
    cache.events.append(Changes((Stored(run, 0, 0, np.array([9], np.int32), DEFAULT),)))
    lines = [line for lines in cache.check_in_steps() for line in lines]
    assert lines == [f"I5 replay: runs [] are missing, [{run}] are too many"]


def test_others_have_their_turns_between_the_slices(cache):
    """Each finds the lock free: a check that kept it would have this wait for ever."""
    matches = 0
    for _ in cache.check_in_steps():
        other = threading.Thread(target=cache.match_prefix, args=([1, 1, 2],))
        other.start()
        other.join(60)
        assert not other.is_alive()
        matches += 1
    assert matches > 20


def test_a_check_that_is_dropped_follows_the_tree_no_longer():
    cache = PrefixCache(16, core="python")
    store(cache, [1, 2])
    slices = cache.check_in_steps()
    next(slices)
    assert cache.tree.nodes.watchers
    del slices
    assert not cache.tree.nodes.watchers


# ---- the allocator ----


@pytest.mark.parametrize("break_it", [
    lambda pages: pages.__setitem__(0, pages[1]),  # one twice, the other not at all
    lambda pages: pages.__setitem__(slice(None), np.array([1, 2, 3, 8], np.int32)),  # one is held
])  # fmt: skip
def test_a_list_of_free_pages_that_is_wrong_is_found(break_it):
    allocator = PythonAllocator(8)
    allocator.allocate(8)
    allocator.free([1, 2, 3, 4])
    assert allocator.check_integrity() == []
    break_it(allocator._stack[:4])
    assert allocator.check_integrity() != []


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("page_size", [1, 4])
def test_free_slots_are_marked(core, page_size):
    cache = PrefixCache(16, core=core, page_size=page_size)
    cache.admit([1, 2, 3])
    end = 16 + page_size
    marks = cache.allocator.free_marks(0, end)
    assert np.flatnonzero(marks).tolist() == sorted(cache.allocator.free_slots().tolist())
    assert cache.allocator.free_marks(2, 7).tolist() == marks[2:7].tolist()
    assert cache.allocator.check_integrity() == []
