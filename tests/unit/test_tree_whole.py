"""The tree as a whole: its sizes, what it shows, resets, copies and its own check."""

import pickle
from contextlib import suppress
from copy import copy, deepcopy

import numpy as np
import pytest

from radixkv import new_tree
from radixkv.errors import (
    InvalidNamespaceError,
    StaleHandleError,
)
from radixkv.tree import DEFAULT, POLICIES, Namespace, format_tree
from tests.support.trees import snapshot

# ---- sizes, walk, format ----


def test_sizes_count_tokens_under_a_lock_and_not(words):
    words.insert("abcd")
    words.insert("abxyz")
    assert words.sizes() == (7, 0)
    handle = words.lock("abcd")
    assert words.sizes() == (3, 4)
    words.evict(1)
    assert words.sizes() == (2, 4)
    words.tree.dec_lock_ref(handle)
    assert words.sizes() == (6, 0)


def test_walk_shows_every_node_parents_first(words):
    for word in ("abcd", "abxy", "abxyz", "q"):
        words.insert(word)
    seen, page = {0}, words.page_size
    for node in words.tree.walk():
        assert node.parent_id in seen
        assert node.id not in seen
        assert node.codes.dtype == node.slots.dtype == np.int32
        assert len(node.codes) == len(node.slots) > 0
        seen.add(node.id)
    nodes = words.nodes()
    assert {word: node.start // page for word, node in nodes.items()} == {
        "/ab": 0, "ab/cd": 2, "ab/xy": 2, "abxy/z": 4, "/q": 0
    }  # fmt: skip
    assert {word for word, node in nodes.items() if node.is_leaf} == {"ab/cd", "abxy/z", "/q"}
    assert all(words.read(node.slots) == word.split("/")[1] for word, node in nodes.items())
    assert len(seen) == words.tree.num_nodes + 1


def test_walk_goes_depth_first(words):
    for word in ("abcd", "abxy", "q", "abcdef", "qr"):
        words.insert(word)
    ancestors: list[int] = [0]
    for node in words.tree.walk():
        assert node.parent_id in ancestors, "its parent's subtree was left already"
        ancestors = [*ancestors[: ancestors.index(node.parent_id) + 1], node.id]


def test_what_walk_shows_cannot_be_written_into_the_tree(words):
    words.insert("abcd")
    words.insert("abx")
    words.evict(1)
    for tree in (words.tree, pickle.loads(pickle.dumps(words.tree))):
        before = snapshot(tree)
        for node in tree.walk():
            for shown in (node.codes, node.slots):
                with suppress(ValueError):
                    shown[:] = 7
        assert snapshot(tree) == before


def test_all_slots_come_in_walk_order(words):
    for word in ("abcd", "abxy", "q"):
        words.insert(word)
    slots = words.tree.all_slots()
    assert slots.dtype == np.int32
    assert slots.tolist() == [slot for node in words.tree.walk() for slot in node.slots.tolist()]
    assert len(slots) == words.tree.total_size


def test_all_slots_of_an_empty_tree(words):
    assert words.tree.all_slots().dtype == np.int32
    assert words.tree.all_slots().shape == (0,)
    assert list(words.tree.walk()) == []


def test_format_has_a_line_a_node(words):
    for word in ("abcd", "abxy", "q"):
        words.insert(word)
    head, *lines = format_tree(words.tree).splitlines()
    assert head == repr(words.tree)
    assert len(lines) == words.tree.num_nodes == 4
    indents = [len(line) - len(line.lstrip()) for line in lines]
    assert indents[0] < indents[1] == indents[2]
    assert sum("Namespace(" in line for line in lines) == 2


def test_format_stops_at_max_nodes(words):
    for letter in "abcdef":
        words.insert(letter)
    lines = format_tree(words.tree, max_nodes=2).splitlines()
    assert len(lines) == 1 + 2 + 1
    assert lines[-1] == "... 4 more nodes"
    assert len(format_tree(words.tree, max_nodes=0).splitlines()) == 2
    assert len(format_tree(words.tree, max_nodes=6).splitlines()) == 7


def test_repr_shows_what_and_how_much(words):
    words.insert("ab")
    handle = words.lock("a")
    text, page = repr(words.tree), words.page_size
    assert f"page_size={page}" in text
    assert "policy=lru" in text
    assert words.tree.core in text
    assert f"evictable={page} protected={page}" in text
    words.tree.dec_lock_ref(handle)


# ---- reset ----


def test_reset_gives_back_all_slots_and_starts_again(words):
    words.insert("abcd")
    words.insert("abxy")
    words.lock("abc")
    epoch, held = words.tree.epoch, words.tree.all_slots().tolist()
    slots = words.tree.reset()
    assert slots.dtype == np.int32
    assert sorted(slots.tolist()) == sorted(held)
    assert words.tree.epoch == epoch + 1
    assert (words.sizes(), words.tree.num_nodes, words.probe("abcd")) == ((0, 0), 0, "")
    assert words.evict(9) == ""
    words.insert("abq")
    assert words.probe("abcd") == "ab"
    assert words.evict(9) == "abq"


def test_reset_of_an_empty_tree(words):
    assert words.tree.reset().shape == (0,)


def test_every_handle_is_stale_after_reset(words):
    inserted = words.insert("ab").handle
    matched, nothing, locked = words.match("a").handle, words.match("x").handle, words.lock("ab")
    words.tree.reset()
    words.insert("ab")
    for handle in (inserted, matched, nothing, locked):
        with pytest.raises(StaleHandleError, match="epoch"):
            words.tree.inc_lock_ref(handle)
        with pytest.raises(StaleHandleError, match="epoch"):
            words.tree.dec_lock_ref(handle)
    assert words.sizes() == (2, 0)


# ---- pickling ----


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pickled_tree_comes_back_the_same(grow, policy):
    words = grow(policy)
    for word in ("abcd", "abxy", "q", "qrs", "abcd", "q"):
        words.insert(word, priority=len(word))
    words.insert("m", content=[(0, 1, b"image")])
    words.evict(2)
    words.match("abx")
    back = pickle.loads(pickle.dumps(words.tree))
    assert (back.page_size, back.policy, back.core) == (words.page_size, policy, words.tree.core)
    assert back.check_integrity() == []
    assert snapshot(back, without=("id", "parent_id")) == snapshot(
        words.tree, without=("id", "parent_id")
    )
    assert (back.num_nodes, back.total_size) == (words.tree.num_nodes, words.tree.total_size)
    for ids in (b"image", b"other"):
        asked = {"token_ids": words.key("m"), "content": [(0, 1, ids)]}
        assert back.probe(**asked) == words.tree.probe(**asked)
    for victims in (1, 2, 100):
        assert back.evict(victims).tolist() == words.tree.evict(victims).tolist()


def test_locks_and_handles_do_not_travel(words):
    words.insert("abcd")
    handle = words.lock("abc")
    back = pickle.loads(pickle.dumps(words.tree))
    assert (back.evictable_size, back.protected_size) == (len(words.key("abcd")), 0)
    for call in (back.inc_lock_ref, back.dec_lock_ref):
        with pytest.raises(StaleHandleError):
            call(handle)
    assert words.sizes() == (1, 3)
    words.tree.dec_lock_ref(handle)


@pytest.mark.parametrize("duplicate", [lambda t: pickle.loads(pickle.dumps(t)), copy, deepcopy])
def test_a_copy_of_a_tree_goes_its_own_way(words, duplicate):
    words.insert("abcd")
    words.insert("m", content=[(0, 1, b"image")])
    before = snapshot(words.tree)
    other = duplicate(words.tree)
    assert snapshot(other, without=("id", "parent_id")) == snapshot(
        words.tree, without=("id", "parent_id")
    )
    other.insert(words.key("abxy"), words.fresh_slots("abxy"))
    other.insert(words.key("n"), words.fresh_slots("n"), content=[(0, 1, b"other image")])
    other.evict(3 * words.page_size)
    assert other.check_integrity() == []
    assert snapshot(words.tree) == before
    assert words.tree.check_integrity() == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pickled_tree_goes_on_where_it_was(grow, policy):
    words = grow(policy)
    for word in ("abcd", "abxy", "q"):
        words.insert(word)
    back = pickle.loads(pickle.dumps(words.tree))
    back.track_changes()
    for tree in (words.tree, back):
        tree.match_prefix(words.key("abcd"))
        tree.insert(words.key("rs"), range(10_000, 10_000 + 2 * words.page_size))
        tree.insert(words.key("abx"), range(20_000, 20_000 + 3 * words.page_size))
    assert len(back.take_changes()) == 1
    assert len({node.run for node in back.walk()}) == 4
    assert (
        back.evict(2 * words.page_size).tolist() == words.tree.evict(2 * words.page_size).tolist()
    )
    assert back.evict(10**6).tolist() == words.tree.evict(10**6).tolist()
    assert back.check_integrity() == []


def test_an_empty_tree_pickles(words):
    back = pickle.loads(pickle.dumps(words.tree))
    assert (back.num_nodes, back.total_size) == (0, 0)


# ---- check_integrity ----


def test_integrity_sees_a_slot_held_twice(core):
    tree = new_tree(core=core)
    tree.insert([1, 2, 3], [11, 12, 13])
    assert tree.check_integrity() == []
    tree.insert([1, 2, 4], [11, 12, 13])
    (line,) = tree.check_integrity()
    assert "I1" in line
    assert "13" in line


def test_sizes_of_a_namespace_are_those_of_its_nodes(core):
    tree = new_tree(core=core)
    one, other = Namespace(salt="a"), Namespace(salt="b")
    tree.insert([1, 2, 3, 4], [1, 2, 3, 4], one)
    locked = tree.insert([1, 2, 9], [1, 2, 5], one)
    tree.inc_lock_ref(locked.handle)
    tree.insert([1, 2], [6, 7], other)
    for namespace in (one, other, Namespace(salt="c"), DEFAULT):
        nodes = [node for node in tree.walk() if node.namespace == namespace]
        assert tree.sizes_of(namespace) == (
            sum(len(node.codes) for node in nodes if not node.lock_ref),
            sum(len(node.codes) for node in nodes if node.lock_ref),
            len(nodes),
        )
    assert tree.sizes_of(one) == (2, 3, 3)
    with pytest.raises(InvalidNamespaceError):
        tree.sizes_of("a")
