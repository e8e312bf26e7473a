"""How much is evicted, where, and in which order."""

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace, new_tree
from radixkv.errors import InvalidArgumentError
from radixkv.tree import POLICIES
from tests.support.oracle_tree import OracleTree
from tests.support.trees import snapshot

# ---- how much ----


@pytest.mark.parametrize("policy", POLICIES)
def test_evict_frees_exactly_what_was_asked(grow, policy):
    for n in range(10):
        words = grow(policy)
        for word in ("abcd", "abxy", "q"):
            words.insert(word)
        slots = words.tree.evict(n * words.page_size)
        assert slots.dtype == np.int32
        assert len(words.read(slots)) == min(n, 7)
        assert words.sizes() == (7 - min(n, 7), 0)
        assert len(set(slots.tolist()) & set(words.tree.all_slots().tolist())) == 0


def test_evict_rounds_up_to_whole_pages(grow):
    for tokens in range(1, 3 * grow().page_size + 1):
        words = grow()
        words.insert("abcdef")
        page = words.page_size
        assert len(words.tree.evict(tokens)) == -(-tokens // page) * page


def test_evict_of_nothing_frees_nothing(words):
    words.insert("abcd")
    before = snapshot(words.tree)
    assert words.tree.evict(0).shape == (0,)
    assert words.tree.evict(0).dtype == np.int32
    assert snapshot(words.tree) == before


def test_evict_of_an_empty_tree(words):
    assert words.tree.evict(10).shape == (0,)


def test_evict_of_more_than_there_is_frees_all(words):
    words.insert("abcd")
    words.insert("abxy")
    assert sorted(words.evict(10**6)) == sorted("abcdxy")
    assert (words.tree.num_nodes, words.sizes()) == (0, (0, 0))


@pytest.mark.parametrize("number", [3, np.int32(3), np.int64(3), np.uint8(3)])
def test_any_int_says_how_much(tree, number):
    tree.insert([1, 2, 3, 4], [1, 2, 3, 4])
    assert tree.evict(number).tolist() == [2, 3, 4]


@pytest.mark.parametrize("number", [-1, -(10**30), 1.0, 2.5, "3", None, [3], float("nan")])
def test_what_is_no_amount_changes_nothing(words, number):
    for word in ("a", "bcdef", "g"):
        words.insert(word)
    before = snapshot(words.tree)
    with pytest.raises(InvalidArgumentError, match="num_tokens must be"):
        words.tree.evict(number)
    assert snapshot(words.tree) == before


def test_evict_of_a_huge_amount_is_all(tree):
    tree.insert([1, 2], [1, 2])
    assert tree.evict(10**30).tolist() == [1, 2]


# ---- where ----


def test_leaves_go_first_and_parents_after_their_last_child(words):
    for word in ("abcd", "abxy", "abxyz"):
        words.insert(word)
    assert words.evict_one_by_one() == "dczyxba"


def test_the_last_victim_is_trimmed_from_its_tail(words):
    words.insert("abcdef")
    assert words.evict(2) == "ef"
    assert set(words.nodes()) == {"/abcd"}
    assert words.probe("abcdef") == "abcd"
    assert words.evict(1) == "d"
    assert words.probe("abcdef") == "abc"


def test_only_the_last_victim_is_trimmed(words):
    for word in ("abc", "def", "ghi"):
        words.insert(word)
    assert words.evict(4) == "abcf"
    assert set(words.nodes()) == {"/de", "/ghi"}


def test_a_trimmed_node_keeps_its_place_in_the_order(words):
    for word in ("abc", "def"):
        words.insert(word)
    assert words.evict(1) == "c"
    assert words.evict(3) == "abf"


def test_a_trimmed_node_grows_again_below(words):
    words.insert("abcdef")
    words.evict(3)
    assert words.insert("abcxyz").prefix_length == len(words.key("abc"))
    assert words.insert("abcdef").prefix_length == len(words.key("abc"))
    assert words.insert("abq").prefix_length == len(words.key("ab"))
    assert set(words.nodes()) == {"/ab", "ab/c", "abc/xyz", "abc/def", "ab/q"}
    for word in ("abcxyz", "abcdef", "abq"):
        assert words.read(words.match(word).slots) == word


def test_trims_of_one_token_each_leave_the_rest_whole(core):
    tree = new_tree(core=core)
    tree.insert(range(100), range(1, 101))
    for left in range(99, -1, -1):
        assert tree.evict(1).tolist() == [left + 1]
        assert tree.match_prefix(range(100)).slots.tolist() == list(range(1, left + 1))
    assert tree.num_nodes == 0


def test_evicted_slots_are_the_callers(words):
    words.insert("abcd")
    slots = words.tree.evict(2 * words.page_size)
    slots[:] = 0
    assert words.read(words.match("abcd").slots) == "ab"


# ---- in which order ----


def test_lru_evicts_what_was_touched_longest_ago(words):
    for letter in "abcd":
        words.insert(letter)
    words.match("a")
    words.probe("b")
    words.insert("c")
    assert words.evict_one_by_one() == "bdac"


def test_a_match_in_part_saves_the_node_not(words):
    words.insert("abc")
    words.insert("q")
    words.match("ab")
    assert words.evict(1) == "c"


def test_locking_a_part_refreshes_that_part_alone(words):
    words.insert("abcd")
    words.insert("q")
    words.tree.dec_lock_ref(words.lock("ab"))
    assert words.evict_one_by_one() == "dcqba"


def test_locking_a_whole_node_refreshes_nothing_more_than_its_match(words):
    words.insert("ab")
    handle = words.match("ab").handle
    words.insert("q")
    words.tree.inc_lock_ref(handle)
    words.tree.dec_lock_ref(handle)
    assert words.evict(2) == "ab"


def test_unlocking_refreshes_nothing(words):
    handles = []
    for letter in "abc":
        words.insert(letter)
        handles.append(words.lock(letter))
    before = [node["recency"] for node in snapshot(words.tree)]
    for handle in reversed(handles):
        words.tree.dec_lock_ref(handle)
    assert [node["recency"] for node in snapshot(words.tree)] == before
    assert words.evict_one_by_one() == "abc"


def test_lru_across_namespaces_is_one_order(words):
    spaces = [DEFAULT, Namespace(salt="s"), Namespace(adapter="l")]
    for letter, space in zip("abc", spaces, strict=True):
        words.insert(letter, space)
    words.match("a", spaces[0])
    assert words.evict_one_by_one() == "bca"


def test_mru_evicts_the_latest(grow):
    words = grow("mru")
    for letter in "abc":
        words.insert(letter)
    words.match("a")
    assert words.evict_one_by_one() == "acb"


def test_fifo_evicts_the_first_made_whatever_was_used(grow):
    words = grow("fifo")
    for letter in "abc":
        words.insert(letter)
    words.insert("a")
    words.match("a")
    assert words.evict_one_by_one() == "abc"


def test_filo_evicts_the_last_made_whatever_was_used(grow):
    words = grow("filo")
    for letter in "abc":
        words.insert(letter)
    words.insert("a")
    words.match("b")
    assert words.evict_one_by_one() == "cba"


def test_both_halves_of_a_split_are_as_old_as_the_whole(grow):
    words = grow("fifo")
    words.insert("ab")
    words.insert("x")
    words.insert("a")
    assert words.evict_one_by_one() == "bax"


def test_lfu_evicts_what_was_inserted_least(grow):
    words = grow("lfu")
    for letter in "abcab":
        words.insert(letter)
    words.insert("a")
    words.match("c")
    words.match("c")
    assert words.evict_one_by_one() == "cba"


def test_lfu_evicts_the_older_of_equals(grow):
    words = grow("lfu")
    for letter in "abc":
        words.insert(letter)
    words.match("a")
    assert words.evict_one_by_one() == "bca"


def test_slru_protects_what_was_inserted_twice(grow):
    words = grow("slru")
    for letter in "abcda":
        words.insert(letter)
    words.insert("b")
    words.insert("b")
    words.match("c")
    assert words.evict_one_by_one() == "dcab"


def test_priority_evicts_the_lowest_and_the_older_of_equals(grow):
    words = grow("priority")
    for letter, priority in [("a", 1), ("b", 0), ("c", -1), ("d", 0), ("e", 2), ("f", -1)]:
        words.insert(letter, priority=priority)
    words.match("b")
    assert words.evict_one_by_one() == "cfdbae"


def test_priority_rises_along_the_path_and_never_falls(grow):
    words = grow("priority")
    words.insert("abcd", priority=1)
    words.insert("abxy", priority=3)
    assert {w: n.priority for w, n in words.nodes().items()} == {"/ab": 3, "ab/cd": 1, "ab/xy": 3}
    words.insert("abcd", priority=2)
    words.insert("abxyz", priority=-5)
    assert {w: n.priority for w, n in words.nodes().items()} == {
        "/ab": 3, "ab/cd": 2, "ab/xy": 3, "abxy/z": -5
    }  # fmt: skip


def test_a_split_keeps_the_priority_below(grow):
    words = grow("priority")
    words.insert("abcd", priority=5)
    words.insert("ab", priority=1)
    assert {w: n.priority for w, n in words.nodes().items()} == {"/ab": 5, "ab/cd": 5}


def test_hits_count_inserts_through_a_node(words):
    words.insert("abcd")
    words.insert("abxy")
    words.insert("ab")
    words.match("abcd")
    assert {w: n.hit_count for w, n in words.nodes().items()} == {"/ab": 3, "ab/cd": 1, "ab/xy": 1}


def test_chunks_of_a_key_count_once(words):
    words.insert("ab", chunked=True)
    words.insert("abcd", chunked=True)
    assert {w: n.hit_count for w, n in words.nodes().items()} == {"/ab": 0, "ab/cd": 0}
    words.insert("abcdef")
    assert {w: n.hit_count for w, n in words.nodes().items()} == {
        "/ab": 1, "ab/cd": 1, "abcd/ef": 1
    }  # fmt: skip


def test_a_chunked_insert_still_refreshes_and_raises_priority(words):
    words.insert("ab")
    words.insert("q")
    words.insert("ab", priority=4, chunked=True)
    assert words.nodes()["/ab"].priority == 4
    assert words.evict_one_by_one() == "qba"


@pytest.mark.parametrize("policy", POLICIES)
def test_victims_are_those_of_a_naive_oracle(grow, rng, policy):
    """A long random life; every victim, every match, every size."""
    words = grow(policy)
    tree, page = words.tree, words.page_size
    oracle = OracleTree(page, policy)
    held = []
    for step in range(600):
        word = "".join(rng.choice(list("abc"), rng.integers(1, 7)))
        key, act = words.key(word), rng.random()
        if act < 0.45:
            slots, priority, chunked = words.fresh_slots(word), int(rng.integers(0, 3)), act < 0.1
            there = tree.insert(key, slots, priority=priority, chunked=chunked).prefix_length
            assert there == oracle.insert(DEFAULT, tuple(key), slots, priority, not chunked)
        elif act < 0.7:
            match = tree.match_prefix(key)
            assert match.slots.tolist() == oracle.match(DEFAULT, tuple(key))
            if len(held) < 4:
                handle = oracle.handle(DEFAULT, tuple(key[: match.length]))
                tree.inc_lock_ref(match.handle)
                oracle.lock(handle)
                held.append((match.handle, handle))
        elif act < 0.8 and held:
            real, handle = held.pop(int(rng.integers(len(held))))
            tree.dec_lock_ref(real)
            oracle.unlock(handle)
        else:
            n = int(rng.integers(0, 8)) * page
            assert tree.evict(n).tolist() == oracle.evict(n), f"step {step}"
        assert (tree.evictable_size, tree.protected_size) == oracle.sizes()
