"""Faults that users of cache-aware routers reported, retold on the index and the router."""

import pytest

from radixkv.cache.events import Cleared, Event, Update
from radixkv.router import PrefixIndex, Router
from radixkv.tree import Trimmed
from tests.support.followers import Worker, catch_up
from tests.support.holders import prefixes_of, stored, update
from tests.support.trees import CORES


@pytest.fixture(params=CORES)
def index(request):
    return PrefixIndex(request.param)


def resident(index, worker):
    return {prefix for _, prefix in prefixes_of(index.runs(worker))}


def test_B16_a_split_removes_nothing(index):
    worker = Worker("w")
    index.add_worker("w")
    worker.hold([1, 2, 3, 4])
    worker.hold([1, 2, 9])
    log = worker.cache.events
    first, second = (event.change for event in log.since(0))
    assert (first.codes.tolist(), second.codes.tolist()) == ([1, 2, 3, 4], [9])
    assert (second.parent_run, second.parent_offset) == (first.run, 2)
    catch_up(index, worker)
    assert resident(index, "w") == {(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 9)}


def test_B17_cleared_reaches_the_index_of_an_idle_worker(index):
    w1, w2 = Worker("w1"), Worker("w2")
    w1.hold([1, 2, 3])
    w2.hold([1])
    for worker in (w1, w2):
        index.add_worker(worker.name)
        catch_up(index, worker)
    assert index.lookup([1, 2, 3]) == {"w1": 3, "w2": 1}
    w1.cache.reset()
    catch_up(index, w1)
    assert index.lookup([1, 2, 3]) == {"w2": 1}
    w1.hold([1, 2])
    catch_up(index, w1)
    assert index.lookup([1, 2, 3]) == {"w1": 2, "w2": 1}


def test_B17_the_event_alone_clears(index):
    index.add_worker("w1")
    index.apply("w1", update(1, stored(1, 1, 2, 3)))
    index.apply("w1", Update(8, 2, (Event(2, Cleared()),)))
    assert index.lookup([1, 2, 3]) == {}


def test_B18_a_restarted_worker_keeps_nothing_of_before(index):
    index.add_worker("w1")
    index.apply("w1", update(1, stored(1, 1, 2)))
    index.apply("w1", update(2, stored(2, 3, 4)))
    index.apply("w1", update(1, stored(1, 9), epoch=78))
    assert resident(index, "w1") == {(9,)}
    index.apply("w1", update(3, stored(3, 5)))
    assert resident(index, "w1") == {(9,)}
    view = index.view("w1")
    assert (view.state, view.epoch, view.revision, view.num_late) == ("current", 78, 1, 1)


def test_B26_text_that_is_not_the_engines_tokens_matches_nothing(index):
    index.add_worker("w")
    index.apply("w", update(1, stored(1, 0, 99, 71, 72), stored(2, 123, 4)))
    assert index.lookup([71, 72]) == {}
    assert index.lookup([12, 34]) == {}
    assert index.lookup([0, 99, 71]) == {"w": 3}


def test_B30_an_unknown_removal_stops_no_other(index):
    for worker in ("w1", "w2"):
        index.add_worker(worker)
        index.apply(worker, update(1, stored(1, 1, 1), stored(2, 2, 2)))
    index.apply("w1", update(2, Trimmed(1, 0), Trimmed(9, 0), Trimmed(2, 0)))
    assert resident(index, "w1") == set()
    assert index.view("w1").num_unknown == 1
    assert index.position("w1") is None, "it is not trusted again before a snapshot"
    assert index.lookup([1, 1]) == {"w2": 2}
    index.apply("w1", update(2, stored(3, 1), is_start=True))
    assert index.lookup([1, 1]) == {"w2": 2, "w1": 1}


# ---- the router ----


@pytest.fixture(params=CORES)
def router(request):
    return Router(core=request.param)


def workers(router, names):
    for name in names:
        router.add_worker(name)
    return [Worker(name) for name in names]


def follow(router, *workers):
    for worker in workers:
        catch_up(router.index, worker)


def test_B24_a_miss_goes_to_the_least_loaded_not_to_the_smallest_tree(router):
    w1, w2 = workers(router, "ab")
    w1.hold(range(10))
    w2.hold(range(100, 160))
    follow(router, w1, w2)
    assert router.pick([7, 7], loads={"a": 40, "b": 0}).worker == "b"


def test_B24_affinity_is_weighed_against_load(router):
    a, b, c = workers(router, "abc")
    a.hold([1, 2, 3])
    c.hold([1])
    follow(router, a, b, c)
    assert router.pick([1, 2, 3], loads={"a": 40, "b": 0}).worker == "b"
    assert router.pick([1, 2, 3], loads={"a": 1, "b": 0}).worker == "a"
    pick = router.pick([1, 2, 3], loads={"a": 60, "b": 0, "c": 0})
    assert (pick.worker, pick.best_length) == ("c", 3)
    assert b.cache.probe([1]) == 0


def test_B26_prompts_that_engines_do_not_know_show(router):
    """Text that is encoded otherwise than the engine does matches nothing, and is counted."""
    (worker,) = workers(router, "a")
    for _ in range(40):
        pick = router.pick([71, 72])
        worker.hold([0, 99, 71, 72])
        follow(router, worker)
        router.finish(pick)
    assert router.cache_misses.num_checks == router.cache_misses.num_misses == 3
