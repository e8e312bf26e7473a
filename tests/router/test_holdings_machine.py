"""Many holders of real trees, driven at random: the holdings are what the trees are, always."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from radixkv import DEFAULT
from radixkv.router.factory import new_holdings
from tests.support.holders import OTHER, Engine
from tests.support.trees import CORES

KEYS = st.lists(st.integers(0, 2), min_size=1, max_size=8)
# Of two symbols, so that pages that begin alike and end apart are frequent.
PAGED_KEYS = st.lists(st.integers(0, 1), min_size=1, max_size=40)
PAGE_SIZES = (1, 4, 16)
SPACES = st.sampled_from([DEFAULT, OTHER])
AT = st.integers(0, 99)


class Fleet(RuleBasedStateMachine):
    """Engines that come and go, insert, evict and reset."""

    core = "python"

    @initialize()
    def begin(self):
        self.holdings, self.roots = new_holdings(self.core), {}
        self.engines = [self.engine(size) for size in PAGE_SIZES]

    def engine(self, page_size):
        return Engine(self.holdings, self.roots, page_size)

    def pick(self, at):
        return self.engines[at % len(self.engines)]

    @rule(at=AT, ids=KEYS, namespace=SPACES)
    def insert(self, at, ids, namespace):
        self.pick(at).insert(ids, namespace)

    @rule(at=AT, ids=PAGED_KEYS)
    def insert_pages(self, at, ids):
        self.pick(at).insert(ids)

    @rule(ids=KEYS | PAGED_KEYS)
    def insert_everywhere(self, ids):
        for engine in self.engines:
            engine.insert(ids)

    @rule(at=AT, ids=KEYS, start=st.integers(0, 3), name=st.sampled_from([b"a", b"b"]))
    def insert_content(self, at, ids, start, name):
        start = min(start, len(ids) - 1)
        self.pick(at).insert(ids, content=[(start, len(ids) - start, name)])

    @rule(at=AT, n=st.integers(1, 9))
    def evict(self, at, n):
        self.pick(at).evict(n)

    @rule(at=AT)
    def reset(self, at):
        self.pick(at).reset()

    @rule(at=AT)
    def replace(self, at):
        gone = self.pick(at)
        self.holdings.remove_holder(gone.holder)
        self.engines[self.engines.index(gone)] = self.engine(gone.page_size)

    @rule(ids=KEYS | PAGED_KEYS, namespace=SPACES)
    def look(self, ids, namespace):
        root = self.roots.get(namespace)
        if root is None:
            return
        lengths = self.holdings.lengths(ids, root)
        for engine in self.engines:
            length = lengths[engine.holder]
            assert length - length % engine.page_size == engine.length(ids, namespace)

    @invariant()
    def each_holder_holds_what_its_tree_holds(self):
        assert self.holdings.check_integrity() == []
        for engine in self.engines:
            engine.check()

    @invariant()
    def nothing_is_kept_that_no_holder_has(self):
        if not any(engine.runs for engine in self.engines):
            assert (self.holdings.num_nodes, self.holdings.total_size) == (0, 0)


@pytest.mark.parametrize("core", CORES)
def test_holdings_follow_a_fleet(core):
    machine = type("Fleet", (Fleet,), {"core": core})
    machine.TestCase.settings = settings(settings.default, stateful_step_count=40)
    machine.TestCase().runTest()
