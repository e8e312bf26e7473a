"""A state machine drives both cores with the same operations and compares every answer.

python -m pytest tests/differential
"""

from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from radixkv import DEFAULT, Namespace
from radixkv.tree import POLICIES, MatchResult
from radixkv.tree.shares import Share, Shares
from tests.differential.pair import Handles, Pair
from tests.support.token_forms import TOKEN_FORMS

pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")

BAD_ITEMS = (-1, -(2**31), 2**31, 2**40, 2**70, 1.5, "x", None, True, [1])
NAMESPACES = (
    DEFAULT,
    Namespace(),
    Namespace(salt="a"),
    Namespace(salt="a"),
    Namespace(adapter="a"),
    Namespace(salt="", weight_version=2**64 - 1),
)
SHARES: tuple[Shares, ...] = (
    {},
    {"a": Share(reserve=5)},
    {"a": Share(reserve=3, cap=6), None: Share(cap=9), "": Share(reserve=2)},
)
# Three symbols share much; the large ones have two digits as CPython stores them.
IDS = st.lists(st.sampled_from((0, 1, 2**31 - 1)), max_size=14)
FORM = st.sampled_from(sorted(TOKEN_FORMS))
SPACE = st.sampled_from(NAMESPACES)
SPAN = st.tuples(st.integers(0, 4), st.integers(1, 5), st.sampled_from((b"x", b"y")))
CONTENT = st.one_of(st.just(()), st.lists(SPAN, max_size=2))


class Cores(RuleBasedStateMachine):
    """One `Pair` and the handles it gave out."""

    @initialize(
        page_size=st.sampled_from((1, 2, 4)),
        policy=st.sampled_from(sorted(POLICIES)),
        shares=st.sampled_from(SHARES),
    )
    def begin(self, page_size, policy, shares):
        self.pair = Pair(page_size, policy, shares)
        self.handles = []
        self.locked = []
        self.slots = count(10)

    def keep(self, result):
        if isinstance(getattr(result, "handle", None), Handles):
            self.handles.append(result.handle)

    @rule(ids=IDS, form=FORM, space=SPACE, content=CONTENT)
    def match(self, ids, form, space, content):
        result = self.pair.call("match_prefix", TOKEN_FORMS[form](ids), space, content=content)
        self.keep(result)
        handle = self.pair.call("match_handle", TOKEN_FORMS[form](ids), space, content=content)
        if isinstance(handle, Handles):
            self.handles.append(handle)
        length = self.pair.call("probe", TOKEN_FORMS[form](ids), space, content=content)
        assert not isinstance(result, MatchResult) or length == result.length

    @rule(prompts=st.lists(st.tuples(IDS, FORM), max_size=4), space=SPACE)
    def ask_a_batch(self, prompts, space):
        for name in ("match_batch", "match_lengths", "probe_batch"):
            self.pair.call(name, [TOKEN_FORMS[form](ids) for ids, form in prompts], space)

    @rule(
        ids=IDS, form=FORM, space=SPACE, content=CONTENT,
        priority=st.integers(-2, 2), chunked=st.booleans(), extra=st.sampled_from((0, 0, 0, 0, 1)),
    )  # fmt: skip
    def insert(self, ids, form, space, content, priority, chunked, extra):
        slots = [next(self.slots) for _ in range(len(ids) + extra)]
        args = (TOKEN_FORMS[form](ids), slots, space)
        self.keep(
            self.pair.call("insert", *args, content=content, priority=priority, chunked=chunked)
        )

    @rule(data=st.data(), ids=IDS, form=FORM, namespace=SPACE, extra=st.sampled_from((0, 0, 0, 1)))
    def insert_after(self, data, ids, form, namespace, extra):
        """Behind what a handle stands for, if it stands for anything."""
        if not self.handles:
            return
        after = data.draw(st.sampled_from(self.handles))
        whole = [1] * after.both[0].length + ids
        slots = [next(self.slots) for _ in range(len(ids) + extra)]
        self.keep(self.pair.call("insert", TOKEN_FORMS[form](whole), slots, namespace, after=after))

    @rule(ids=IDS, bad=st.sampled_from(BAD_ITEMS), at=st.integers(0, 14), space=SPACE)
    def pass_a_bad_item(self, ids, bad, at, space):
        ids = [*ids[:at], bad, *ids[at:]]
        for name in ("match_prefix", "match_handle", "probe"):
            self.pair.call(name, ids, space)
        for name in ("match_batch", "match_lengths", "probe_batch"):
            self.pair.call(name, [[1], tuple(ids)], space)
        good = [next(self.slots) for _ in ids]
        self.keep(self.pair.call("insert", ids, good, space))
        bad_slots = [next(self.slots) if item is not bad else bad for item in ids]
        self.keep(self.pair.call("insert", [0] * len(ids), bad_slots, space))

    @rule(ids=IDS, at=st.integers(0, 14), dtype=st.sampled_from((np.int32, np.int64, np.float32)))
    def pass_a_bad_array(self, ids, at, dtype):
        bad = np.array([*ids[:at], -2, *ids[at:]]).astype(dtype)
        for name in ("match_prefix", "probe"):
            self.pair.call(name, bad)
        for name in ("match_batch", "match_lengths", "probe_batch"):
            self.pair.call(name, [bad])
        self.keep(self.pair.call("insert", bad, [next(self.slots) for _ in bad]))

    @rule(value=st.sampled_from((None, "ab", 3, b"abc", [[1]], np.zeros((1, 2), np.int32), {1: 2})))
    def pass_no_sequence(self, value):
        for name in ("match_prefix", "probe"):
            self.pair.call(name, value)
        self.pair.call("insert", value, [])
        self.pair.call("insert", [], value)

    @rule(data=st.data())
    def lock(self, data):
        if self.handles:
            handle = data.draw(st.sampled_from(self.handles))
            if not isinstance(self.pair.call("inc_lock_ref", handle), Exception):
                self.locked.append(handle)

    @rule(data=st.data(), most=st.integers(-1, 3))
    def read_the_path(self, data, most):
        """Of any handle there was: its tokens may be gone."""
        if self.handles:
            handle = data.draw(st.sampled_from(self.handles))
            self.pair.call("path_slots", handle)
            self.pair.call("path_slices", handle, most)

    @rule(data=st.data())
    def unlock(self, data):
        if self.locked:
            at = data.draw(st.integers(0, len(self.locked) - 1))
            self.pair.call("dec_lock_ref", self.locked.pop(at))

    @rule(data=st.data())
    def unlock_any(self, data):
        """Mostly what is not locked."""
        if self.handles:
            handle = data.draw(st.sampled_from(self.handles))
            result = self.pair.call("dec_lock_ref", handle)
            if handle in self.locked and not isinstance(result, Exception):
                self.locked.remove(handle)

    @rule(
        num_tokens=st.integers(-1, 12),
        space=st.none() | SPACE | st.just("a"),
        wanted=st.integers(-1, 9),
    )
    def evict(self, num_tokens, space, wanted):
        self.pair.call("room_for", space)
        self.pair.call("evict", num_tokens, space, wanted=wanted)

    @rule()
    def evict_beyond_caps(self):
        self.pair.call("evict_beyond_caps")
        self.pair.call("share_sizes")

    @rule(ids=IDS, form=FORM, space=SPACE, content=CONTENT, length=st.integers(0, 4))
    def evict_below(self, ids, form, space, content, length):
        self.pair.call("evict_below", TOKEN_FORMS[form](ids[:length]), space, content=content)

    @rule()
    def take_changes(self):
        self.pair.call("take_changes")

    @rule()
    def go_through_pickle(self):
        self.pair = self.pair.pickled()
        self.locked = []
        if self.handles:
            self.pair.call("inc_lock_ref", self.handles[0])

    @rule(really=st.sampled_from((False, False, False, True)))
    def reset(self, really):
        if really:
            self.pair.call("reset")
            self.locked = []

    @invariant()
    def both_are_equal_and_sound(self):
        if hasattr(self, "pair"):
            self.pair.check()


TestCores = Cores.TestCase
TestCores.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("page_size", [1, 3])
@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("shares", [{}, {"a": Share(300, 600), None: Share(90), "": Share(cap=99)}])
def test_the_same_victims_in_the_same_order(shares, policy, page_size):
    """A larger tree under locks, over and over filled and emptied to the last token."""
    rng = np.random.default_rng(7)
    pair, slots, held = Pair(page_size, policy, shares), count(1), []
    for _ in range(1500):
        ids = rng.integers(0, 4, rng.integers(0, 40)).tolist()
        space = NAMESPACES[int(rng.integers(len(NAMESPACES)))] if shares else DEFAULT
        result = pair.call(
            "insert", ids, [next(slots) for _ in ids], space, priority=int(rng.integers(3))
        )
        if rng.random() < 0.4:
            pair.call("inc_lock_ref", result.handle)
            held.append(result.handle)
        if held and rng.random() < 0.4:
            pair.call("dec_lock_ref", held.pop(int(rng.integers(len(held)))))
        if rng.random() < 0.3:
            pair.call("match_prefix", rng.integers(0, 4, 20).tolist())
        if rng.random() < 0.3:
            pair.call("evict", int(rng.integers(0, 60)), space, wanted=len(ids))
        if rng.random() < 0.05:
            pair.call("evict_below", ids[: int(rng.integers(0, 2)) * page_size])
        pair.call("evict_beyond_caps")
    pair.check()
    for handle in held:
        pair.call("dec_lock_ref", handle)
    for space in NAMESPACES:
        while pair.both[0].room_for(space):
            pair.call("evict", 7, space)
    assert not pair.both[0].total_size
    pair.call("take_changes")
    pair.check()
