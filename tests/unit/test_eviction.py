"""How much is evicted, where, and in which order."""

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace, new_tree
from radixkv.errors import InvalidArgumentError
from radixkv.tree import POLICIES
from radixkv.tree.content import ContentTable
from radixkv.tree.factory import new_tickets
from radixkv.tree.shares import Share
from tests.support.oracle_tree import OracleTree
from tests.support.trees import CORES, snapshot

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


# What is done (+ab inserts, +ab:3 with priority 3, +ab~ as a chunk; ?ab matches, =ab probes), then
# the letters in the order in which they go.
ORDERS = {
    "lru: what was touched longest ago": ("lru", "+a +b +c +d ?a =b +c", "bdac"),
    "lru: a match in part does not save the node": ("lru", "+abc +q ?ab", "cbaq"),
    "lru: a chunk refreshes too": ("lru", "+ab +q +ab~", "qba"),
    "mru: the latest": ("mru", "+a +b +c ?a", "acb"),
    "fifo: the first made, whatever was used": ("fifo", "+a +b +c +a ?a", "abc"),
    "fifo: both halves of a split are as old as the whole": ("fifo", "+ab +x +a", "bax"),
    "filo: the last made, whatever was used": ("filo", "+a +b +c +a ?b", "cba"),
    "lfu: what was inserted least": ("lfu", "+a +b +c +a +b +a ?c ?c", "cba"),
    "lfu: the older of equals": ("lfu", "+a +b +c ?a", "bca"),
    "slru: what was inserted twice goes last": ("slru", "+a +b +c +d +a +b +b ?c", "dcab"),
    "priority: the lowest, the older of equals": (
        "priority", "+a:1 +b:0 +c:-1 +d:0 +e:2 +f:-1 ?b", "cfdbae"
    ),
    "hits_per_token: the longest of equal hits, until trims make it the shortest": (
        "hits_per_token", "+abcd +xyz +q", "dczbyaxq"
    ),
    "hits_per_token: the fewest hits of equal lengths": ("hits_per_token", "+ab +xy +ab", "ybxa"),
    "hits_per_token: the older of equals": ("hits_per_token", "+a +b +c ?a", "bca"),
    "hits_per_token: a chunk is no hit": ("hits_per_token", "+ab +xy~ +p~ +ab~", "yxpba"),
    "hits_per_token: both halves of a split are worth more": (
        "hits_per_token", "+abcd +pqr +ab", "rdqcbpa"
    ),
}  # fmt: skip


def play(words, script):
    for step in script.split():
        what, word, chunked = step[0], step[1:].rstrip("~"), step.endswith("~")
        word, _, priority = word.partition(":")
        if what == "+":
            words.insert(word, priority=int(priority or 0), chunked=chunked)
        else:
            {"?": words.match, "=": words.probe}[what](word)


@pytest.mark.parametrize(("policy", "script", "order"), ORDERS.values(), ids=ORDERS)
def test_what_goes_first(grow, policy, script, order):
    words = grow(policy)
    play(words, script)
    assert words.evict_one_by_one() == order


def test_every_policy_has_an_order_in_the_table():
    assert {policy for policy, _, _ in ORDERS.values()} | {"adaptive"} == POLICIES.keys()


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


NUMBERS = {
    "a priority rises along the path": (
        "priority", "+abcd:1 +abxy:3", {"/ab": 3, "ab/cd": 1, "ab/xy": 3}
    ),
    "a priority never falls": (
        "priority", "+abcd:1 +abxy:3 +abcd:2 +abxyz:-5",
        {"/ab": 3, "ab/cd": 2, "ab/xy": 3, "abxy/z": -5},
    ),
    "a split keeps the priority below": ("priority", "+abcd:5 +ab:1", {"/ab": 5, "ab/cd": 5}),
    "a chunk raises the priority": ("priority", "+ab +ab:4~", {"/ab": 4}),
    "hits count inserts through a node": (
        "hit_count", "+abcd +abxy +ab ?abcd", {"/ab": 3, "ab/cd": 1, "ab/xy": 1}
    ),
    "chunks are no hits": ("hit_count", "+ab~ +abcd~", {"/ab": 0, "ab/cd": 0}),
    "chunks of a key count once": (
        "hit_count", "+ab~ +abcd~ +abcdef", {"/ab": 1, "ab/cd": 1, "abcd/ef": 1}
    ),
}  # fmt: skip


@pytest.mark.parametrize(("number", "script", "by_node"), NUMBERS.values(), ids=NUMBERS)
def test_what_a_policy_reads_of_a_node(words, number, script, by_node):
    play(words, script)
    assert {word: getattr(node, number) for word, node in words.nodes().items()} == by_node


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


# ---- memory ----


def evict_to(tree):
    tickets = new_tickets(16, tree.core)
    tickets.take(16)
    found = tree.evict_to(tickets, 4, 0)
    assert tickets.free_size == len(found)
    return found


@pytest.mark.skipif("native" not in CORES, reason="the native core is not built")
@pytest.mark.parametrize(
    "evict",
    [lambda tree: tree.evict(4), lambda tree: tree.evict_below([]),
     lambda tree: tree.evict_beyond_caps(), evict_to],
    ids=["evict", "evict_below", "evict_beyond_caps", "evict_to"],
)  # fmt: skip
def test_slots_come_back_where_memory_runs_out_once_they_are_evicted(monkeypatch, evict):
    """What the content of the evicted tokens needs is released at the next eviction."""
    tree = new_tree(core="native", shares={None: Share(cap=0)})
    tree.insert([7, 7, 1, 2], [4, 5, 6, 7], content=[(0, 2, b"image")])

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as failing:
        failing.setattr(ContentTable, "release", fail)
        assert sorted(evict(tree)) == [4, 5, 6, 7]
        tree.insert([8, 8], [2, 3], content=[(0, 2, b"sound")])
        assert sorted(tree.evict(2)) == [2, 3]
    assert tree.total_size == 0
    assert tree.check_integrity() == []
    tree.insert([7, 7, 1, 2], [4, 5, 6, 7], content=[(0, 2, b"image")])
    assert sorted(tree.evict(4)) == [4, 5, 6, 7]
    assert tree.check_integrity() == []
