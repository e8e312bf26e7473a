"""The contract of the tree (`radixkv/tree/radix_tree.py`), for every core at every page size.

Matching, probing and inserting.
"""

import pickle
import tracemalloc

import numpy as np
import pytest

from radixkv import new_tree
from radixkv.errors import (
    InvalidArgumentError,
    InvalidSlotsError,
    InvalidTokensError,
)
from radixkv.tree import format_tree
from tests.support.trees import snapshot

# ---- match_prefix ----


def test_an_empty_tree_matches_nothing(words):
    match = words.match("abc")
    assert (match.length, match.handle.length) == (0, 0)
    assert (match.slots.dtype, match.slots.shape) == (np.int32, (0,))
    assert words.sizes() == (0, 0)
    assert words.tree.num_nodes == 0


@pytest.mark.parametrize(
    ("key", "found"),
    [("", ""), ("a", "a"), ("abc", "abc"), ("abcd", "abcd"), ("abcdef", "abcd"), ("abx", "ab"),
     ("abyz", "abyz"), ("abyzd", "abyz"), ("aby", "aby"), ("x", ""), ("b", ""), ("xabcd", "")],
)  # fmt: skip
def test_a_match_is_the_longest_cached_prefix(words, key, found):
    words.insert("abcd")
    words.insert("abyz")
    match = words.match(key)
    assert match.length == match.handle.length == len(words.key(found))
    assert words.read(match.slots) == found
    assert words.probe(key) == found


def test_a_match_gives_the_slots_that_were_stored_first(words):
    first = words.fresh_slots("abcd")
    words.tree.insert(words.key("abcd"), first)
    words.tree.insert(words.key("abcd"), words.fresh_slots("abcd"))
    assert words.match("abcd").slots.tolist() == first


def test_a_match_ends_at_a_whole_page(words):
    words.insert("abc")
    for length in range(3 * words.page_size + 1):
        key = words.key("abc")[:length]
        whole = length - length % words.page_size
        assert words.tree.match_prefix(key).length == words.tree.probe(key) == whole


def test_a_difference_inside_a_page_is_a_different_page(words):
    words.insert("ab")
    key = words.key("ab")
    for at in range(len(key)):
        other = [*key[:at], 7, *key[at + 1 :]]
        assert words.tree.probe(other) == at - at % words.page_size


def test_pages_that_begin_alike_are_stored_apart(words):
    a, b = words.key("a"), [*words.key("a")[:-1], 7]
    slots = words.fresh_slots("aa")
    words.tree.insert(a, slots[: len(a)])
    assert words.tree.insert(b, slots[len(a) :]).prefix_length == 0
    assert words.tree.match_prefix(a).slots.tolist() == slots[: len(a)]
    assert words.tree.match_prefix(b).slots.tolist() == slots[len(a) :]


def test_match_never_changes_the_shape(words):
    for word in ("abcdef", "abcx", "ab", "q"):
        words.insert(word)
    before = snapshot(words.tree, without=("recency",))
    for word in ("a", "abc", "abcde", "abcdefg", "abcxy", "qq", "", "z", "abcdef"):
        words.match(word)
        words.probe(word)
    assert snapshot(words.tree, without=("recency",)) == before


def test_match_refreshes_the_nodes_matched_whole(words):
    for word in ("abcd", "abxy", "q"):
        words.insert(word)
    before = {word: node.recency for word, node in words.nodes().items()}
    words.match("abcdz")
    after = {word: node.recency for word, node in words.nodes().items()}
    newest = max(before.values())
    assert after["/ab"] >= after["ab/cd"] > newest
    assert (after["ab/xy"], after["/q"]) == (before["ab/xy"], before["/q"])


def test_a_node_matched_in_part_keeps_its_recency(words):
    words.insert("abcd")
    words.insert("abxy")
    words.insert("q")
    before = {word: node.recency for word, node in words.nodes().items()}
    words.match("abc")
    after = {word: node.recency for word, node in words.nodes().items()}
    assert after["ab/cd"] == before["ab/cd"]
    assert after["/ab"] > max(before.values())
    words.match("a")
    assert {word: node.recency for word, node in words.nodes().items()} == after


def test_a_match_of_nothing_refreshes_nothing(words):
    words.insert("ab")
    before = snapshot(words.tree)
    words.match("")
    words.match("x")
    words.tree.match_prefix(words.key("ab")[: words.page_size - 1])
    assert snapshot(words.tree) == before


def test_the_slots_of_a_match_are_a_copy(words):
    words.insert("abcd")
    words.insert("abxy")
    for word in ("abcd", "ab", "abc", "a"):
        first = words.match(word).slots
        kept = first.tolist()
        first[:] = -7
        assert words.match(word).slots.tolist() == kept


def test_a_match_survives_what_happens_to_the_tree(words):
    words.insert("abcd")
    match = words.match("abcd")
    kept = match.slots.tolist()
    words.insert("abxy")
    words.tree.reset()
    words.insert("abcd")
    assert match.slots.tolist() == kept


def test_a_short_match_in_a_long_node_costs_what_it_matches(core):
    tree = new_tree(core=core)
    tree.insert(np.arange(1_000_000), np.arange(1_000_000))
    tracemalloc.start()
    match = tree.match_prefix([0, 1, 2])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert match.slots.tolist() == [0, 1, 2]
    assert peak < 100_000


# ---- probe ----


def test_probe_changes_nothing_at_all(words):
    for word in ("abcd", "abxy", "q"):
        words.insert(word)
    before = snapshot(words.tree)
    asked = ["", "a", "abcd", "abcdz", "abxyz", "q", "z"]
    found = [words.tree.probe(words.key(word)) for word in asked]
    assert words.tree.probe_batch([words.key(word) for word in asked]) == found
    assert snapshot(words.tree) == before
    assert words.evict(7) == "cdxyabq"


def test_probe_batch_of_nothing(words):
    assert words.tree.probe_batch([]) == []


def test_a_bad_prompt_in_a_batch_is_named(words):
    words.insert("ab")
    with pytest.raises(InvalidTokensError, match=r"^prompts\[2\]\[1\] must be .* got -1"):
        words.tree.probe_batch([[1], [2], [3, -1], [4]])


# ---- insert ----


def test_insert_says_what_was_there(words):
    first = words.insert("abcd")
    assert (first.prefix_length, first.slots.shape) == (0, (0,))
    again = words.insert("abcdef")
    assert again.prefix_length == len(words.key("abcd"))
    assert words.read(again.slots) == "abcd"
    assert again.handle.length == len(words.key("abcdef"))
    assert again.slots.tolist() == words.match("abcd").slots.tolist()
    inside = words.insert("abx")
    assert words.read(inside.slots) == "ab"


def test_insert_stores_whole_pages_only(words):
    page = words.page_size
    key = words.key("abc")
    for length in range(len(key) + 1):
        tree = new_tree(page, core=words.tree.core)
        result = tree.insert(key[:length], range(page, page + length))
        whole = length - length % page
        assert tree.total_size == tree.probe(key) == result.handle.length == whole


def test_a_key_shorter_than_a_page_stores_nothing(grow):
    words = grow()
    if words.page_size == 1:
        return
    key = words.key("a")[:-1]
    result = words.tree.insert(key, key)
    assert (result.prefix_length, result.handle.length, words.tree.num_nodes) == (0, 0, 0)
    assert words.tree.match_prefix(key).length == 0


def test_insert_of_nothing_changes_nothing(words):
    words.insert("ab")
    before = snapshot(words.tree)
    result = words.tree.insert([], [])
    assert (result.prefix_length, result.slots.shape, result.handle.length) == (0, (0,), 0)
    assert snapshot(words.tree) == before


def test_insert_frees_nothing(words):
    """Slots leave the tree by `evict` and `reset` alone."""
    stored: set[int] = set()
    for word in ("abcd", "abcd", "ab", "abxy", "abcdefg", "q", "qrs", "abc"):
        fresh = words.fresh_slots(word)
        there = words.tree.insert(words.key(word), fresh).prefix_length
        stored |= set(fresh[there:])
        assert set(words.tree.all_slots().tolist()) == stored


def test_insert_splits_where_keys_part(words):
    words.insert("abcdef")
    assert set(words.nodes()) == {"/abcdef"}
    words.insert("abcx")
    assert set(words.nodes()) == {"/abc", "abc/def", "abc/x"}
    words.insert("a")
    assert set(words.nodes()) == {"/a", "a/bc", "abc/def", "abc/x"}
    words.insert("abcdefg")
    assert set(words.nodes()) == {"/a", "a/bc", "abc/def", "abc/x", "abcdef/g"}
    assert words.tree.num_nodes == 5
    assert words.sizes() == (8, 0)


def test_insert_refreshes_the_path(words):
    for word in ("abc", "abx", "q"):
        words.insert(word)
    before = {word: node.recency for word, node in words.nodes().items()}
    words.insert("abc")
    after = {word: node.recency for word, node in words.nodes().items()}
    assert after["/ab"] >= after["ab/c"] > max(before.values())
    assert (after["ab/x"], after["/q"]) == (before["ab/x"], before["/q"])


def test_a_split_leaves_the_tail_its_recency(words):
    words.insert("abcd")
    before = words.nodes()["/abcd"].recency
    words.insert("abx")
    nodes = words.nodes()
    assert nodes["ab/cd"].recency == before
    assert nodes["/ab"].recency >= nodes["ab/x"].recency > before


def test_a_node_is_never_newer_than_its_parent(words, rng):
    for _ in range(300):
        word = "".join(rng.choice(list("ab"), rng.integers(0, 6)))
        if rng.random() < 0.5:
            words.insert(word)
        elif rng.random() < 0.7:
            words.match(word)
        else:
            words.evict(int(rng.integers(0, 4)))
        recency = {node.id: node.recency for node in words.tree.walk()}
        assert all(
            node.recency <= recency[node.parent_id] for node in words.tree.walk() if node.parent_id
        )


def test_the_tree_keeps_no_buffer_of_the_caller(words):
    ids = np.array(words.key("abcd"), np.int32)
    slots = np.array(words.fresh_slots("abcd"), np.int32)
    kept = slots.tolist()
    words.tree.insert(ids, slots)
    ids[:] = 0
    slots[:] = 0
    assert words.match("abcd").slots.tolist() == kept


def test_a_read_only_buffer_is_fine(words):
    ids = np.frombuffer(np.array(words.key("ab"), np.int32).tobytes(), np.int32)
    words.tree.insert(ids, ids)
    assert words.tree.match_prefix(ids).slots.tolist() == ids.tolist()


def test_the_widest_ids_and_slots(tree):
    widest = 2**31 - 1
    tree.insert([widest, 0, widest], [0, widest, 1])
    assert tree.match_prefix([widest, 0, widest]).slots.tolist() == [0, widest, 1]
    assert tree.probe([widest, 1]) == 1


@pytest.mark.parametrize("priority", ["high", None, 1.5, [1]])
def test_a_priority_that_is_no_int_changes_nothing(words, priority):
    words.insert("ab")
    before = snapshot(words.tree)
    with pytest.raises(InvalidArgumentError, match="priority"):
        words.insert("abc", priority=priority)
    assert snapshot(words.tree) == before


def test_a_refused_insert_changes_nothing(words):
    words.insert("ab")
    before = snapshot(words.tree)
    key = words.key("abc")
    for bad in (
        lambda: words.tree.insert(key, key[:-1]),
        lambda: words.tree.insert([*key[:-1], -1], key),
        lambda: words.tree.insert(key, [*key[:-1], -1]),
        lambda: words.tree.insert(key, key, content=[(0, len(key) + 1, b"x")]),
    ):
        with pytest.raises(InvalidArgumentError):
            bad()
        assert snapshot(words.tree) == before


def test_insert_is_refused_by_the_class_its_fault_belongs_to(words):
    with pytest.raises(InvalidTokensError):
        words.tree.insert([1.5], [1])
    with pytest.raises(InvalidSlotsError):
        words.tree.insert([1], [1.5])


def test_a_key_of_a_million_tokens(core):
    tree, million = new_tree(core=core), 1_000_000
    ids, slots = np.arange(million) % 50_000, np.arange(million)
    assert tree.insert(ids, slots).prefix_length == 0
    assert tree.match_prefix(ids.tolist()).slots.tolist() == slots.tolist()
    assert tree.probe(ids) == million
    fork = np.append(ids[: million // 2], 7)
    assert (
        tree.insert(fork.astype(np.int32), np.append(slots[: million // 2], million)).prefix_length
        == million // 2
    )
    assert (tree.num_nodes, tree.total_size) == (3, million + 1)
    assert tree.evict(1).tolist() == [million - 1]
    tree.inc_lock_ref(tree.match_prefix(ids[: million // 4]).handle)
    assert len(tree.evict(million)) == million + 1 - 1 - million // 4
    assert tree.match_prefix(ids).slots.tolist() == slots[: million // 4].tolist()
    back = pickle.loads(pickle.dumps(tree))
    assert back.all_slots().tolist() == slots[: million // 4].tolist()
    assert tree.check_integrity() == back.check_integrity() == []
    assert len(format_tree(tree)) < 1_000
