"""The index: what each worker reported, no more and no less, whatever became of its watch."""

import numpy as np
import pytest

from radixkv import Namespace
from radixkv.cache.events import Update
from radixkv.errors import InvalidArgumentError, InvalidNamespaceError, InvalidTokensError
from radixkv.router import PrefixIndex
from radixkv.tree import Trimmed
from tests.support.followers import Worker, catch_up, check_mirrors
from tests.support.holders import stored, update

OTHER = Namespace(salt="other")


@pytest.fixture
def index(core, clock):
    index = PrefixIndex(core, clock=clock)
    yield index
    assert index.check_integrity() == []


@pytest.fixture
def followed(index):
    """Two workers that the index follows."""
    workers = Worker("a"), Worker("b")
    for worker in workers:
        index.add_worker(worker.name)
    return workers


def test_one_walk_answers_for_all(index, followed):
    a, b = followed
    a.hold([1, 2, 3, 4])
    b.hold([1, 2, 9])
    index.add_worker("c")
    for worker in followed:
        catch_up(index, worker)
    assert index.lookup([1, 2, 3, 5]) == {"a": 3, "b": 2}
    assert index.lookup([1, 2, 9, 9]) == {"b": 3, "a": 2}
    assert index.lookup([7]) == {}
    assert [index.length(name, [1, 2, 3, 5]) for name in "abc"] == [3, 2, 0]
    assert index.length("a", [1, 2], Namespace(salt="unused")) == 0
    workers, lengths = index.lengths([1, 2, 3, 4])
    assert (workers, lengths.tolist()) == (("a", "b", "c"), [4, 2, 0])
    check_mirrors(index, a, b)


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.int32),
                                  lambda ids: np.array(ids, "<i4").tobytes()])  # fmt: skip
def test_prompts_come_as_callers_have_them(index, followed, kind):
    followed[0].hold([1, 2, 3])
    catch_up(index, followed[0])
    assert index.lookup(kind([1, 2, 4])) == {"a": 2}


@pytest.mark.parametrize("namespace", [Namespace(), OTHER])
@pytest.mark.parametrize("bad", [[-1], [1, 2.5], "ab", [2**31], [[1]], None])
def test_what_is_no_prompt_is_refused(index, bad, namespace):
    with pytest.raises(InvalidTokensError):
        index.lookup(bad, namespace)


def test_what_is_no_namespace_is_refused(index):
    with pytest.raises(InvalidNamespaceError):
        index.lookup([1], "salt")


def test_an_empty_prompt_matches_nothing(index, followed):
    followed[0].hold([1])
    catch_up(index, followed[0])
    assert index.lookup([]) == {}


def test_namespaces_share_nothing(index, followed):
    a, b = followed
    a.hold([1, 2, 3], OTHER)
    b.hold([1, 2])
    for worker in followed:
        catch_up(index, worker)
    assert index.lookup([1, 2, 3]) == {"b": 2}
    assert index.lookup([1, 2, 3], OTHER) == {"a": 3}
    assert index.lookup([1, 2, 3], Namespace(adapter="other")) == {}


def test_namespaces_without_a_user_are_forgotten(index, followed):
    a, _ = followed
    for n in range(300):
        a.hold([1, n], Namespace(salt=str(n)))
        catch_up(index, a)
    assert len(index._spaces) < 300
    check_mirrors(index, a)


def test_whole_pages_of_the_workers_own_size(index):
    a, b = Worker("a", page_size=4), Worker("b")
    index.add_worker("a", page_size=4)
    index.add_worker("b")
    prompt = list(range(1, 11))
    for worker in (a, b):
        worker.hold(prompt)
        catch_up(index, worker)
    for length in range(11):
        asked = [*prompt[:length], 99]
        expected = {name: worker.cache.probe(asked) for name, worker in (("b", b), ("a", a))}
        assert index.lookup(asked) == {name: n for name, n in expected.items() if n}


def test_pages_that_begin_alike_do_not_make_a_worker_fall_behind(index):
    worker = Worker("a", page_size=4)
    index.add_worker("a", page_size=4)
    for page in ([1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 7]):
        worker.hold([*page, *page])
        catch_up(index, worker)
    check_mirrors(index, worker)
    assert index.lookup([1, 2, 3, 5, 1, 2, 3, 5, 9]) == {"a": 8}
    worker.cache.evict(8)
    catch_up(index, worker)
    check_mirrors(index, worker)


def test_a_worker_that_reports_more_than_its_slots_is_not_believed(index):
    index.add_worker("liar", num_slots=8)
    changes = [stored(n, n, n) for n in range(1, 100)]
    index.apply("liar", update(1, *changes))
    view = index.view("liar")
    assert (view.state, view.num_tokens, view.num_unknown) == ("behind", 8, 95)
    index.apply("liar", update(2, *changes, is_start=True, is_whole=False))
    assert (index.view("liar").state, index.total_size) == ("behind", 8)
    for wrong in (0, -1):
        with pytest.raises(InvalidArgumentError, match="num_slots"):
            index.add_worker("c", num_slots=wrong)


def test_what_was_held_in_pages_of_another_size_is_forgotten(index):
    worker = Worker("a", page_size=4)
    index.add_worker("a")
    worker.hold([1, 2, 3, 4])
    catch_up(index, worker)
    index.set_pool("a", 1, worker.num_slots)
    assert index.lookup([1, 2, 3, 4]) == {"a": 4}
    index.set_pool("a", 4, worker.num_slots)
    assert (index.view("a").state, index.total_size) == ("behind", 0)
    catch_up(index, worker)
    check_mirrors(index, worker)


def test_content_ends_a_match_between_workers(index, followed):
    a, b = followed
    spans = [(1, 2, b"cat")]
    for worker in followed:
        worker.hold([5, 7, 7, 6], content=spans)
        catch_up(index, worker)
    assert index.lookup([5, 7, 7, 6], content=spans) == {"a": 1, "b": 1}
    assert index.lookup([5, 7, 7, 6]) == {"a": 1, "b": 1}
    check_mirrors(index, a, b)


def test_a_trim_takes_from_its_worker_alone(index, followed):
    a, b = followed
    for worker in followed:
        worker.hold([1, 2, 3, 4, 5])
    for n in (1, 2, 2):
        a.cache.evict(n)
        for worker in followed:
            catch_up(index, worker)
        check_mirrors(index, a, b)
        assert index.lookup([1, 2, 3, 4, 5])["b"] == 5
    assert index.lookup([1, 2, 3]) == {"b": 3}


def test_a_worker_that_goes_takes_what_it_held(index, followed):
    a, b = followed
    for worker in followed:
        worker.hold([1, 2, 3])
        catch_up(index, worker)
    a.hold([1, 2, 3, 4, 5, 6])
    catch_up(index, a)
    assert index.total_size == 6
    index.remove_worker("a")
    assert index.workers == ("b",)
    assert (index.lookup([1, 2, 3, 4]), index.total_size) == ({"b": 3}, 3)
    index.add_worker("a")
    assert index.lookup([1, 2, 3, 4]) == {"b": 3}
    catch_up(index, a)
    assert index.lookup([1, 2, 3, 4]) == {"a": 4, "b": 3}
    check_mirrors(index, a, b)


def test_workers_have_one_name_each(index, followed):
    with pytest.raises(InvalidArgumentError, match="got 'a', which was added before"):
        index.add_worker("a")
    for call in (index.remove_worker, index.view, index.position, index.runs, index.lose):
        with pytest.raises(InvalidArgumentError, match="must be one of a, b; got 'z'") as caught:
            call("z")
        assert caught.value.details == {"worker": "z"}
    with pytest.raises(InvalidArgumentError, match="page_size"):
        index.add_worker("c", page_size=0)


# ---- cut, resumed, repeated, lost ----


def test_a_cut_watch_resumes_where_it_was(index, followed):
    a, _ = followed
    a.hold([1, 2, 3])
    catch_up(index, a)
    before = index.position("a")
    a.hold([1, 2, 4])
    a.cache.evict(1)
    assert index.position("a") == before
    catch_up(index, a)
    check_mirrors(index, a)
    assert index.position("a") == (a.cache.events.epoch, a.cache.events.revision)


def test_what_was_reported_twice_counts_once(index, followed):
    a, _ = followed
    for ids in ([1, 2, 3], [1, 2, 4], [5]):
        a.hold(ids)
    log = a.cache.events
    for revision in (0, 1, 0, 2, 0, 3):
        index.apply("a", log.read(log.epoch, revision, 1 << 20))
    check_mirrors(index, a)
    assert index.view("a").num_unknown == 0


@pytest.mark.parametrize("missed", [1, 2])
def test_a_gap_is_noticed_and_a_snapshot_mends_it(index, followed, missed):
    a, b = followed
    b.hold([1, 2])
    catch_up(index, b)
    a.hold([1, 2, 3])
    catch_up(index, a)
    for n in range(missed + 1):
        a.hold([1, 2, 3, n])
    log = a.cache.events
    index.apply("a", log.read(log.epoch, log.revision - 1, 1 << 20))
    assert (index.view("a").state, index.position("a")) == ("behind", None)
    assert index.lookup([1, 2, 3]) == {"a": 3, "b": 2}, "what was known still answers"
    catch_up(index, a)
    check_mirrors(index, a, b)


def test_progress_beyond_what_was_reported_is_a_gap(index, followed):
    a, _ = followed
    a.hold([1])
    catch_up(index, a)
    a.hold([2])
    log = a.cache.events
    index.apply("a", Update(log.epoch, log.revision))
    assert index.view("a").state == "behind"


def test_a_watch_from_now_on_needs_a_snapshot(index, followed):
    a, _ = followed
    a.hold([1, 2])
    log = a.cache.events
    index.apply("a", Update(log.epoch, log.revision))
    assert (index.view("a").state, index.position("a")) == ("behind", None)
    catch_up(index, a)
    check_mirrors(index, a)


def test_a_worker_that_has_cached_nothing_is_current(index, followed):
    index.apply("a", Update(5, 0))
    assert index.view("a").state == "current"


def test_history_that_is_gone_is_replaced_by_a_snapshot(index, followed):
    a, _ = followed
    a.hold([1, 2, 3])
    catch_up(index, a)
    a.cache.events._max_bytes = 600
    for n in range(10):
        a.hold([1, 2, n])
    assert a.cache.events.compact_revision > index.position("a")[1]
    catch_up(index, a)
    check_mirrors(index, a)


# ---- snapshots ----


def test_until_a_snapshot_is_whole_the_old_state_answers(index, followed):
    a, b = followed
    for worker in followed:
        worker.hold([1, 2, 3])
        worker.hold([7, 8])
        catch_up(index, worker)
    a.cache.evict(2)
    a.hold([5, 6])
    a.hold([9])
    first, *more = a.snapshot(pieces=3)
    index.lose("a")
    index.apply("a", first)
    assert index.view("a").state == "rebuilding"
    assert index.lookup([1, 2, 3]) == {"a": 3, "b": 3}
    for piece in more:
        assert index.lookup([5, 6]) == {}
        index.apply("a", piece)
    assert index.lookup([5, 6]) == {"a": 2}
    check_mirrors(index, a, b)


def test_a_snapshot_that_was_cut_is_begun_again(index, followed):
    a, _ = followed
    for n in range(6):
        a.hold([n, n])
    first, second, _ = a.snapshot(pieces=3)
    index.apply("a", first)
    index.apply("a", second)
    assert index.position("a") is None
    a.cache.evict(4)
    catch_up(index, a)
    check_mirrors(index, a)
    index.remove_worker("a")
    assert index.total_size == 0


def test_a_worker_may_go_in_the_middle_of_its_snapshot(index, followed):
    a, _ = followed
    for n in range(6):
        a.hold([n, n])
    index.apply("a", next(iter(a.snapshot(pieces=3))))
    index.remove_worker("a")
    assert index.total_size == 0


def test_a_snapshot_of_another_epoch_voids_the_old_state_at_once(index, followed):
    a, b = followed
    for worker in followed:
        worker.hold([1, 2, 3])
        catch_up(index, worker)
    a.restart()
    for n in (4, 5, 6):
        a.hold([n])
    first, *more = a.snapshot(pieces=3)
    index.apply("a", first)
    assert index.lookup([1, 2, 3]) == {"b": 3}
    for piece in more:
        index.apply("a", piece)
    check_mirrors(index, a, b)


def test_a_snapshot_that_makes_no_sense_is_not_taken(index, followed):
    index.apply("a", update(1, stored(1, 5, 6)))
    index.apply("a", update(4, stored(1, 5), stored(3, 9, parent=2, offset=1), is_start=True))
    assert index.view("a").state == "behind"
    assert index.lookup([5, 6]) == {"a": 2}
    index.apply("a", update(4, stored(4, 8)))
    assert index.lookup([8]) == {}
    index.apply("a", update(4, stored(1, 5), stored(3, 9, parent=1, offset=1), is_start=True))
    assert index.view("a").state == "current"
    assert index.lookup([5, 9]) == {"a": 2}


# ---- history that cannot be true ----

IMPOSSIBLE = {
    "an unknown run is trimmed": Trimmed(9, 0),
    "a run grows": Trimmed(1, 4),
    "a run is cut above what continues it": Trimmed(1, 1),
    "a parent is unknown": stored(3, 5, parent=9, offset=1),
    "a parent is too short": stored(3, 5, parent=1, offset=4),
    "a place is before a parent": stored(3, 5, parent=1),
    "a run is stored again": stored(2, 5, parent=1, offset=1),
    "tokens are there already": stored(3, 1, 2),
    "tokens are there already, below": stored(3, 3, parent=1, offset=2),
    "nothing is stored": stored(3),
    "the run of the roots": stored(0, 5),
    "the roots are trimmed": Trimmed(0, 0),
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_true_is_counted_and_changes_nothing(index, followed, change):
    index.apply("b", update(1, stored(1, 1, 2, 3), stored(2, 4, parent=1, offset=2)))
    index.apply("a", update(1, stored(1, 1, 2, 3), stored(2, 4, parent=1, offset=2)))
    before = index.runs("a").keys()
    index.apply("a", update(2, change, stored(7, 7)))
    view = index.view("a")
    assert (view.state, view.num_unknown) == ("behind", 1)
    assert index.runs("a").keys() == before | {7}
    assert index.lookup([1, 2, 3]) == {"a": 3, "b": 3}
    assert index.view("b").state == "current"
    index.apply("a", update(3, stored(8, 8)))
    assert index.lookup([8]) == {}, "nothing more is believed before a snapshot"


def test_other_weights_and_clears_begin_another_epoch(index, followed):
    a, _ = followed
    a.hold([1, 2, 3])
    catch_up(index, a)
    a.cache.set_weight_version(2)
    a.hold([1, 2])
    catch_up(index, a)
    check_mirrors(index, a)
    assert index.lookup([1, 2, 3]) == {}
    assert index.lookup([1, 2, 3], Namespace(weight_version=2)) == {"a": 2}


# ---- freshness ----


def test_silence_and_lag_are_shown(index, clock, followed):
    a, _ = followed
    a.hold([1, 2])
    catch_up(index, a)
    clock.now += 3
    assert index.view("a").silent_s == 3
    log = a.cache.events
    index.apply("a", Update(log.epoch, log.revision))
    assert index.view("a").silent_s == 0
    index.note_revision("a", log.epoch, log.revision + 5)
    assert index.view("a").lag == 5
    index.note_revision("a", log.epoch, log.revision)
    assert index.view("a").lag == 5
    for n in range(5):
        a.hold([n, 9])
    catch_up(index, a)
    assert index.view("a").lag == 0


def test_word_of_another_epoch_ends_trust(index, followed):
    a, _ = followed
    a.hold([1, 2])
    catch_up(index, a)
    old = a.cache.events.epoch
    a.cache.reset()
    index.note_revision("a", a.cache.events.epoch, 3)
    assert index.view("a").state == "behind"
    catch_up(index, a)
    check_mirrors(index, a)
    index.note_revision("a", old, 3)
    assert index.view("a").state == "current"


def test_word_of_a_worker_whose_watch_never_spoke_says_nothing(index, followed):
    index.note_revision("b", 77, 3)
    view = index.view("b")
    assert (view.state, view.lag) == ("waiting", 0)


def test_a_worker_that_never_spoke_is_waited_for(index, clock, followed):
    clock.now += 2
    view = index.view("b")
    assert (view.state, view.silent_s, view.num_tokens, view.epoch) == ("waiting", 2, 0, 0)
