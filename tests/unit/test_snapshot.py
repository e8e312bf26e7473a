"""A snapshot in slices: what is resident at its revision, whatever happened between the slices."""

import random

import pytest

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.cache import snapshot as snapshot_module
from radixkv.cache.runs import runs_of
from radixkv.cache.snapshot import take_snapshot
from tests.support.trees import CORES

SPACES = (DEFAULT, Namespace(salt="a"))


@pytest.fixture(params=CORES)
def core(request):
    return request.param


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch):
    monkeypatch.setattr(snapshot_module, "SLICE_TOKENS", 3)


def steps_of(cache, log=None):
    return take_snapshot(cache.lock, cache.tree, log or cache.events)


def finish_one(cache, rng):
    """A request that shares something, may evict something, and is cached."""
    length = rng.randint(1, 9)
    request = cache.admit([rng.randint(0, 2) for _ in range(length)], rng.choice(SPACES))
    assert request is not None
    cache.finish(request, up_to=request.length)


def plain(runs):
    return {
        number: (run.parent_run, run.parent_offset, run.codes.tolist(), run.namespace)
        for number, run in runs.items()
    }


@pytest.mark.parametrize("page_size", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_what_happens_between_the_slices_is_in_it(core, seed, page_size):
    rng = random.Random(seed)
    cache = PrefixCache(40, core=core, page_size=page_size)
    for _ in range(30):
        finish_one(cache, rng)
    for step in steps_of(cache):
        if step is not None:
            break
        for _ in range(rng.randint(0, 3)):
            rng.choice([lambda: finish_one(cache, rng), lambda: cache.evict(rng.randint(1, 6))])()
    assert step.revision == cache.events.revision
    assert plain(step.runs) == plain(runs_of(cache.tree.walk()))
    parents = [run.parent_run for run in step.runs.values()]
    known = [0, *step.runs]
    assert all(parent in known[: at + 1] for at, parent in enumerate(parents))


def test_others_have_their_turns_between_the_slices(core):
    cache = PrefixCache(100, core=core)
    for start in range(0, 90, 10):
        cache.finish(done := cache.admit(range(start, start + 10)), up_to=done.length)
    lengths = [cache.probe(range(10)) for step in steps_of(cache) if step is None]
    assert len(lengths) == 10  # one a slice, each of more than three tokens, and one before
    assert lengths == [10] * 10


def test_a_reset_between_two_slices_begins_it_again(core):
    cache = PrefixCache(100, core=core)
    for start in range(0, 90, 10):
        cache.finish(done := cache.admit(range(start, start + 10)), up_to=done.length)
    steps = steps_of(cache)
    assert next(steps) is None
    assert next(steps) is None
    cache.reset()
    cache.finish(done := cache.admit([5, 6, 7]), up_to=done.length)
    *_, last = steps
    assert (last.epoch, last.revision) == cache.events.position()
    assert [run.codes.tolist() for run in last.runs.values()] == [[5, 6, 7]]


def test_a_log_that_keeps_too_little_ends_in_one_slice(core):
    """The last try holds the lock, and so loses nothing."""
    cache = PrefixCache(100, core=core)
    cache.events.__init__(max_bytes=1)
    for start in range(0, 90, 10):
        cache.finish(done := cache.admit(range(start, start + 10)), up_to=done.length)
    for number, step in enumerate(steps_of(cache)):
        if step is None:
            cache.finish(done := cache.admit([200 + number]), up_to=done.length)
    assert plain(step.runs) == plain(runs_of(cache.tree.walk()))


def test_a_cache_that_is_reset_over_and_over_has_a_snapshot(core):
    cache = PrefixCache(100, core=core)
    cache.finish(done := cache.admit(range(10)), up_to=done.length)
    for step in steps_of(cache):
        if step is None:
            cache.reset()
            cache.finish(done := cache.admit(range(10)), up_to=done.length)
    assert plain(step.runs) == plain(runs_of(cache.tree.walk()))


def test_an_empty_cache_has_an_empty_one(core):
    cache = PrefixCache(10, core=core)
    *_, last = steps_of(cache)
    assert (last.epoch, last.revision, last.runs) == (*cache.events.position(), {})


def test_a_table_shows_nodes_as_they_were_and_the_tokens_that_are_left(core):
    cache = PrefixCache(100, core=core)
    cache.finish(done := cache.admit([1, 2, 3, 4]), up_to=done.length)
    cache.finish(done := cache.admit([7, 8], SPACES[1]), up_to=done.length)
    table = cache.tree.table()
    before = [table.facts(at) for at in range(len(table))]
    cache.finish(
        done := cache.admit([1, 2, 9]), up_to=done.length
    )  # splits the first, whose tail keeps its name
    cache.match_prefix([1, 2, 9])
    cache.match_prefix([7, 8], SPACES[1])
    assert [table.facts(at) for at in range(len(table))] == before
    assert [(node.namespace, node.start, node.num_tokens, node.lock_ref) for node in before] == [
        (DEFAULT, 0, 4, 0),
        (SPACES[1], 0, 2, 0),
    ]
    assert [table.codes(at).tolist() for at in range(2)] == [[1, 2, 3, 4], [7, 8]]
    cache.evict(1)
    left = table.codes(0).tolist()
    assert left in ([1, 2, 3], [1, 2, 3, 4])
    cache.reset()
    assert [table.facts(at) for at in range(len(table))] == before
