"""Handles and locks: what they protect, when they are stale, and that they never lie."""

import gc
import weakref

import pytest

from radixkv import Namespace, new_tree
from radixkv.errors import NotLockedError, StaleHandleError
from radixkv.tree import POLICIES
from tests.support.trees import snapshot

OTHER = Namespace(salt="other")


def lock_refs(words):
    return {word: node.lock_ref for word, node in words.nodes().items()}


# ---- what is protected ----


def test_a_lock_protects_exactly_the_handles_tokens(words):
    words.insert("abcdef")
    handle = words.lock("abc")
    assert words.sizes() == (3, 3)
    assert words.evict(100) == "def"
    assert words.evict(1) == ""
    words.tree.dec_lock_ref(handle)
    assert words.evict(100) == "abc"


def test_a_lock_splits_the_node_that_it_ends_in(words):
    words.insert("abcd")
    handle = words.match("ab").handle
    assert set(words.nodes()) == {"/abcd"}
    words.tree.inc_lock_ref(handle)
    assert lock_refs(words) == {"/ab": 1, "ab/cd": 0}
    words.tree.dec_lock_ref(handle)
    assert lock_refs(words) == {"/ab": 0, "ab/cd": 0}


def test_a_lock_at_the_end_of_a_node_splits_nothing(words):
    words.insert("ab")
    words.insert("abcd")
    words.tree.inc_lock_ref(words.match("ab").handle)
    words.tree.inc_lock_ref(words.match("abcdx").handle)
    assert lock_refs(words) == {"/ab": 2, "ab/cd": 1}


def test_locks_count_along_the_whole_path(words):
    for word in ("ab", "abcd", "abcdef", "abx"):
        words.insert(word)
    deep, shallow = words.lock("abcdef"), words.lock("ab")
    assert lock_refs(words) == {"/ab": 2, "ab/cd": 1, "abcd/ef": 1, "ab/x": 0}
    words.tree.dec_lock_ref(deep)
    assert lock_refs(words) == {"/ab": 1, "ab/cd": 0, "abcd/ef": 0, "ab/x": 0}
    words.tree.dec_lock_ref(shallow)
    assert set(lock_refs(words).values()) == {0}


def test_a_handle_locked_twice_is_unlocked_twice(words):
    words.insert("ab")
    handle = words.lock("ab")
    words.tree.inc_lock_ref(handle)
    assert lock_refs(words) == {"/ab": 2}
    words.tree.dec_lock_ref(handle)
    assert words.evict(2) == ""
    words.tree.dec_lock_ref(handle)
    with pytest.raises(NotLockedError, match="inc_lock_ref"):
        words.tree.dec_lock_ref(handle)
    assert words.evict(2) == "ab"


def test_handles_of_the_same_tokens_are_locked_apart(words):
    words.insert("ab")
    first, second = words.match("ab").handle, words.match("ab").handle
    words.tree.inc_lock_ref(first)
    with pytest.raises(NotLockedError):
        words.tree.dec_lock_ref(second)
    assert words.sizes() == (0, 2)
    words.tree.dec_lock_ref(first)
    assert words.sizes() == (2, 0)


def test_the_handle_of_an_insert_locks_the_whole_key(words):
    handle = words.insert("abcd").handle
    words.insert("abx")
    words.tree.inc_lock_ref(handle)
    assert lock_refs(words) == {"/ab": 1, "ab/cd": 1, "ab/x": 0}


def test_a_lock_in_one_namespace_protects_nothing_in_another(words):
    words.insert("ab")
    words.insert("ab", OTHER)
    handle = words.match("ab", OTHER).handle
    words.tree.inc_lock_ref(handle)
    kept = words.match("ab", OTHER).slots.tolist()
    words.evict(100)
    assert words.tree.all_slots().tolist() == kept


def test_a_lock_that_was_undone_a_hundred_times_is_undone(words):
    words.insert("abc")
    for _ in range(100):
        handle = words.match("abcd").handle
        words.tree.inc_lock_ref(handle)
        words.tree.dec_lock_ref(handle)
    assert words.sizes() == (3, 0)
    assert words.evict(3) == "abc"


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_locked_is_never_evicted_under_any_policy(grow, policy):
    words = grow(policy)
    for word in ("abcd", "abxy", "q"):
        words.insert(word)
    words.lock("abx")
    words.lock("q")
    assert sorted(words.evict(100)) == sorted("cdy")
    assert words.evict(1) == ""


def test_unlocking_makes_a_leaf_evictable_again(words):
    words.insert("ab")
    words.insert("abcd")
    outer, inner = words.lock("ab"), words.lock("abcd")
    words.tree.dec_lock_ref(outer)
    assert words.evict(10) == ""
    words.tree.dec_lock_ref(inner)
    assert words.evict(10) == "cdab"


# ---- nothing to lock ----


def test_a_handle_of_no_tokens_locks_nothing(words):
    words.insert("ab")
    for handle in (
        words.match("").handle,
        words.match("x").handle,
        words.tree.insert([], []).handle,
    ):
        assert handle.length == 0
        words.tree.inc_lock_ref(handle)
        assert words.sizes() == (2, 0)
        words.tree.dec_lock_ref(handle)
        with pytest.raises(NotLockedError):
            words.tree.dec_lock_ref(handle)


def test_a_handle_of_no_tokens_outlives_all_that_is_evicted(words):
    handle = words.match("ab").handle
    words.insert("ab")
    words.evict(2)
    words.tree.inc_lock_ref(handle)
    words.tree.dec_lock_ref(handle)


# ---- splits around a handle ----


def test_a_handle_stays_good_whatever_is_split_around_it(words):
    words.insert("abcdef")
    handles = {word: words.match(word).handle for word in ("a", "abc", "abcde", "abcdef")}
    for word in ("abcdx", "abx", "abcdex", "ax"):
        words.insert(word)
    for word, handle in handles.items():
        words.tree.inc_lock_ref(handle)
        assert words.sizes()[1] == len(word)
        words.tree.dec_lock_ref(handle)


def test_both_halves_of_a_split_inherit_the_lock(words):
    words.insert("abcd")
    handle = words.lock("abcd")
    words.insert("abx")
    assert lock_refs(words) == {"/ab": 1, "ab/cd": 1, "ab/x": 0}
    words.lock("a")
    assert lock_refs(words) == {"/a": 2, "a/b": 1, "ab/cd": 1, "ab/x": 0}
    assert words.sizes() == (1, 4)
    words.tree.dec_lock_ref(handle)
    assert lock_refs(words) == {"/a": 1, "a/b": 0, "ab/cd": 0, "ab/x": 0}


def test_an_unlocked_handle_can_be_locked_again_after_splits(words):
    words.insert("abcd")
    handle = words.lock("abc")
    words.tree.dec_lock_ref(handle)
    words.insert("ax")
    words.tree.inc_lock_ref(handle)
    assert lock_refs(words) == {"/a": 1, "a/bc": 1, "abc/d": 0, "a/x": 0}


def test_a_handle_stays_good_when_the_rest_of_its_node_is_trimmed(words):
    words.insert("abcd")
    handle = words.match("ab").handle
    assert words.evict(2) == "cd"
    words.tree.inc_lock_ref(handle)
    assert words.evict(2) == ""


def test_a_handle_stays_good_when_the_rest_of_its_node_is_split_off_and_evicted(words):
    words.insert("abcd")
    handle = words.match("ab").handle
    words.insert("abcx")
    words.lock("abcx")
    assert words.evict(10) == "d"
    words.tree.inc_lock_ref(handle)
    assert lock_refs(words) == {"/ab": 2, "ab/c": 1, "abc/x": 1}
    words.tree.dec_lock_ref(handle)


def test_a_handle_finds_its_tokens_through_any_number_of_evicted_nodes(words):
    words.insert("abcdef")
    handles = {word: words.match(word).handle for word in ("ab", "abcd")}
    for word in ("abcdex", "abcx", "abx"):
        words.insert(word)
    words.lock("ab")
    words.evict(100)
    with pytest.raises(StaleHandleError):
        words.tree.inc_lock_ref(handles["abcd"])
    words.tree.inc_lock_ref(handles["ab"])
    assert lock_refs(words) == {"/ab": 2}


# ---- stale handles ----


def test_a_handle_of_another_tree_is_refused(words, core):
    words.insert("ab")
    twin = new_tree(words.page_size, core=core)
    twin.insert(words.key("ab"), words.fresh_slots("ab"))
    handle = twin.match_prefix(words.key("ab")).handle
    twin.inc_lock_ref(handle)
    for call in (words.tree.inc_lock_ref, words.tree.dec_lock_ref):
        with pytest.raises(StaleHandleError, match="a Handle of this tree; got one of another"):
            call(handle)
    assert words.sizes() == (2, 0)
    assert twin.protected_size == 2 * words.page_size


@pytest.mark.parametrize("thing", [None, 3, "handle", object()])
def test_what_is_no_handle_is_refused(words, thing):
    words.insert("ab")
    for call in (words.tree.inc_lock_ref, words.tree.dec_lock_ref):
        with pytest.raises(StaleHandleError):
            call(thing)


def test_a_handle_of_a_tree_that_is_gone_is_refused(words, core):
    tree = new_tree(words.page_size, core=core)
    handle = tree.insert(words.key("ab"), words.fresh_slots("ab")).handle
    del tree
    gc.collect()
    with pytest.raises(StaleHandleError):
        words.tree.inc_lock_ref(handle)


def test_a_handle_of_evicted_tokens_is_refused(words):
    words.insert("ab")
    handle = words.match("ab").handle
    words.evict(2)
    for call in (words.tree.inc_lock_ref, words.tree.dec_lock_ref):
        with pytest.raises(StaleHandleError, match="evicted"):
            call(handle)


def test_a_handle_of_trimmed_tokens_is_refused(words):
    words.insert("abcd")
    whole, part = words.match("abcd").handle, words.match("abc").handle
    words.evict(1)
    with pytest.raises(StaleHandleError, match="evicted"):
        words.tree.inc_lock_ref(whole)
    words.tree.inc_lock_ref(part)


def test_evicted_tokens_that_come_back_do_not_wake_an_old_handle(words):
    words.insert("abcd")
    handle = words.match("abcd").handle
    words.evict(1)
    words.insert("abcd")
    with pytest.raises(StaleHandleError):
        words.tree.inc_lock_ref(handle)
    words.evict(100)
    words.insert("abcd")
    with pytest.raises(StaleHandleError):
        words.tree.inc_lock_ref(handle)


def test_a_refused_lock_changes_nothing(words):
    words.insert("abcd")
    handle = words.match("abcd").handle
    words.evict(1)
    before = snapshot(words.tree)
    with pytest.raises(StaleHandleError):
        words.tree.inc_lock_ref(handle)
    assert snapshot(words.tree) == before


def test_an_unlock_that_was_never_locked_is_refused(words):
    handle = words.insert("ab").handle
    with pytest.raises(NotLockedError):
        words.tree.dec_lock_ref(handle)
    assert words.sizes() == (2, 0)


def test_the_epoch_of_a_stale_handle_is_named(words):
    handle = words.insert("ab").handle
    old = words.tree.epoch
    words.tree.reset()
    with pytest.raises(StaleHandleError) as caught:
        words.tree.inc_lock_ref(handle)
    assert caught.value.details["epoch"] == words.tree.epoch
    assert str(old) in str(caught.value)
    assert str(words.tree.epoch) in str(caught.value)


# ---- the lives of handles and trees ----


def test_a_locked_handle_protects_without_a_reference_to_it(words):
    words.insert("ab")
    words.tree.inc_lock_ref(words.match("ab").handle)
    gc.collect()
    assert words.evict(2) == ""
    assert words.tree.check_integrity() == []


def test_handles_dropped_unlocked_leave_nothing_behind(words):
    words.insert("abcd")
    for _ in range(50):
        words.tree.inc_lock_ref(handle := words.match("ab").handle)
        words.tree.dec_lock_ref(handle)
        del handle
    gc.collect()
    assert words.tree.check_integrity() == []
    assert words.sizes() == (4, 0)


def test_a_tree_goes_when_its_user_lets_go(core):
    class Tagged:
        """What a caller hangs on a tree."""

    tree = new_tree(core=core)
    handle = tree.insert([1, 2], [1, 2]).handle
    tree.inc_lock_ref(handle)
    tree.tag = Tagged()
    gone = weakref.ref(tree.tag)
    del tree, handle
    gc.collect()
    assert gone() is None
