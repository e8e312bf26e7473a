"""The tree against the oracle: every call, every victim in order, every event, after every step.

Three symbols and sixteen slots (eight pages of four), so that splits, duplicates, trims and reuse
happen within ten steps.
"""

import pickle
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from radixkv import DEFAULT, Namespace, new_tree
from radixkv.cache.events import Event
from radixkv.cache.runs import Runs, replay, runs_of
from radixkv.errors import InvalidArgumentError, NotLockedError, StaleHandleError
from radixkv.tree import Handle, Stored
from radixkv.tree.radix_tree import TreeCheck
from radixkv.tree.shares import Share, Shares
from tests.support.oracle_shares import OracleShares
from tests.support.oracle_tree import FIRST_OUT, OracleHandle, OracleTree, symbols
from tests.support.trees import CORES, snapshot

NUM_SLOTS = {1: 16, 4: 32}
# What a letter is at each page size; two pages that begin alike are still two edges.
PAGES: dict[int, list[tuple[int, ...]]] = {
    1: [(0,), (1,), (2,)],
    4: [(0, 1, 2, 0), (0, 1, 2, 1), (2, 2, 2, 2)],
}
# Most prompts share the first, so that they meet.
SPACES = [DEFAULT, DEFAULT, DEFAULT, Namespace(salt=""), Namespace(adapter="lora")]
# One of them is often at its cap, or below its reserve.
SHARES: list[Shares] = [
    {},
    {"": Share(reserve=4)},
    {"": Share(cap=3), None: Share(reserve=6)},
    {None: Share(reserve=2, cap=7), "": Share(reserve=1, cap=5)},
]
FORMS = [
    list,
    tuple,
    lambda ids: np.array(ids, np.int32),
    lambda ids: np.array(ids, np.int64),
    lambda ids: array("i", ids),
    lambda ids: np.array(ids, "<i4").tobytes(),
]


@dataclass(frozen=True)
class Prompt:
    """Letters and a part of a page, in a namespace; spans are (gap before, length, id)."""

    space: Namespace
    letters: str
    tail: int
    spans: list[tuple[int, int, bytes]]
    form: Any

    def token_ids(self, page_size: int) -> list[int]:
        whole = [token for letter in self.letters for token in PAGES[page_size][int(letter)]]
        return [*whole, *PAGES[page_size][0][: self.tail % page_size]]

    def content(self, length: int) -> list[tuple[int, int, bytes]]:
        spans, start = [], 0
        for gap, size, id_ in self.spans:
            start += gap
            if start < length:
                spans.append((start, min(size, length - start), id_))
            start += size
        return spans


prompts = st.builds(
    Prompt,
    st.sampled_from(SPACES),
    st.text("012", min_size=1, max_size=7) | st.sampled_from(["", "00112", "0011202", "00120"]),
    st.integers(0, 3),
    st.just([])
    | st.just([])
    | st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from([b"x", b"y"])), max_size=3
    ),
    st.sampled_from(FORMS),
)


@dataclass
class Held:
    """A handle as both sides know it."""

    real: Handle
    oracle: OracleHandle
    life: int
    locks: int = 0


class TreeMachine(RuleBasedStateMachine):
    handles = Bundle("handles")

    @initialize(
        page_size=st.sampled_from(sorted(PAGES)),
        policy=st.sampled_from(sorted(FIRST_OUT)),
        core=st.sampled_from(CORES),
        shares=st.sampled_from(SHARES),
        first=st.lists(prompts, min_size=2, max_size=4),
    )
    def begin(
        self, page_size: int, policy: str, core: str, shares: Shares, first: list[Prompt]
    ) -> None:
        self.page_size, self.shares = page_size, OracleShares(shares, page_size)
        self.tree = new_tree(page_size, policy, core, shares)
        self.tree.track_changes()
        self.policy = policy
        self.pool = range(page_size, NUM_SLOTS[page_size] + page_size)
        self.life = 0
        self.begin_again()
        self.done: TreeCheck | None = None
        self.going: TreeCheck | None = None
        for prompt in first:
            self.insert(prompt, own=False, priority=0, chunked=False)
            self.follow_changes()

    def begin_again(self) -> None:
        self.life += 1
        self.oracle = OracleTree(self.page_size, self.policy, self.shares)
        self.free = list(self.pool)
        self.runs: Runs = {}
        self.meaning: dict[int, Any] = {}
        self.inserted: tuple[Namespace, tuple] | None = None

    def ask(self, prompt: Prompt, length: int | None = None):
        """The arguments of a call, and what the oracle calls the same."""
        ids = prompt.token_ids(self.page_size)[:length]
        content = prompt.content(len(ids))
        return prompt.form(ids), content, symbols(ids, content)

    # ---- looking ----

    @rule(target=handles, prompt=prompts)
    def match(self, prompt: Prompt) -> Held:
        ids, content, key = self.ask(prompt)
        before = snapshot(self.tree, without=("recency",))
        match = self.tree.match_prefix(ids, prompt.space, content=content)
        assert match.slots.tolist() == self.oracle.match(prompt.space, key)
        assert match.length == len(match.slots) == match.handle.length
        assert snapshot(self.tree, without=("recency",)) == before
        return Held(match.handle, self.oracle.handle(prompt.space, key[: match.length]), self.life)

    @rule(asked=st.lists(prompts, max_size=3))
    def probe(self, asked: list[Prompt]) -> None:
        before = snapshot(self.tree)
        for prompt in asked:
            ids, content, key = self.ask(prompt)
            found = self.oracle.match(prompt.space, key, touch=False)
            assert self.tree.probe(ids, prompt.space, content=content) == len(found)
        texts = [symbols(prompt.token_ids(self.page_size)) for prompt in asked]
        assert self.tree.probe_batch(texts) == [
            len(self.oracle.match(DEFAULT, text, touch=False)) for text in texts
        ]
        assert snapshot(self.tree) == before

    # ---- changing ----

    @rule(
        target=handles,
        prompt=prompts,
        own=st.booleans(),
        priority=st.integers(-1, 2),
        chunked=st.booleans(),
    )
    def insert(self, prompt: Prompt, own: bool, priority: int, chunked: bool) -> Held:
        """As an engine does: the tree's slots for what it holds (or own), room for the rest."""
        shared = self.make_room(prompt, own)
        part = prompt.tail % self.page_size
        ids, content, key = self.ask(prompt, len(shared) + len(self.free) + part)
        whole = len(key) - len(key) % self.page_size
        fresh, self.free = self.free[: whole - len(shared)], self.free[whole - len(shared) :]
        slots = [*shared, *fresh]
        found = self.oracle.match(prompt.space, key, touch=False)
        result = self.tree.insert(
            ids,
            slots + [0] * (len(key) - whole),
            prompt.space,
            content=content,
            priority=priority,
            chunked=chunked,
        )
        there = self.oracle.insert(prompt.space, key, slots, priority, hit=not chunked)
        assert (result.prefix_length, result.slots.tolist()) == (there, found)
        assert result.handle.length == whole
        self.free += slots[len(shared) : there]
        self.inserted = (prompt.space, key[:whole])
        return Held(result.handle, self.oracle.handle(prompt.space, key[:whole]), self.life)

    def make_room(self, prompt: Prompt, own: bool) -> list[int]:
        """Evict what an insert needs; the slots of the tree that it then comes with."""
        key = self.ask(prompt)[2]
        whole = len(key) - len(key) % self.page_size
        held = 0 if own else len(self.oracle.match(prompt.space, key, touch=False))
        self.evict(max(whole - held - len(self.free), 0), prompt.space, whole)
        return [] if own else self.oracle.match(prompt.space, key, touch=False)

    @rule(
        num_tokens=st.integers(0, 3) | st.integers(0, 6) | st.integers(0, 40),
        space=st.none() | st.sampled_from(SPACES),
        wanted=st.integers(0, 6),
    )
    def evict(self, num_tokens: int, space: Namespace | None, wanted: int) -> None:
        slots = self.tree.evict(num_tokens, space, wanted=wanted).tolist()
        assert slots == self.oracle.evict(num_tokens, space, wanted)
        self.free += slots

    @rule()
    def evict_beyond_caps(self) -> None:
        slots = self.tree.evict_beyond_caps().tolist()
        assert slots == self.oracle.evict_beyond_caps()
        self.free += slots

    @rule(prompt=prompts, length=st.integers(0, 5))
    def evict_below(self, prompt: Prompt, length: int) -> None:
        ids, content, key = self.ask(prompt, length * self.page_size)
        if len(key) % self.page_size:
            with pytest.raises(InvalidArgumentError, match="whole pages"):
                self.tree.evict_below(ids, prompt.space, content=content)
            return
        slots = self.tree.evict_below(ids, prompt.space, content=content).tolist()
        assert sorted(slots) == sorted(self.oracle.evict_below(prompt.space, key))
        self.free += slots

    @rule(held=handles)
    def lock(self, held: Held) -> None:
        if held.life != self.life or not self.oracle.is_good(held.oracle):
            with pytest.raises(StaleHandleError):
                self.tree.inc_lock_ref(held.real)
            return
        self.tree.inc_lock_ref(held.real)
        self.oracle.lock(held.oracle)
        held.locks += 1

    @rule(held=handles)
    def unlock(self, held: Held) -> None:
        if held.life != self.life or not self.oracle.is_good(held.oracle):
            with pytest.raises(StaleHandleError):
                self.tree.dec_lock_ref(held.real)
        elif not held.locks:
            with pytest.raises(NotLockedError):
                self.tree.dec_lock_ref(held.real)
        else:
            self.tree.dec_lock_ref(held.real)
            self.oracle.unlock(held.oracle)
            held.locks -= 1

    @rule(sure=st.sampled_from([False] * 9 + [True]))
    def reset(self, sure: bool) -> None:
        if not sure:  # rare, or nothing ever grows
            return
        resident = [slot for node in self.oracle.nodes.values() for slot in node.slots]
        epoch = self.tree.epoch
        assert sorted(self.tree.reset().tolist()) == sorted(resident)
        assert self.tree.epoch != epoch
        self.begin_again()

    @rule()
    def pickle_and_back(self) -> None:
        """What comes back is the same tree without its locks, and refuses the old one's handles."""
        self.check()
        before = snapshot(self.tree, without=("id", "parent_id", "lock_ref"))
        self.tree = pickle.loads(pickle.dumps(self.tree))
        assert snapshot(self.tree, without=("id", "parent_id", "lock_ref")) == before
        self.tree.track_changes()
        self.done = self.going = None
        self.oracle.locks.clear()
        self.life += 1

    # ---- what holds after every step ----

    @invariant()
    def check_on(self) -> None:
        """A check that goes on from step to step reports nothing; one that is done goes on to know
        which slots are held.
        """
        end = max(self.pool) + 1
        try:
            if self.going is None or self.going.is_done:
                self.done, self.going = self.going, self.tree.begin_check(end)
            assert self.going.take(1) == []
            if self.done is not None:
                held = np.flatnonzero(self.done.marks(0, end))
                assert held.tolist() == sorted(self.tree.all_slots().tolist())
        except StaleHandleError:  # a reset
            self.done = self.going = None

    @invariant()
    def check(self) -> None:
        assert self.tree.check_integrity() == []
        self.follow_changes()
        assert (self.tree.evictable_size, self.tree.protected_size) == self.oracle.sizes()
        self.compare_shares()
        held = self.tree.all_slots().tolist()
        assert sorted(held + self.free) == list(self.pool)
        self.compare_nodes()
        self.compare_replay()

    def compare_shares(self) -> None:
        sizes = self.oracle.by_share()
        for salt, size in self.tree.share_sizes().items():
            assert size == sizes.get(salt, (0, 0))
        for space in (None, *SPACES):
            assert self.tree.room_for(space) == self.shares.room_for(space, sizes)

    def follow_changes(self) -> None:
        for change in self.tree.take_changes():
            replay([Event(1, change)], self.runs)
            if isinstance(change, Stored):
                self.learn(change)

    def learn(self, stored: Stored) -> None:
        """A negative code means one thing for as long as the epoch lasts."""
        assert self.inserted is not None
        space, key = self.inserted
        start = len(self.codes_up_to(stored.parent_run, stored.parent_offset))
        assert (stored.namespace, start + len(stored.codes)) == (space, len(key))
        for code, symbol in zip(stored.codes.tolist(), key[start:], strict=True):
            if code < 0:
                assert self.meaning.setdefault(code, symbol) == symbol
            else:
                assert code == symbol

    def codes_up_to(self, run: int, offset: int) -> tuple[int, ...]:
        """All codes from the root to the first `offset` of a run."""
        codes: tuple[int, ...] = ()
        while run:
            codes = tuple(self.runs[run].codes[:offset].tolist()) + codes
            run, offset = self.runs[run].parent_run, self.runs[run].parent_offset
        return codes

    def decoded(self, codes: tuple[int, ...]) -> tuple:
        return tuple(self.meaning[code] if code < 0 else code for code in codes)

    def compare_nodes(self) -> None:
        paths: dict[int, tuple] = {0: ()}
        shown, recency = {}, {}
        for node in self.tree.walk():
            own = self.decoded(tuple(node.codes.tolist()))
            paths[node.id] = paths[node.parent_id] + own
            path = (node.namespace, paths[node.id])
            recency[path] = node.recency
            shown[path] = (
                node.start, node.slots.tolist(), node.lock_ref, node.hit_count, node.priority,
                node.is_leaf,
            )  # fmt: skip
        expected = {
            path: (node.start, node.slots, self.oracle.lock_ref(path), node.hits, node.priority,
                   not self.oracle.has_child(path))
            for path, node in self.oracle.nodes.items()
        }  # fmt: skip
        assert shown == expected
        assert self.tree.num_nodes == len(expected)
        used = [self.oracle.nodes[path].used for path in sorted(recency, key=lambda p: recency[p])]
        assert used == sorted(used), "recency is out of order"

    def compare_replay(self) -> None:
        resident = {
            (run.namespace, self.decoded(whole[:end]))
            for number, run in self.runs.items()
            for whole in [self.codes_up_to(number, len(run.codes))]
            for end in range(len(whole) - len(run.codes) + 1, len(whole) + 1)
        }
        assert resident == self.oracle.resident()
        shown = runs_of(self.tree.walk())
        assert {n: _flat(run) for n, run in shown.items()} == {
            n: _flat(run) for n, run in self.runs.items()
        }


def _flat(run: Any) -> tuple:
    return run.parent_run, run.parent_offset, run.codes.tolist(), run.namespace


TestTree = TreeMachine.TestCase
# The model of the adaptive policy is slow.
TestTree.settings = settings(max_examples=min(settings().max_examples, 200))
