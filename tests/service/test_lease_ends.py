"""Ends of leases: a few at a time, none that was renewed in time, at a cost of what they hold."""

import pytest

from radixkv import PrefixCache
from radixkv.rpc.auth import ANYONE
from radixkv.service.server import leases as module
from radixkv.service.server.leases import Leases

GRACE_S = 5.0


@pytest.fixture
def cache():
    return PrefixCache(512)


@pytest.fixture
def leases(cache, clock):
    return Leases(cache, pool_id="p", lends_slots=True, grace_s=GRACE_S, clock=clock)


def grant(leases, ttl_s=10.0):
    return leases.grant(ANYONE, ttl_s, "", "p")


def borrow(leases, cache, lease, n):
    cache.loans.allocate(leases.borrower(lease), n)
    leases.count_slots(lease, n)


def settled(leases):
    """How many turns it takes until nothing is over."""
    turns = 0
    while leases.is_overdue:
        leases.settle()
        turns += 1
    return turns


def test_leases_that_end_together_end_in_several_turns(leases, cache, clock, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ENDS_A_TURN", 10)
    for _ in range(95):
        borrow(leases, cache, grant(leases), 1)
    clock.go(11)
    leases.settle()
    assert len(leases) == 85
    assert settled(leases) == 9
    assert (len(leases), cache.free_size) == (0, 512 - 95)
    clock.go(GRACE_S)
    leases.settle()
    assert cache.free_size == 512 - 85
    settled(leases)
    assert cache.free_size == 512


def test_a_lease_that_is_over_is_gone_before_its_turn(leases, clock, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ENDS_A_TURN", 1)
    first, second = grant(leases), grant(leases)
    clock.go(11)
    assert not leases.has(first.id)
    assert list(leases.after(0, ANYONE)) == []
    leases.settle()
    assert not leases.has(second.id)


def test_a_renewal_that_came_in_time_counts_however_long_it_waits(leases, cache, clock):
    late, in_time = grant(leases), grant(leases)
    clock.go(9)
    leases.note_renewal(in_time.id, cache.events.epoch, ANYONE)
    clock.go(2)
    leases.note_renewal(late.id, cache.events.epoch, ANYONE)
    assert leases.has(in_time.id)
    leases.settle()
    assert (leases.has(late.id), leases.has(in_time.id)) == (False, True)
    assert leases.remaining_s(in_time) == 8, "from when it came"
    leases.renew(in_time)
    clock.go(9)
    leases.settle()
    assert leases.has(in_time.id)
    clock.go(2)
    leases.settle()
    assert not leases.has(in_time.id)


def test_a_renewal_of_another_epoch_counts_for_nothing(leases, cache, clock):
    lease = grant(leases)
    leases.note_renewal(lease.id, cache.events.epoch + 1, ANYONE)
    clock.go(11)
    leases.settle()
    assert not leases.has(lease.id)


def test_the_slots_of_a_lease_are_counted_not_scanned(leases, cache, clock):
    """What a lease holds is known without a look at all slots, at its end too."""
    holder, others = grant(leases, 100), [grant(leases) for _ in range(3)]
    borrow(leases, cache, holder, 7)
    for lease in others:
        borrow(leases, cache, lease, 2)
    assert holder.num_slots == len(leases.slots(holder)) == 7
    assert leases.revoke(holder) == (0, 7)
    clock.go(11)
    settled(leases)
    assert cache.loans.aside_size == 6, "the grace of the first is over"
    clock.go(GRACE_S)
    settled(leases)
    assert cache.free_size == 512
    assert cache.check_integrity() == []
