"""Eviction costs what it frees and a touch what it touches: counted, never timed."""

import os
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from radixkv import RadixTree, new_tree
from radixkv.tree import POLICIES


def calls_of(work: Callable[[], object]) -> int:
    """How many function calls `work` makes: what it costs, without a clock."""
    count = 0

    def tick(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def leaves(core: str, number: int, policy: str = "lru") -> RadixTree:
    """`number` leaves of 8 tokens each below one token."""
    tree = new_tree(policy=policy, core=core)
    for at in range(number):
        tree.insert(
            np.array([0, at + 1, 0, 0, 0, 0, 0, 0, 0], np.int32),
            np.arange(9 * at, 9 * at + 9, dtype=np.int32),
        )
    return tree


@pytest.mark.parametrize("policy", POLICIES)
def test_evicting_costs_what_it_frees_not_what_the_tree_holds(core, policy):
    # What `adaptive` learns is weighed anew now and then: ages have to be there, in both.
    small, large = leaves(core, 500, policy), leaves(core, 5_000, policy)

    def work(tree: RadixTree) -> int:
        return max(calls_of(lambda: tree.evict(8)) for _ in range(20))

    assert work(large) <= 2 * work(small) + 20


@pytest.mark.parametrize("policy", POLICIES)
def test_touching_costs_the_path_not_what_the_tree_holds(core, policy):
    small, large = leaves(core, 50, policy), leaves(core, 5_000, policy)

    def work(tree: RadixTree) -> int:
        return max(
            calls_of(partial(tree.insert, [0, at, 0, 0, 0, 0, 0, 0, 0], range(9)))
            for at in range(1, 20)
        )

    assert work(large) <= 2 * work(small) + 20


def test_a_hundred_thousand_leaves_go_one_by_one(core):
    number = 100_000
    tree = new_tree(core=core)
    for at in range(number):
        tree.insert([at], [at])
    assert (tree.num_nodes, tree.total_size) == (number, number)
    for at in range(0, number, 1_000):
        tree.match_prefix([at])
    assert tree.check_integrity() == []
    costs = [calls_of(lambda: tree.evict(1)) for _ in range(100)]
    assert max(costs) < 1_000
    order = [int(tree.evict(1)[0]) for _ in range(number - 100)]
    old = [at for at in range(number) if at % 1_000]
    assert order == old[100:] + list(range(0, number, 1_000))
    assert tree.num_nodes == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_touching_the_same_nodes_again_takes_no_memory(core, policy):
    """No entry stays behind in the order of eviction: so many of them would show."""
    tree = new_tree(policy=policy, core=core)
    keys = [np.array([0, at], np.int32) for at in range(1, 9)]
    for key in keys:
        tree.insert(key, key)

    def touch(times: int) -> None:
        for at in range(times):
            tree.match_prefix(keys[at % 8])
            if at % 4 == 0:
                tree.insert(keys[at // 4 % 8], keys[at // 4 % 8])

    touch(2_000)
    blocks, pages = sys.getallocatedblocks(), _resident_bytes()
    touch(200_000 if policy == "lru" or core == "native" else 15_000)
    assert sys.getallocatedblocks() - blocks < 1_000
    assert _resident_bytes() - pages < 2**21


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
