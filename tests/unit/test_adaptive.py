"""The adaptive policy on workloads whose answer is known."""

from collections.abc import Iterable
from itertools import count

import numpy as np
import pytest

from radixkv import Namespace, PrefixCache, new_tree
from radixkv.errors import InvalidArgumentError
from radixkv.tree import POLICIES
from tests.support.trees import CORES

SIZE = 300  # of a prompt: more than two ghosts


def prompts(numbers: Iterable[int], size: int = SIZE) -> list[np.ndarray]:
    """Prompts that have nothing in common."""
    return [np.arange(size, dtype=np.int32) + 1000 * number for number in numbers]


def hit_rate(requests: list[np.ndarray], capacity: int, policy: str, core: str, **how) -> float:
    pool = capacity + 2 * max(map(len, requests))
    cache = PrefixCache(pool, policy=policy, core=core, max_cached_tokens=capacity, **how)
    for token_ids in requests:
        request = cache.admit(token_ids)
        assert request is not None
        cache.publish(request, len(token_ids))
        cache.finish(request, up_to=request.length)
    assert cache.check_integrity() == []
    return cache.totals.cached_tokens / cache.totals.prompt_tokens


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_loop_larger_than_the_cache_does_not_thrash(core, page_size):
    loop = prompts(list(range(10)) * 12)
    lru, adaptive = (
        hit_rate(loop, 8 * SIZE, policy, core, page_size=page_size)
        for policy in ("lru", "adaptive")
    )
    assert lru == 0
    assert adaptive > 0.6  # 0.8 fit, less what it takes to learn


@pytest.mark.parametrize("capacity", [2 * SIZE, 5 * SIZE, 20 * SIZE])
def test_where_the_last_used_comes_first_it_is_no_worse_than_lru(core, rng, capacity):
    """Popular prompts among many, and each often repeated at once."""
    numbers = np.repeat(rng.zipf(1.3, 400) % 60, rng.integers(1, 4, 400))
    lru, adaptive = (
        hit_rate(prompts(numbers.tolist()), capacity, policy, core)
        for policy in ("lru", "adaptive")
    )
    assert adaptive >= lru - 0.001 - 1 / len(numbers)  # one prompt


def test_a_scan_does_not_push_out_what_comes_back(core):
    fresh = count(100)
    rounds = [[at % 4, next(fresh), next(fresh), next(fresh)] for at in range(200)]
    requests = prompts([number for four in rounds for number in four])
    lru, adaptive = (hit_rate(requests, 6 * SIZE, policy, core) for policy in ("lru", "adaptive"))
    assert lru == 0
    assert adaptive > 0.2  # of 0.25


def test_it_gives_up_what_is_over(core):
    """Two loops, one after the other: the first does not keep its place."""
    requests = prompts(list(range(10)) * 10 + list(range(50, 60)) * 15)
    late = hit_rate(requests, 8 * SIZE, "adaptive", core)
    assert late > 0.5


def test_the_same_requests_give_the_same_victims(core):
    def victims():
        tree, out = new_tree(policy="adaptive", core=core), []
        for at, token_ids in enumerate(prompts(list(range(9)) * 6)):
            tree.insert(token_ids, token_ids)
            out += tree.evict(tree.total_size - 5 * SIZE if at > 5 else 0).tolist()
        return out

    assert victims() == victims() != []


def test_a_prompt_longer_than_the_capacity_keeps_its_beginning(core):
    tree = new_tree(policy="adaptive", core=core)
    (prompt,) = prompts([1])
    tree.insert(prompt, prompt)
    assert tree.evict(200).tolist() == prompt[100:].tolist()
    assert tree.probe(prompt) == 100


def test_what_was_learnt_goes_with_a_reset(core):
    def order(tree):
        for prompt in prompts([1, 2, 3, 1]):
            tree.insert(prompt, prompt)
        return tree.evict(10**6).tolist()

    used = new_tree(policy="adaptive", core=core)
    for at, prompt in enumerate(prompts(list(range(20)) * 10)):
        used.insert(prompt, prompt)
        used.evict(max(used.total_size - 1000 - at, 0))
    used.reset()
    assert order(used) == order(new_tree(policy="adaptive", core=core))


def test_ghosts_of_two_namespaces_are_not_mixed_up():
    history = ghosts_after([Namespace(salt="a")] * 3)
    mixed = ghosts_after([Namespace(salt="a"), Namespace(salt="b"), Namespace(salt="a")])
    assert mixed.ghost_tokens > history.ghost_tokens > 0


def ghosts_after(spaces):
    """One prompt, inserted and evicted in each of the namespaces next to one that stays."""
    tree = new_tree(policy="adaptive", core="python")
    stays, comes = prompts([1, 2])
    handle = tree.insert(stays, stays).handle
    tree.inc_lock_ref(handle)
    for space in spaces:
        tree.insert(comes, comes, space)
        tree.evict(SIZE)
    return tree.nodes.policy


def test_ghosts_are_bounded_by_what_is_cached():
    tree = new_tree(policy="adaptive", core="python")
    for at, prompt in enumerate(prompts(range(300))):
        tree.insert(prompt, prompt)
        tree.evict(max(tree.total_size - 1000, 0))
        assert tree.nodes.policy.ghost_tokens <= 4 * 1000, at
    assert tree.nodes.policy.ghost_tokens > 3 * 1000
    tree.evict(10**6)
    assert tree.nodes.policy.ghost_tokens == 0


def test_what_comes_back_as_a_ghost_counts_as_used():
    tree = new_tree(policy="adaptive", core="python")
    for prompt in prompts([1, 2, 3]):
        tree.insert(prompt, prompt)
    back, new = tree.evict(SIZE), prompts([4])[0]
    tree.insert(back, back)
    tree.insert(new, new)
    assert [node.memo.count for _, node in tree.nodes.walk()] == [0, 0, 1, 0]
    assert [node.memo.gap > 0 for _, node in tree.nodes.walk()] == [False, False, True, False]


@pytest.mark.parametrize("page_size", [1, 16, 200])
def test_both_cores_know_the_same_ghosts(rng, page_size):
    """Keys long enough for ghosts, cut everywhere, with locks, chunks and namespaces."""
    if len(CORES) == 1:
        pytest.skip("the native core is not built here")
    trees = [new_tree(page_size, "adaptive", core) for core in CORES]
    stem = rng.integers(0, 100, 3000).astype(np.int32)
    spaces, held = [Namespace(), Namespace(salt="a")], []
    for step in range(400):
        cut, size = rng.integers(0, 2500, 2)
        own = np.arange(int(size) % 700, dtype=np.int32) + int(rng.integers(0, 12)) * 1000
        ids = np.concatenate([stem[: int(cut)], own])
        slots = np.arange(len(ids), dtype=np.int32) + 4000 * step
        space, chunked = spaces[step % 3 == 0], bool(step % 5 == 0)
        results = [tree.insert(ids, slots, space, chunked=chunked) for tree in trees]
        if step % 7 == 0:
            for tree, result in zip(trees, results, strict=True):
                tree.inc_lock_ref(result.handle)
            held.append(results)
        if len(held) > 2:
            for tree, result in zip(trees, held.pop(0), strict=True):
                tree.dec_lock_ref(result.handle)
        excess = max(trees[0].total_size - 20_000, 0)
        python, native = (tree.evict(excess).tolist() for tree in trees)
        assert python == native, step
    assert [line for tree in trees for line in tree.check_integrity()] == []
    assert trees[0].nodes.policy.ghost_tokens > 10_000


def test_it_is_one_of_the_policies():
    assert "adaptive" in POLICIES


@pytest.mark.skipif("native" not in CORES, reason="the native core is not built here")
@pytest.mark.parametrize("damage", [lambda b: b[:-8], lambda b: b[:80], lambda b: b"\xff" * len(b)])
def test_a_damaged_state_is_refused(damage):
    tree = new_tree(policy="adaptive", core="native")
    for prompt in prompts(range(10)):
        tree.insert(prompt, prompt)
        tree.evict(max(tree.total_size - 4 * SIZE, 0))
    state = tree.__getstate__()
    *counters, history = state["counters"]
    state["counters"] = (*counters, damage(history))
    with pytest.raises(InvalidArgumentError, match="state must be that of a pickled tree"):
        tree.__class__.__new__(tree.__class__).__setstate__(state)


def test_what_is_evicted_below_a_prefix_is_forgotten_where_too_little_is_cached():
    """What is watched of evicted tokens is at most four times what is cached."""
    tree = new_tree(1, "adaptive", "python")
    tree.insert(list(range(1_000)), list(range(1, 1_001)))
    tree.evict_below(range(10))
    assert tree.nodes.policy.ghost_tokens <= 4 * tree.total_size
    tree.evict_below([])
    assert (tree.total_size, tree.nodes.policy.ghost_tokens) == (0, 0)
    assert tree.check_integrity() == []


def replay_by_clock(core: str, seconds_a_request: float | None) -> float:
    """The hit rate of a loop that is larger than the cache."""
    tree = new_tree(policy="adaptive", core=core)
    found = asked = 0
    for at, prompt in enumerate(prompts([*range(12)] * 20)):
        if seconds_a_request is not None:
            tree.advance_clock(int(1000 * seconds_a_request * at))
        found += tree.probe(prompt)
        asked += SIZE
        tree.insert(prompt, prompt)
        tree.evict(max(tree.total_size - 8 * SIZE, 0))
    assert tree.check_integrity() == []
    return found / asked


@pytest.mark.parametrize("seconds", [None, 0.1, 1.0, 3600.0])
def test_a_loop_is_learnt_whatever_the_clock(core, seconds):
    assert replay_by_clock(core, seconds) > 0.4


def test_time_that_goes_back_counts_as_no_time_passed():
    """Both cores, at times that jump either way."""
    trees = [new_tree(policy="adaptive", core=core) for core in CORES]
    for at, prompt in enumerate(prompts([*range(9), *range(5)] * 9)):
        for tree in trees:
            tree.advance_clock(max(0, 10**15 * (at == 40) + 700 * at - 90_000 * (at % 11 == 3)))
            tree.insert(prompt, prompt)
        evicted = [tree.evict(max(tree.total_size - 6 * SIZE, 0)).tolist() for tree in trees]
        assert evicted[0] == evicted[-1]
    assert [line for tree in trees for line in tree.check_integrity()] == []
