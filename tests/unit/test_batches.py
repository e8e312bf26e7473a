"""Many prompts in one call: as one by one, and other threads run meanwhile."""

import sys
import threading
import time
from array import array

import numpy as np
import pytest

from radixkv import Namespace, PrefixCache, new_tree
from radixkv.cache.factory import new_ledger
from radixkv.errors import InvalidNamespaceError, InvalidTokensError
from radixkv.memory import new_allocator
from tests.support.caches import store
from tests.support.token_forms import TOKEN_FORMS
from tests.support.trees import CORES, snapshot
from tests.support.waiting import run_threads

KEYS: list[list[int]] = [[1, 2, 3, 4], [1, 2, 7], [1, 2, 3, 9], [5], [], [1, 2, 3, 4, 5]]


def grown(core, keys=KEYS):
    tree = new_tree(core=core)
    for at, key in enumerate(keys):
        tree.insert(key, range(10 * at, 10 * at + len(key)))
    return tree


@pytest.mark.parametrize("form", TOKEN_FORMS)
def test_a_batch_is_one_match_after_another(core, form):
    together, apart = grown(core), grown(core)
    prompts = [TOKEN_FORMS[form](key) for key in (*KEYS[::-1], [1, 2, 3, 4, 5, 6], [2], [1, 2, 8])]
    batch = together.match_batch(prompts)
    single = [apart.match_prefix(prompt) for prompt in prompts]
    assert [(m.length, m.slots.tolist(), m.handle.length) for m in batch] == [
        (m.length, m.slots.tolist(), m.handle.length) for m in single
    ]
    assert snapshot(together) == snapshot(apart), "recency is the same too"
    assert together.probe_batch(prompts) == [m.length for m in single]
    for match in batch:
        together.inc_lock_ref(match.handle)
    assert together.check_integrity() == []


def test_lengths_are_those_of_matches_and_as_much_a_use(core):
    matched, measured = grown(core), grown(core)
    prompts = [*KEYS[::-1], [1, 2, 3, 4, 5, 6], [2], [1, 2, 8]]
    lengths = [match.length for match in matched.match_batch(prompts)]
    assert measured.match_lengths(prompts) == lengths
    assert snapshot(matched) == snapshot(measured)


def test_forms_may_be_mixed(core):
    tree = grown(core)
    prompts = [form(KEYS[-1]) for form in TOKEN_FORMS.values()]
    assert [match.length for match in tree.match_batch(prompts)] == [5] * len(prompts)
    assert tree.probe_batch(prompts) == [5] * len(prompts)


def test_nothing_is_asked_of_an_empty_batch(core):
    assert grown(core).match_batch([]) == grown(core).match_lengths([]) == []
    assert new_tree(core=core).match_batch([[1, 2]])[0].length == 0


@pytest.mark.parametrize(
    "bad", [[3, -1], np.array([-1]), np.array([2**31]), b"abc", "ab", None, [[1]], [1.5]], ids=repr
)
def test_a_bad_prompt_is_named_and_nothing_changes(core, bad):
    tree = grown(core)
    before = snapshot(tree)
    for call in (tree.match_batch, tree.match_lengths, tree.probe_batch):
        with pytest.raises(InvalidTokensError, match=r"prompts\[2\]"):
            call([[1, 2, 3], [1], bad, [5]])
    assert snapshot(tree) == before


def test_prompts_may_be_made_as_they_are_read(core):
    tree = grown(core)
    lengths = [match.length for match in tree.match_batch(KEYS)]
    for call in (tree.match_lengths, tree.probe_batch):
        assert call(key for key in KEYS) == lengths
    assert [match.length for match in tree.match_batch(map(tuple, KEYS))] == lengths


def test_a_cache_reads_prompts_once(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    assert cache.match_lengths(key for key in KEYS) == cache.match_lengths(KEYS)


@pytest.mark.parametrize("bad", [None, 7, object], ids=repr)
def test_what_is_no_batch_is_named(core, bad):
    tree = grown(core)
    for call in (tree.match_batch, tree.match_lengths, tree.probe_batch):
        with pytest.raises(
            InvalidTokensError, match=r"^prompts must be a sequence of prompts; got"
        ):
            call(bad)


def test_what_is_no_namespace_is_refused(core):
    for prompts in ([], [[1]]):
        with pytest.raises(InvalidNamespaceError):
            grown(core).match_batch(prompts, "tenant")


def test_a_namespace_has_its_own_answers(core):
    tree, space = grown(core), Namespace("tenant")
    tree.insert([1, 2], [90, 91], space)
    assert [match.slots.tolist() for match in tree.match_batch([[1, 2, 3]], space)] == [[90, 91]]


def test_content_is_not_mistaken_for_ids(core):
    tree = new_tree(core=core)
    tree.insert([7, 7, 8], [1, 2, 3], content=[(1, 1, b"picture")])
    assert [match.length for match in tree.match_batch([[7, 7, 8], np.array([7])])] == [1, 1]


def test_a_cache_counts_a_batch_as_look_ups(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    before = cache.stats()
    matches = cache.match_batch([[1, 2, 9], array("i", [1, 2, 3, 4]), [8]])
    assert [match.length for match in matches] == [2, 3, 0]
    assert matches[1].slots.tolist() == cache.match_prefix([1, 2, 3]).slots.tolist()
    after = cache.stats()
    assert after.lookup_tokens - before.lookup_tokens == 8 + 3
    assert after.hit_tokens - before.hit_tokens == 5 + 3
    assert cache.match_lengths([[1, 2, 9], [8]]) == [2, 0]
    assert cache.stats().lookup_tokens - after.lookup_tokens == 4
    assert cache.stats().hit_tokens - after.hit_tokens == 2


def test_other_weights_match_nothing_in_a_batch(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    assert [m.length for m in cache.match_batch([[1, 2, 3]], Namespace(weight_version=7))] == [0]
    assert cache.match_lengths([[1, 2, 3]], Namespace(weight_version=7)) == [0]
    with pytest.raises(InvalidTokensError, match=r"prompts\[1\]"):
        cache.match_batch([[1], [-1]], Namespace(weight_version=7))


# ---- other threads ----

native = pytest.mark.skipif("native" not in CORES, reason="the native core is not built here")


@pytest.fixture
def long_tree():
    """Page size 1, one key of a million tokens."""
    tree = new_tree(core="native")
    tree.insert(LONG, np.arange(1, len(LONG) + 1, dtype=np.int32))
    return tree


LONG = np.random.default_rng(1).integers(0, 2**31, 1_000_000, dtype=np.int32)


class Other:
    """A thread that runs whenever the interpreter's lock is let go of, and not otherwise."""

    def __enter__(self):
        self.steps, self._is_over = 0, False
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1_000)  # no thread is made to let go
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self):
        while not self._is_over:
            self.steps += 1
            time.sleep(0)

    def runs_during(self, call):
        """Whether it runs in one of many calls; between them it is not let in by this thread."""
        for _ in range(1_000):
            before = self.steps
            call()
            if self.steps > before:
                return True
        return False

    def __exit__(self, *_):
        self._is_over = True
        sys.setswitchinterval(self._interval)
        self._thread.join()


@native
@pytest.mark.parametrize("name", ["match_batch", "match_lengths", "probe_batch"])
@pytest.mark.parametrize("form", sorted(TOKEN_FORMS))
def test_other_threads_run_while_a_batch_is_compared(long_tree, name, form):
    prompts = [TOKEN_FORMS[form](LONG)]
    call = getattr(long_tree, name)
    with Other() as other:
        assert other.runs_during(lambda: call(prompts))


@native
@pytest.mark.parametrize("name", ["match_batch", "match_lengths", "probe_batch"])
def test_a_cache_lets_other_threads_run_too(name):
    cache = PrefixCache(len(LONG), core="native", max_context_len=len(LONG))
    store(cache, LONG)
    with Other() as other:
        assert other.runs_during(lambda: getattr(cache, name)([LONG]))


@native
def test_other_threads_do_not_run_in_a_single_call(long_tree):
    with Other() as other:
        assert not other.runs_during(lambda: long_tree.probe(LONG))


@native
def test_who_changes_the_tree_waits_until_a_batch_is_answered(long_tree):
    """Evicted meanwhile, the slots would be of nothing and the handle of a node that is gone."""
    errors: list[BaseException] = []
    ledger = new_ledger(new_allocator(1, core="native"))
    row = np.zeros(len(LONG), np.int32)

    def churn():
        for _ in range(100):
            long_tree.insert(LONG, np.arange(1, len(LONG) + 1, dtype=np.int32))
            handle = long_tree.admit(LONG, ledger, row).handle
            long_tree.dec_lock_ref(handle)
            long_tree.evict(700_000)
        long_tree.insert(LONG, np.arange(1, len(LONG) + 1, dtype=np.int32))

    def ask():
        try:
            for _ in range(200):
                for match in long_tree.match_batch([LONG, LONG[:400_000]]):
                    assert match.slots[-1] == match.length
        except BaseException as error:
            errors.append(error)

    run_threads(churn, ask, ask)
    assert errors == []
    assert long_tree.probe(LONG) == len(LONG)
    assert long_tree.check_integrity() == []
