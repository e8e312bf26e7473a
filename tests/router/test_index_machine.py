"""Watches cut, repeated and lost at random: at each pause the index is what is cached."""

from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from radixkv import DEFAULT
from radixkv.router import PrefixIndex
from tests.support.followers import Worker, catch_up, check_mirrors
from tests.support.holders import OTHER
from tests.support.trees import CORES

# Of two symbols where they are long, so that pages that begin alike and end apart are frequent.
KEYS = st.lists(st.integers(0, 2), min_size=1, max_size=7) | st.lists(
    st.integers(0, 1), min_size=4, max_size=40
)
PAGE_SIZES = {"a": 1, "b": 4, "c": 16}
AT = st.integers(0, 2)


class Watched(RuleBasedStateMachine):
    """Three workers whose watches an unreliable network brings."""

    core = "python"

    @initialize()
    def begin(self):
        self.index = PrefixIndex(self.core)
        self.workers = [
            Worker(name, num_slots=40 if size == 1 else 96, page_size=size)
            for name, size in PAGE_SIZES.items()
        ]
        self.told = []
        for worker in self.workers:
            self.add(worker)

    def add(self, worker):
        size = PAGE_SIZES[worker.name]
        self.index.add_worker(worker.name, page_size=size, num_slots=worker.num_slots)

    @rule(at=AT, ids=KEYS, namespace=st.sampled_from([DEFAULT, OTHER]))
    def hold(self, at, ids, namespace):
        self.workers[at].hold(ids, namespace)

    @rule(at=AT, ids=KEYS)
    def hold_content(self, at, ids):
        self.workers[at].hold(ids, content=[(0, 1, b"cat")])

    @rule(at=AT, n=st.integers(1, 8))
    def evict(self, at, n):
        self.workers[at].cache.evict(n)

    @rule(at=AT)
    def reset(self, at):
        self.workers[at].cache.reset()

    @rule(at=AT)
    def restart(self, at):
        self.workers[at].restart()

    @rule(at=AT, take=st.integers(0, 3))
    def watch_until_it_is_cut(self, at, take):
        worker = self.workers[at]
        for update in islice(worker.updates(self.index.position(worker.name), 300), take):
            self.told.append((worker.name, update))
            self.index.apply(worker.name, update)

    @rule(at=AT, skip=st.integers(0, 2))
    def lose_updates(self, at, skip):
        worker = self.workers[at]
        position = self.index.position(worker.name)
        for update in islice(worker.updates(position, 300), skip, skip + 2):
            if not update.is_start or skip == 0:
                self.index.apply(worker.name, update)

    @rule(at=st.integers(0, 99))
    def repeat_an_old_update(self, at):
        """One of before: its worker may have gone on, or be another process now."""
        if self.told:
            name, update = self.told[at % len(self.told)]
            if not update.is_start:
                self.index.apply(name, update)

    @rule(at=AT)
    def replace(self, at):
        name = self.workers[at].name
        self.index.remove_worker(name)
        self.add(self.workers[at])
        # Its watch ended with it.
        self.told = [(worker, update) for worker, update in self.told if worker != name]

    @rule()
    def pause(self):
        for worker in self.workers:
            catch_up(self.index, worker)
            if self.index.position(worker.name) is None:  # it found out while it caught up
                catch_up(self.index, worker)
        check_mirrors(self.index, *self.workers)
        for ids in ([0, 1, 2], [1, 1], [2], [0] * 16, [0, 0, 1, 1] * 8):
            for space in (DEFAULT, OTHER):
                found = self.index.lookup(ids, space)
                expected = {w.name: w.cache.probe(ids, space) for w in self.workers}
                assert found == {name: length for name, length in expected.items() if length}

    @invariant()
    def the_index_is_whole(self):
        assert self.index.check_integrity() == []


@pytest.mark.parametrize("core", CORES)
def test_at_each_pause_the_index_is_what_is_cached(core):
    machine = type("Watched", (Watched,), {"core": core})
    machine.TestCase.settings = settings(settings.default, stateful_step_count=40)
    machine.TestCase().runTest()
