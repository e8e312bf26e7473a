"""Namespaces: compared field by field, never joined, and gone with their last token."""

import copy
import gc
import pickle
import sys
from dataclasses import FrozenInstanceError
from itertools import combinations

import pytest

from radixkv import DEFAULT, Namespace, new_tree
from radixkv.errors import InvalidNamespaceError
from tests.support.trees import snapshot

# Any two of these are different namespaces, however they look when written in a row.
APART = [
    Namespace(),
    Namespace(salt=""),
    Namespace(salt="None"),
    Namespace(adapter=""),
    Namespace(extra_key=""),
    Namespace(salt="ab", adapter="c"),
    Namespace(salt="a", adapter="bc"),
    Namespace(salt="abc"),
    Namespace(adapter="abc"),
    Namespace(extra_key="abc"),
    Namespace(salt="abc", adapter=""),
    Namespace(salt="", adapter="abc"),
    Namespace(salt="a\0b"),
    Namespace(salt="a", adapter="b"),
    Namespace(salt="1"),
    Namespace(weight_version=1),
    Namespace(weight_version=2**64 - 1),
    Namespace(salt="abc", weight_version=1),
    Namespace(salt="(None, 'abc', None, 0)"),
    Namespace(salt="é"),
    Namespace(salt="e\u0301"),
    Namespace(salt="\ud800"),
]


def test_no_two_namespaces_are_taken_for_one():
    assert all(a != b for a, b in combinations(APART, 2))
    assert len(set(APART)) == len(APART)


def test_no_two_namespaces_share_a_token(words):
    for space in APART:
        assert words.insert("ab", space).prefix_length == 0
    own = [words.match("ab", space).slots.tolist() for space in APART]
    assert len({tuple(slots) for slots in own}) == len(APART)
    assert all(words.probe("abc", space) == "ab" for space in APART)
    assert words.sizes() == (2 * len(APART), 0)
    assert {node.namespace for node in words.tree.walk()} == set(APART)


def test_equal_namespaces_are_one(words):
    words.insert("ab", Namespace(salt="t", adapter="l", extra_key="e", weight_version=3))
    same = Namespace("t", "l", "e", 3)
    assert words.probe("ab", same) == "ab"
    assert words.tree.probe_batch([words.key("ab")], same) == [len(words.key("ab"))]
    assert words.probe("ab") == ""


def test_the_default_namespace_has_no_field_set():
    assert Namespace() == DEFAULT
    assert (DEFAULT.salt, DEFAULT.adapter, DEFAULT.extra_key, DEFAULT.weight_version) == (
        None, None, None, 0
    )  # fmt: skip


def test_a_namespace_is_frozen():
    with pytest.raises(FrozenInstanceError):
        DEFAULT.salt = "x"


@pytest.mark.parametrize("space", APART, ids=str)
def test_a_namespace_survives_copies(space):
    assert pickle.loads(pickle.dumps(space)) == space
    assert copy.deepcopy(space) == copy.copy(space) == space


@pytest.mark.parametrize("field", ["salt", "adapter", "extra_key"])
@pytest.mark.parametrize("value", [b"x", 0, False, 1.5, ["x"], ("x",), object()])
def test_a_field_of_another_type_is_named(field, value):
    with pytest.raises(InvalidNamespaceError, match=f"namespace {field} must be ") as caught:
        Namespace(**{field: value})
    assert caught.value.details == {"field": field}


@pytest.mark.parametrize("version", [-1, 2**64, 1.0, "1", None, True, b"1"])
def test_a_weight_version_out_of_range_is_named(version):
    with pytest.raises(InvalidNamespaceError, match="weight_version must be ") as caught:
        Namespace(weight_version=version)
    assert caught.value.details == {"field": "weight_version"}


@pytest.mark.parametrize("thing", [None, "tenant", b"tenant", 0, ("ab", None, None, 0), [1, 2], {}])
def test_a_tree_takes_nothing_else_for_a_namespace(words, thing):
    words.insert("ab")
    before, key = snapshot(words.tree), words.key("abc")
    for call in (
        lambda: words.tree.match_prefix(key, thing),
        lambda: words.tree.probe(key, thing),
        lambda: words.tree.probe_batch([key], thing),
        lambda: words.tree.insert(key, words.fresh_slots("abc"), thing),
        lambda: words.tree.insert(key, words.fresh_slots("abc"), thing, content=[(0, 1, b"x")]),
    ):
        with pytest.raises(InvalidNamespaceError, match="namespace"):
            call()
    assert snapshot(words.tree) == before


def test_looking_in_a_namespace_that_is_not_there_makes_none(words):
    for at in range(20):
        words.match("ab", Namespace(salt=str(at)))
        words.insert("", Namespace(salt=str(at)))
    assert list(words.tree.walk()) == []
    assert words.tree.num_nodes == 0


@pytest.mark.parametrize("by", ["evict", "reset"])
def test_thousands_of_namespaces_come_and_go_without_a_trace(core, by):
    tree = new_tree(core=core)

    def visit(wave: int) -> None:
        for at in range(3_000):
            tree.insert([1, 2], [2 * at, 2 * at + 1], Namespace(salt=f"{wave}/{at}"))
        assert tree.num_nodes == 3_000
        assert len({node.namespace for node in tree.walk()}) == 3_000
        freed = tree.evict(6_000) if by == "evict" else tree.reset()
        assert len(freed) == 6_000
        assert tree.num_nodes == 0

    visit(0)
    gc.collect()
    before = sys.getallocatedblocks()
    visit(1)
    visit(2)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1_000


def test_a_namespace_that_comes_back_begins_empty(words):
    space = Namespace(salt="t")
    words.insert("ab", space)
    words.evict(2)
    assert words.probe("ab", space) == ""
    assert words.insert("ab", space).prefix_length == 0
    assert words.probe("ab", space) == "ab"


def test_a_locked_namespace_stays_when_all_others_go(words):
    spaces = [Namespace(salt=str(at)) for at in range(5)]
    for space in spaces:
        words.insert("ab", space)
    words.tree.inc_lock_ref(words.match("a", spaces[2]).handle)
    words.evict(100)
    assert [words.probe("ab", space) for space in spaces] == ["", "", "a", "", ""]
