"""A checker that cannot fail is a defect: each invariant is broken on purpose, and named."""

from itertools import groupby

import numpy as np
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.cache.events import Cleared, Event, EventLog
from radixkv.tree import Changes, Stored, Trimmed
from tests.support.caches import admit, store
from tests.support.oracle import Fence
from tests.support.trees import CORES


@pytest.fixture(params=CORES)
def cache(request) -> PrefixCache:
    """[1 2 3] cached, [1 2 3 4 5] running on top of it, 4 published, all of it whole."""
    cache = PrefixCache(16, core=request.param)
    store(cache, [1, 2, 3])
    running = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(running, 4)
    assert cache.check_integrity() == []
    return cache


@pytest.fixture
def plain() -> PrefixCache:
    """The same in the readable core, whose insides are for breaking."""
    cache = PrefixCache(16, core="python")
    store(cache, [1, 2, 3])
    running = admit(cache, [1, 2, 3, 4, 5])
    cache.publish(running, 4)
    return cache


def running(cache):
    return cache.live_requests[0]


def broken(cache, invariant: str) -> list[str]:
    lines = [line for line in cache.check_integrity() if line.startswith(invariant)]
    assert lines, f"{invariant} is broken and not reported"
    return lines


# ---- I1: free, tree, private and waiting slots are disjoint and are all there are ----


def test_i1_a_cached_slot_is_free(cache):
    cache.allocator.free([running(cache).slots[0]])
    assert "slot 1 belongs to free and tree" in broken(cache, "I1 partition")[0]


def test_i1_a_private_slot_is_free(cache):
    cache.allocator.free([running(cache).slots[4]])
    assert "slot 5 belongs to free and private" in broken(cache, "I1 partition")[0]


def test_i1_a_slot_is_lost(cache):
    cache.allocator.allocate(2)
    assert "slots [6, 7] are lost: neither free nor held" in broken(cache, "I1 partition")[0]


def test_i1_a_deferred_slot_is_free(cache):
    cache.slots.ledger.deferred.append((Fence(), np.array([9], np.int32)))
    assert "slot 9 belongs to free and deferred" in broken(cache, "I1 partition")[0]


def test_i1_a_slot_of_no_pool_is_deferred(cache):
    cache.slots.ledger.deferred.append((Fence(), np.array([99], np.int32)))
    assert "slots [99] are not in the pool" in broken(cache, "I1 partition")[0]


def test_i1_a_retired_slot_is_cached(cache):
    cache.slots.ledger.is_retired[1] = True
    assert "slot 1 belongs to tree and retired" in broken(cache, "I1 partition")[0]


def test_i1_sums_that_add_up_hide_nothing(cache):
    cache.allocator.allocate(1)
    cache.allocator.free([1])
    stats = cache.stats()
    assert stats.free + stats.allocated + stats.evictable + stats.protected == 16
    one, other = broken(cache, "I1 partition")
    assert ("slot 1 belongs to free and tree" in one, "[6] are lost" in other) == (
        True,
        True,
    )


def test_i1_more_hold_a_slot_than_rows_say(cache):
    cache.slots.ledger.sharers[5] += 1
    assert "holder counts differ at slots [5]" in broken(cache, "I1 partition")[0]


def test_i1_a_row_is_lost(cache):
    cache.req_to_token.allocate()
    assert "free rows" in broken(cache, "I1 partition")[0]


def test_i1_two_requests_have_one_row(cache):
    other = admit(cache, [7])
    other.row = running(cache).row
    assert any("live rows" in line for line in broken(cache, "I1 partition"))


def test_i1_the_tree_holds_a_slot_twice(plain):
    node = next(plain.tree.nodes.walk())[1]
    node.slots = node.slots[[0, 0, 2]]
    assert any("more than once" in line for line in broken(plain, "I1 partition"))


# ---- I2: sizes are what the nodes hold ----


@pytest.mark.parametrize("counter", ["evictable", "protected", "num_nodes"])
@pytest.mark.parametrize("error", [1, -1])
def test_i2_a_size_is_wrong(plain, counter, error):
    nodes = plain.tree.nodes
    setattr(nodes, counter, getattr(nodes, counter) + error)
    broken(plain, "I2 sizes")


# ---- I3: a node is locked once by each live request that reads it ----


def test_i3_a_lock_is_left_behind(cache):
    cache.tree.inc_lock_ref(cache.match_prefix([1, 2, 3, 4]).handle)
    assert "lock_ref 2, 1 live requests" in broken(cache, "I3 locks")[0]


def test_i3_a_lock_is_given_back_too_early(cache):
    cache.tree.dec_lock_ref(running(cache).handle)
    assert "lock_ref 0, 1 live requests" in broken(cache, "I3 locks")[0]


def test_i3_the_lock_is_on_another_path(cache):
    store(cache, [7, 8, 9, 9])
    cache.tree.dec_lock_ref(running(cache).handle)
    cache.tree.inc_lock_ref(cache.match_prefix([7, 8, 9, 9]).handle)
    assert len(broken(cache, "I3 locks")) >= 2


def test_i3_a_node_counts_wrongly(plain):
    next(plain.tree.nodes.walk())[1].lock_ref += 1
    broken(plain, "I3 locks")


# ---- I4: no live row names a slot that is free or another's ----


def test_i4_the_shared_part_of_a_row_names_a_free_slot(cache):
    running(cache).table[1] = 9
    assert "names slot" in broken(cache, "I4 liveness")[0]


def test_i4_the_shared_part_of_a_row_is_out_of_order(cache):
    table = running(cache).table
    table[[0, 1]] = table[[1, 0]]
    broken(cache, "I4 liveness")


def test_i4_the_shared_part_of_a_row_is_of_another_path(cache):
    running(cache).table[:3] = store(cache, [7, 8, 9])
    broken(cache, "I4 liveness")


def test_i4_the_row_is_of_other_tokens(cache):
    running(cache).token_ids[1] = 9
    broken(cache, "I4 liveness")


def test_i4_the_row_is_of_another_namespace(cache):
    running(cache).namespace = Namespace(salt="a")
    broken(cache, "I4 liveness")


def test_i4_the_own_part_of_a_row_names_a_free_slot(cache):
    running(cache).table[4] = 9
    assert "names slot 9, which is free" in broken(cache, "I4 liveness")[0]


def test_i4_duplicates_are_freed_and_the_row_still_names_them(cache):
    """B01: what a publish that forgets to remap leaves behind."""
    request = admit(cache, [1, 2, 3, 4, 5], max_cached=0)
    stale = request.slots.copy()
    cache.publish(request, 5)
    request.table[:5] = stale
    broken(cache, "I4 liveness")


def test_i4_two_rows_name_one_slot_for_different_tokens(cache):
    request = admit(cache, [7, 8, 9], store=False)
    fork = cache.fork(request, 1).requests[0]
    assert cache.check_integrity() == []
    fork.token_ids[1] = 3
    assert "so do other tokens" in broken(cache, "I4 liveness")[0]


def test_i4_two_rows_name_one_slot_at_different_places(cache):
    request = admit(cache, [7, 7, 7], store=False)
    fork = cache.fork(request, 1).requests[0]
    fork.table[[1, 2]] = fork.table[[2, 1]]
    broken(cache, "I4 liveness")


# ---- I5: the log replays to what is resident ----


def log_of(cache) -> list[Event]:
    events: list[Event] = cache.events.since(cache.events.compact_revision)
    return events


def replace_log(cache, events: list[Event], *, is_complete: bool = True) -> None:
    log = EventLog()
    log.revision = log.compact_revision = min((event.revision for event in events), default=1) - 1
    for _, revision in groupby(events, lambda event: event.revision):
        log.append(Changes(event.change for event in revision))  # type: ignore[misc]
    log.is_complete = is_complete
    cache.transactions.events = log


def test_i5_a_store_is_missing_from_the_events(cache):
    replace_log(cache, log_of(cache)[:-1])
    assert "are missing" in broken(cache, "I5 replay")[0]


def test_i5_an_eviction_is_missing_from_the_events(cache):
    cache.abort(running(cache))
    cache.evict(1)
    replace_log(cache, log_of(cache)[:-1])
    assert "are too many" in broken(cache, "I5 replay")[0]


def test_i5_a_part_of_an_eviction_is_missing_from_the_events(cache):
    cache.abort(running(cache))
    cache.evict(2)
    replace_log(cache, log_of(cache)[:-1])
    assert "in the log and" in broken(cache, "I5 replay")[0]


def test_i5_the_events_have_an_eviction_that_never_happened(cache):
    replace_log(cache, [*log_of(cache), Event(3, Trimmed(2, 0))])
    assert "are missing" in broken(cache, "I5 replay")[0]


@pytest.mark.parametrize("field", ["codes", "namespace", "parent_offset", "parent_run"])
def test_i5_a_store_is_wrong_in_the_events(cache, field):
    first, second = log_of(cache)
    fields = {name: getattr(second.change, name) for name in Stored.__slots__}
    wrong = {
        "codes": np.array([9], np.int32),
        "namespace": Namespace(salt="a"),
        "parent_offset": 1,
        "parent_run": 0,
    }
    replace_log(cache, [first, Event(2, Stored(**{**fields, field: wrong[field]}))])
    assert "in the log and" in broken(cache, "I5 replay")[0]


def test_i5_the_events_have_a_clearing_that_never_happened(cache):
    replace_log(cache, [*log_of(cache), Event(3, Cleared())])
    broken(cache, "I5 replay")


def test_i5_what_a_short_log_still_knows_is_checked(cache):
    cache.abort(running(cache))
    cache.transactions.events = EventLog(max_bytes=300)
    for token in range(10, 16):
        store(cache, [token, token])
    assert not cache.events.is_complete
    assert cache.check_integrity() == []
    last = log_of(cache)[-1]
    wrong = [*log_of(cache), Event(last.revision, Trimmed(last.change.run, 1))]
    replace_log(cache, wrong, is_complete=False)
    broken(cache, "I5 replay")


def test_i5_what_a_short_log_keeps_and_the_tree_does_not(cache):
    cache.abort(running(cache))
    ghost = Stored(77, 0, 0, np.array([9], np.int32), log_of(cache)[0].change.namespace)
    replace_log(cache, [Event(2, ghost)], is_complete=False)
    assert "not resident" in broken(cache, "I5 replay")[0]


# ---- I6: without live requests nothing is locked and nothing is private ----


def test_i6_a_lock_outlives_the_last_request(cache):
    cache.tree.inc_lock_ref(cache.match_prefix([1, 2]).handle)
    cache.abort(running(cache))
    assert "2 tokens are protected" in broken(cache, "I6 quiet")[0]


def test_i6_a_slot_outlives_the_last_request(cache):
    cache.abort(running(cache))
    cache.slots.ledger.take(2)
    assert "2 slots private" in broken(cache, "I6 quiet")[0]


# ---- I7: every cached slot is found from the root ----


def test_i7_a_node_stands_under_a_wrong_key(plain):
    root = plain.tree.nodes.roots[running(plain).namespace]
    (node,) = root.children.values()
    root.children = {b"\x09\x00\x00\x00": node}
    broken(plain, "I7 reach")


def test_i7_a_node_says_another_parent(plain):
    _, (_, node) = plain.tree.nodes.walk()
    node.parent = plain.tree.nodes.roots[running(plain).namespace]
    broken(plain, "I7 reach")


def test_i7_a_node_is_shorter_than_it_says(plain):
    node = next(plain.tree.nodes.walk())[1]
    node.slots = node.slots[:-1]
    broken(plain, "I7 reach")


def test_i7_a_subtree_is_cut_off(plain):
    """Nothing walks there any more: its slots are lost, and the sizes show it."""
    next(plain.tree.nodes.walk())[1].children.clear()
    broken(plain, "I1 partition")
    broken(plain, "I2 sizes")


# ---- and the order of eviction and the interned content ----


def test_a_victim_is_missing_from_the_order(plain):
    plain.abort(running(plain))
    plain.tree.nodes.leaves[0].clear()
    broken(plain, "order")


def test_a_node_is_newer_than_its_parent(plain):
    _, (_, node) = plain.tree.nodes.walk()
    node.recency += 100
    broken(plain, "order")


def test_content_is_miscounted(plain):
    store(plain, [8, 8], content=[(0, 2, b"x")])
    plain.tree.nodes.content._uses[0] += 1
    broken(plain, "content")
