"""Forgetting, and the log of what became cached and what was evicted."""

import pytest

from radixkv.cache.events import Cleared, EventLog
from radixkv.errors import (
    HistoryLostError,
    InvalidNamespaceError,
    LiveRequestsError,
)
from radixkv.tree import Stored, Trimmed
from tests.support.caches import admit, picture, resident, store

# ---- forgetting ----


def test_reset_forgets_everything(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    epoch = cache.events.epoch
    cache.reset()
    assert (cache.probe([1, 2, 3]), cache.free_size) == (0, 16)
    assert cache.events.epoch != epoch


def test_reset_is_refused_while_requests_live(new_cache):
    cache = new_cache()
    requests = [admit(cache, [1, 2]), admit(cache, [3])]
    before = picture(cache)
    with pytest.raises(LiveRequestsError, match="2 live requests") as caught:
        cache.reset()
    assert caught.value.details == {"live_requests": 2, "pins": 0}
    assert picture(cache) == before
    for request in requests:
        cache.finish(request, up_to=request.length)
    cache.reset()


def test_a_forced_reset_keeps_slots_until_their_last_reader_is_done(new_cache):
    cache = new_cache()
    slots = store(cache, [1, 2, 3])
    one, two = admit(cache, [1, 2, 3, 4]), admit(cache, [1, 2, 5])
    rows = one.slots.tolist(), two.slots.tolist()
    cache.reset(force=True)
    assert (one.slots.tolist(), two.slots.tolist()) == rows
    assert cache.stats().waiting == 3
    cache.finish(one, up_to=one.length)
    assert sorted(set(range(1, 17)) - set(cache.allocator.free_slots().tolist())) == sorted(rows[1])
    cache.finish(two, up_to=two.length)
    assert cache.free_size == 16
    assert resident(cache) == {}
    assert set(slots) <= set(cache.allocator.free_slots().tolist())


def test_after_a_forced_reset_old_requests_go_on_and_publish_nothing(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    old = admit(cache, [1, 2, 3, 4])
    cache.reset(force=True)
    assert len(cache.extend(old, [5])) == 1
    cache.publish(old, 5)
    new = admit(cache, [1, 2, 3, 4, 5])
    assert new.cached_len == 0
    cache.publish(new, 5)
    cache.finish(old, up_to=old.length)
    assert [slot for _, slot in sorted(resident(cache).items())] == new.slots.tolist()


def test_the_same_weights_again_change_nothing(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    before = picture(cache)
    cache.set_weight_version(0)
    assert picture(cache) == before
    with pytest.raises(InvalidNamespaceError):
        cache.set_weight_version(-1)
    with pytest.raises(InvalidNamespaceError):
        cache.set_weight_version("2")
    assert picture(cache) == before


# ---- events ----


def changes_since(cache, revision):
    return [event.change for event in cache.events.since(revision)]


def test_each_call_that_changes_the_tree_is_one_revision(new_cache):
    cache = new_cache(8)
    request = admit(cache, [1, 2, 3, 4])
    assert cache.events.revision == 0
    cache.publish(request, 2)
    assert cache.events.revision == 1
    cache.publish(request, 2)
    assert cache.events.revision == 1
    cache.finish(request, up_to=request.length)
    assert cache.events.revision == 2
    admit(cache, [7, 8, 9, 9, 9, 9])
    assert cache.events.revision == 3
    first, second, third = (event.change for event in cache.events.since(0))
    assert isinstance(first, Stored)
    assert (first.parent_run, first.parent_offset, first.codes.tolist()) == (0, 0, [1, 2])
    assert isinstance(second, Stored)
    assert (second.parent_run, second.parent_offset) == (first.run, 2)
    assert third == Trimmed(second.run, 0)


def test_a_publish_that_pushes_others_out_is_one_revision(new_cache):
    cache = new_cache(max_cached_tokens=2)
    store(cache, [1, 2])
    revision = cache.events.revision
    request = admit(cache, [7, 8])
    cache.publish(request, 2)
    stored, trimmed = changes_since(cache, revision)
    assert (type(stored), type(trimmed)) == (Stored, Trimmed)
    assert cache.events.revision == revision + 1


def test_looking_and_refusals_are_no_revision(new_cache):
    cache = new_cache(6)
    store(cache, [1, 2])
    request = admit(cache, [7, 8, 9, 9])
    revision = cache.events.revision
    cache.match_prefix([1, 2])
    assert cache.admit([1, 2, 3]) is None
    cache.extend(request, [])
    cache.abort(request)
    assert changes_since(cache, revision) == []


def test_a_reset_begins_an_epoch_whose_first_event_is_cleared(new_cache):
    cache = new_cache()
    store(cache, [1, 2])
    revision = cache.events.revision
    cache.reset()
    assert changes_since(cache, revision) == [Cleared()]
    with pytest.raises(HistoryLostError):
        cache.events.since(revision - 1)


def test_a_log_that_is_full_loses_its_oldest_revisions_and_says_so(new_cache):
    cache = new_cache(64)
    cache.transactions.events = EventLog(max_bytes=400)
    for token in range(20):
        store(cache, [token, token])
    assert not cache.events.is_complete
    with pytest.raises(HistoryLostError) as caught:
        cache.events.since(0)
    kept = caught.value.details["compact_revision"]
    assert [event.revision for event in cache.events.since(kept)] == list(range(kept + 1, 21))
    with pytest.raises(HistoryLostError):
        cache.events.since(21)
    assert cache.events.since(20) == []
