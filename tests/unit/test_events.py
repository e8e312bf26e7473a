"""What a tree reports of itself: replayed from empty, it is exactly what is resident."""

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace
from radixkv.cache.events import Event
from radixkv.cache.runs import StoredRun, replay, runs_of
from radixkv.tree import Stored, Trimmed, format_tree
from tests.support.trees import Words

OTHER = Namespace(salt="other")


class Follower:
    """One who knows the events alone."""

    def __init__(self, words: Words) -> None:
        words.tree.track_changes()
        self.words = words
        self.runs: dict[int, StoredRun] = {}
        self.last: list[Stored | Trimmed] = []

    def follow(self) -> list[str]:
        """What happened since the last call: "ab+c" where c was stored, "ab-c" where it went."""
        self.last = list(self.words.tree.take_changes())
        said = []
        for change in self.last:
            if isinstance(change, Stored):
                above = self.word(change.parent_run, change.parent_offset)
                said.append(f"{above}+{self.words.spell(change.codes)}")
            else:
                before = self.word(change.run, len(self.runs[change.run].codes))
                kept = self.word(change.run, change.keep)
                said.append(f"{kept}-{before[len(kept) :]}")
            replay([Event(1, change)], self.runs)
        return said

    def word(self, run: int, offset: int) -> str:
        """The whole word from the root to `offset` tokens of a run."""
        word = ""
        while run:
            word = self.words.spell(self.runs[run].codes[:offset]) + word
            run, offset = self.runs[run].parent_run, self.runs[run].parent_offset
        return word

    def resident(self) -> set[tuple[Namespace, str]]:
        prefixes = set()
        for number, run in self.runs.items():
            word = self.word(number, len(run.codes))
            own = len(run.codes) // self.words.page_size
            prefixes |= {
                (run.namespace, word[:end]) for end in range(len(word) - own + 1, len(word) + 1)
            }
        return prefixes


@pytest.fixture
def follower(words):
    return Follower(words)


def resident(words):
    """Every prefix that the tree itself shows."""
    by_id = {0: ""}
    prefixes = set()
    for node in words.tree.walk():
        own = words.spell(node.codes)
        above = by_id[node.parent_id]
        by_id[node.id] = above + own
        prefixes |= {(node.namespace, above + own[: end + 1]) for end in range(len(own))}
    return prefixes


# ---- what the tree records ----


def test_nothing_is_recorded_unless_it_is_tracked(words):
    words.insert("ab")
    words.evict(1)
    assert not words.tree.take_changes()
    words.tree.track_changes()
    words.insert("abc")
    assert len(words.tree.take_changes()) == 1


def test_changes_are_taken_once(words):
    words.tree.track_changes()
    words.insert("ab")
    words.tree.track_changes()
    assert len(words.tree.take_changes()) == 1
    assert not words.tree.take_changes()


def test_an_insert_stores_what_was_not_there(follower, words):
    words.insert("abcd")
    assert follower.follow() == ["+abcd"]
    words.insert("abcdef")
    assert follower.follow() == ["abcd+ef"]
    words.insert("abx")
    assert follower.follow() == ["ab+x"]
    words.insert("abcd")
    words.insert("abc")
    words.insert("")
    assert follower.follow() == []


def test_what_looks_and_locks_is_no_change(follower, words):
    words.insert("abcd")
    follower.follow()
    words.match("abcd")
    words.probe("ab")
    words.tree.dec_lock_ref(words.lock("ab"))
    words.tree.check_integrity()
    format_tree(words.tree)
    assert follower.follow() == []


def test_a_split_is_no_change(follower, words):
    words.insert("abcd")
    words.insert("abx")
    assert follower.follow() == ["+abcd", "ab+x"]
    words.insert("a")
    words.lock("abc")
    assert follower.follow() == []
    assert follower.resident() == resident(words)


def test_an_eviction_trims_runs_from_their_end(follower, words):
    words.insert("abcd")
    words.insert("abxy")
    follower.follow()
    words.evict(1)
    assert follower.follow() == ["abc-d"]
    words.evict(2)
    assert follower.follow() == ["ab-c", "abx-y"]
    words.evict(10)
    assert follower.follow() == ["ab-x", "-ab"]
    assert follower.runs == {}


def test_what_is_stored_again_after_a_trim_is_a_new_run(follower, words):
    words.insert("abcd")
    words.evict(2)
    words.insert("abcd")
    assert follower.follow() == ["+abcd", "ab-cd", "ab+cd"]
    assert len(follower.runs) == 2
    assert follower.resident() == resident(words)


def test_a_part_page_is_not_announced(follower, words):
    key = words.key("abc")[:-1]
    words.tree.insert(key, range(1000, 1000 + len(key)))
    whole = "abc"[: len(key) // words.page_size]
    assert follower.follow() == [f"+{whole}"]


def test_runs_belong_to_their_namespace(follower, words):
    words.insert("ab")
    words.insert("ab", OTHER)
    words.insert("abc", OTHER)
    assert follower.follow() == ["+ab", "+ab", "ab+c"]
    assert [change.namespace for change in follower.last] == [DEFAULT, OTHER, OTHER]
    assert follower.resident() == resident(words)


def test_a_reset_drops_what_was_not_taken(follower, words):
    words.insert("abcd")
    words.tree.reset()
    assert not words.tree.take_changes()
    words.insert("ab")
    assert follower.follow() == ["+ab"]


def test_what_was_stored_before_tracking_is_known_by_its_run(words):
    words.insert("abcd")
    words.tree.track_changes()
    words.insert("abx")
    (stored,) = words.tree.take_changes()
    by_run = {node.run: node for node in words.tree.walk() if node.run_offset == 0}
    assert words.spell(by_run[stored.parent_run].codes) == "ab"
    assert stored.parent_offset == len(words.key("ab"))


def test_the_codes_of_a_change_are_its_own(words):
    words.tree.track_changes()
    ids = np.array(words.key("ab"), np.int32)
    words.tree.insert(ids, words.fresh_slots("ab"))
    (stored,) = words.tree.take_changes()
    ids[:] = 0
    words.evict(2)
    words.insert("xy")
    assert words.spell(stored.codes) == "ab"
    assert stored.codes.dtype == np.int32


def test_run_numbers_are_never_used_again_within_an_epoch(follower, words):
    seen: set[int] = set()
    for _ in range(20):
        words.insert("abcd")
        words.evict(4)
        follower.follow()
        runs = {change.run for change in follower.last if isinstance(change, Stored)}
        assert not runs & seen
        assert 0 not in runs
        seen |= runs


def test_replay_gives_exactly_what_is_resident(grow, rng):
    words = grow()
    follower, spaces = Follower(words), [DEFAULT, OTHER]
    for _ in range(400):
        word = "".join(rng.choice(list("ab"), rng.integers(1, 7)))
        if rng.random() < 0.6:
            words.insert(word, spaces[int(rng.integers(2))])
        else:
            words.evict(int(rng.integers(0, 6)))
        follower.follow()
        assert follower.resident() == resident(words)
        shown = runs_of(words.tree.walk())
        assert shown.keys() == follower.runs.keys()
        for number, run in shown.items():
            known = follower.runs[number]
            assert run.codes.tolist() == known.codes.tolist()
            assert (run.parent_run, run.parent_offset, run.namespace) == (
                known.parent_run, known.parent_offset, known.namespace
            )  # fmt: skip
