"""The log of changes: revisions, epochs, what it keeps, and its replay."""

import threading
from itertools import pairwise

import numpy as np
import pytest

from radixkv import DEFAULT
from radixkv.cache.events import EVENT_BYTES, Cleared, Event, EventLog, Update
from radixkv.cache.runs import follow, replay, runs_of
from radixkv.errors import EpochMismatchError, HistoryLostError, RevisionInFutureError
from radixkv.tree import NO_CHANGES, Changes, Stored, Trimmed


def stored(run, *codes, parent=0, offset=0):
    return Stored(run, parent, offset, np.array(codes, np.int32), DEFAULT)


def test_a_new_log_is_empty():
    log = EventLog()
    assert (log.revision, log.compact_revision, log.is_complete) == (0, 0, True)
    assert log.since(0) == []
    assert 0 < log.epoch < 2**63


def test_every_log_is_another_epoch():
    assert len({EventLog().epoch for _ in range(100)}) == 100


def test_each_call_that_changed_something_is_one_revision():
    log = EventLog()
    log.append(Changes([stored(1, 5), Trimmed(1, 0)]))
    log.append(NO_CHANGES)
    log.append(Changes([stored(2, 6)]))
    assert log.revision == 2
    assert [event.revision for event in log.since(0)] == [1, 1, 2]
    assert [event.change for event in log.since(1)] == [log.since(0)[2].change]
    assert log.since(2) == []


@pytest.mark.parametrize("revision", [-1, 3, 10**30])
def test_what_has_not_happened_is_refused(revision):
    log = EventLog()
    log.append(Changes([stored(1, 5)]))
    log.append(Changes([stored(2, 6)]))
    with pytest.raises(HistoryLostError, match=f"must be 0 to 2, .*; got {revision}") as e:
        log.since(revision)
    assert e.value.details == {"compact_revision": 0, "revision": 2}


def test_what_is_too_old_is_refused_by_whole_revisions():
    log = EventLog(max_bytes=5 * (EVENT_BYTES + 4))
    for at in range(3):
        log.append(Changes([stored(2 * at + 1, 5), stored(2 * at + 2, 6)]))
    assert (log.compact_revision, log.revision, log.is_complete) == (1, 3, False)
    assert [event.revision for event in log.since(1)] == [2, 2, 3, 3]
    with pytest.raises(HistoryLostError, match="must be 1 to 3, which are kept"):
        log.since(0)


def test_a_revision_too_large_to_keep_leaves_an_empty_log():
    log = EventLog(max_bytes=EVENT_BYTES)
    log.append(Changes([stored(1, 5)]))
    assert (log.compact_revision, log.revision, log.is_complete) == (1, 1, False)
    assert log.since(1) == []
    log.append(Changes([Trimmed(1, 0)]))
    assert [event.revision for event in log.since(1)] == [2]


def test_the_log_keeps_to_its_bound():
    log = EventLog(max_bytes=10_000)
    for run in range(1, 1_000):
        log.append(Changes([stored(run, *range(100))]))
    kept = log.since(log.compact_revision)
    assert sum(EVENT_BYTES + event.change.codes.nbytes for event in kept) <= 10_000
    assert len(kept) == 10_000 // (EVENT_BYTES + 400)


def test_clearing_begins_an_epoch_with_cleared():
    log = EventLog()
    log.append(Changes([stored(1, 5)]))
    epoch = log.epoch
    log.clear()
    assert log.epoch != epoch
    assert (log.revision, log.compact_revision, log.is_complete) == (2, 1, True)
    assert log.since(1) == [Event(2, Cleared())]
    with pytest.raises(HistoryLostError):
        log.since(0)


def test_a_clear_reaches_who_has_seen_nothing_since():
    log = EventLog()
    log.clear()
    log.clear()
    assert log.since(1) == [Event(2, Cleared())]


def test_a_log_that_lost_its_beginning_is_complete_again_after_a_clear():
    log = EventLog(max_bytes=2 * EVENT_BYTES)
    for run in range(1, 5):
        log.append(Changes([stored(run, 5)]))
    assert not log.is_complete
    log.clear()
    assert log.is_complete


def test_readers_and_writers_of_a_log_do_not_disturb_each_other():
    log, wrong = EventLog(max_bytes=50 * EVENT_BYTES), []

    def read():
        seen = 0
        while seen < 2_000:
            try:
                events = log.since(seen)
            except HistoryLostError as lost:
                seen = lost.details["compact_revision"]
                continue
            wrong.extend(e for e, f in pairwise(events) if e.revision > f.revision)
            wrong.extend(e for e in events if e.revision <= seen)
            seen = max([seen, *(event.revision for event in events)])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for run in range(2_000):
        log.append(Changes([Trimmed(run, 0), Trimmed(run, 0)]))
    for reader in readers:
        reader.join()
    assert wrong == []


# ---- reading page by page ----


def revisions(update):
    return [event.revision for event in update.events]


def test_a_page_has_whole_revisions_and_one_at_least():
    log = EventLog()
    for run in range(1, 6):
        log.append(Changes([stored(2 * run, 5), stored(2 * run + 1, 6)]))
    page = log.read(log.epoch, 1, max_bytes=3 * EVENT_BYTES)
    assert page == Update(log.epoch, 3, tuple(log.since(1)[:4]))
    assert revisions(log.read(log.epoch, 3, max_bytes=1)) == [4, 4]
    assert log.read(log.epoch, 5, max_bytes=1) == Update(log.epoch, 5)


def test_pages_of_a_past_epoch_go_on_with_the_clearing():
    log = EventLog()
    log.append(Changes([stored(1, 5)]))
    epoch = log.epoch
    log.append(Changes([stored(2, 5)]))
    log.clear()
    log.append(Changes([stored(1, 6)]))
    page = log.read(epoch, 1, max_bytes=10**6)
    assert (page.epoch, page.revision, revisions(page)) == (log.epoch, 4, [3, 4])
    assert page.events[0].change == Cleared()


def test_what_lost_the_clearing_serves_no_past_epoch():
    log = EventLog(max_bytes=2 * EVENT_BYTES)
    epoch = log.epoch
    log.clear()
    for run in range(1, 5):
        log.append(Changes([Trimmed(run, 0)]))
    with pytest.raises(HistoryLostError):
        log.read(epoch, 0, max_bytes=1)
    assert revisions(log.read(log.epoch, log.compact_revision, max_bytes=1)) == [4]


def test_pages_of_what_has_not_happened_are_refused():
    log = EventLog()
    with pytest.raises(RevisionInFutureError, match=r"must be 0 to 0, .*; got 1"):
        log.read(log.epoch, 1, max_bytes=1)
    log.check_epoch(log.epoch)
    with pytest.raises(EpochMismatchError, match="forget"):
        log.check_epoch(log.epoch + 1)


def test_listeners_hear_of_each_change_and_of_nothing_else():
    log, heard = EventLog(), []

    def listener() -> None:
        heard.append(log.revision)

    log.listen(listener)
    log.append(Changes([Trimmed(1, 0)]))
    log.append(NO_CHANGES)
    log.clear()
    log.unlisten(listener)
    log.append(Changes([Trimmed(1, 0)]))
    assert heard == [1, 2]


# ---- replay ----


def test_replay_follows_stored_trimmed_and_cleared():
    log = EventLog()
    log.append(Changes([stored(1, 5, 6, 7)]))
    log.append(Changes([stored(2, 8, parent=1, offset=2)]))
    log.append(Changes([Trimmed(1, 2)]))
    runs = replay(log.since(0))
    assert {number: run.codes.tolist() for number, run in runs.items()} == {1: [5, 6], 2: [8]}
    log.append(Changes([Trimmed(2, 0)]))
    assert replay(log.since(0)).keys() == {1}
    log.clear()
    assert replay(log.since(4), runs) is runs
    assert runs == {}


def test_replay_goes_on_from_what_is_known():
    log = EventLog()
    log.append(Changes([stored(1, 5, 6)]))
    runs = replay(log.since(0))
    log.append(Changes([Trimmed(1, 1), stored(2, 9, parent=1, offset=1)]))
    replay(log.since(1), runs)
    assert {number: run.codes.tolist() for number, run in runs.items()} == {1: [5], 2: [9]}


def test_a_removal_of_what_is_unknown_stops_nothing():
    runs = replay(
        [Event(1, c) for c in (stored(1, 5), Trimmed(9, 0), Trimmed(8, 3), Trimmed(1, 0))]
    )
    assert runs == {}


def test_a_follower_forgets_what_it_knew_where_a_snapshot_starts():
    runs = replay([Event(1, stored(1, 5)), Event(2, stored(2, 6))])
    first = (Event(7, stored(3, 8)),)
    follow(Update(1, 7, first, is_start=True, is_whole=False), runs)
    assert runs.keys() == {3}
    follow(Update(1, 7, (Event(7, stored(4, 9)),)), runs)
    assert runs.keys() == {3, 4}


def test_the_runs_of_an_empty_tree():
    assert runs_of([]) == {}
    assert replay([]) == {}
