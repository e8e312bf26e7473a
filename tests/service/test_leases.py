"""LeaseService, over real sockets, by a clock that the tests turn."""

import time
from functools import partial

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from radixkv import PrefixCache, errors
from radixkv.rpc.limits import LEASE_GRACE_S, LEASE_MARGIN_S
from radixkv.service import AsyncClient, CacheServer, Client, InsertCall
from radixkv.v1 import lease_pb2
from radixkv.v1.lease_pb2_grpc import LeaseServiceStub
from tests.support.clock import Clock
from tests.support.service import connect, details, hold, refusal
from tests.support.waiting import run_threads, wait_until


@pytest.fixture
def server_options(clock):
    return {"alone": True, "clock": clock}


@pytest.fixture
def quiet(server):
    """A client whose leases renew themselves so seldom that no test sees it."""
    with connect(server.address) as client:
        yield client


def grant(client, ttl_s=60.0, **fields):
    """A lease that is never renewed."""
    from radixkv.service.client import lease_calls

    return client.send(lease_calls.grant(ttl_s, **fields))


def test_a_lease_reports_what_it_holds(cache, quiet):
    with quiet.lease(60, holder="engine 1", pool_id="pool") as lease:
        info = quiet.lease_info(lease.id)
        assert (info.ttl_s, info.holder, info.pool_id) == (60, "engine 1", "pool")
        assert 0 < info.remaining_s <= 60
        pins = lease.pin([[1, 2], [3]]).matches
        slots = lease.allocate(5).slots
        info = quiet.lease_info(lease.id)
        assert (info.num_pins, info.num_slots) == (2, 5)
        assert quiet.stats().num_leases == 1
        assert quiet.stats().num_pins == 2
        lease.release([pin.pin_id for pin in pins])
        lease.free(slots)
        info = quiet.lease_info(lease.id)
        assert (info.num_pins, info.num_slots) == (0, 0)
    assert quiet.stats().num_leases == 0


@pytest.mark.parametrize("ttl_s", [0.0, 0.5, 301.0, -5.0])
def test_a_lease_has_a_time_within_limits(quiet, ttl_s):
    with pytest.raises(errors.LeaseTtlError, match="1 to 300") as caught:
        grant(quiet, ttl_s)
    assert caught.value.details["field"] == "ttl"
    assert quiet.server_info().max_lease_ttl_s == 300


def test_a_long_name_is_refused(quiet):
    for field in ("holder", "pool_id"):
        with pytest.raises(errors.InvalidArgumentError, match="128 bytes"):
            grant(quiet, **{field: "é" * 65})


def test_B21_an_expired_lease_holds_nothing_and_its_slots_sit_out_the_grace(cache, quiet, clock):
    """The client is gone without a word."""
    info = grant(quiet, 10, pool_id="p")
    other = grant(quiet, 100, pool_id="p")
    with quiet.lease(60, pool_id="p") as lease:
        slots = lease.allocate(3).slots
        lease.insert(InsertCall([1, 2, 3], slots))
    from radixkv.service.client import lease_calls

    ref = lease_calls.LeaseRef(info.id, info.epoch)
    quiet.send(lease_calls.pin(ref, [1, 2, 3], leave_last_token=False))
    quiet.send(lease_calls.allocate(ref, 4))
    assert quiet.evict(3) == 0
    clock.go(10.0)
    assert quiet.evict(3) == 3
    stats = quiet.stats()
    assert (stats.allocated_slots, stats.protected_size, stats.waiting_slots) == (0, 0, 4)
    clock.go(LEASE_GRACE_S)
    stats = quiet.stats()
    assert (stats.free_slots, stats.num_leases, stats.num_pins) == (64, 1, 0)
    assert quiet.check() == []
    error = errors.LeaseNotFoundError
    for call in (
        lambda: quiet.lease_info(info.id),
        lambda: quiet.revoke_lease(info.id, info.epoch),
        lambda: quiet.send(lease_calls.allocate(ref, 1)),
        lambda: quiet.send(lease_calls.pin(ref, [1])),
        lambda: quiet.send(lease_calls.release(ref, [1])),
    ):
        with pytest.raises(error, match="it has ended, or was never granted"):
            call()
    assert quiet.lease_info(other.id).remaining_s == 90 - LEASE_GRACE_S


def test_leases_end_without_a_call(cache, quiet, clock):
    lease = grant(quiet, 10, pool_id="p")
    from radixkv.service.client import lease_calls

    quiet.send(lease_calls.allocate(lease_calls.LeaseRef(lease.id, lease.epoch), 4))
    clock.go(11)
    wait_until(lambda: cache.stats().waiting == 4)
    clock.go(LEASE_GRACE_S)
    wait_until(lambda: cache.stats().free == 64)


def test_keeping_alive_and_being_gone(channel, quiet, clock):
    lease, short = grant(quiet, 10), grant(quiet, 5)
    stub = LeaseServiceStub(channel)

    def keep(*names):
        requests = [
            lease_pb2.KeepLeaseAliveRequest(lease_id=id, expected_epoch=epoch)
            for id, epoch in names
        ]
        return [
            response.ttl.seconds if response.HasField("ttl") else None
            for response in stub.KeepLeaseAlive(iter(requests))
        ]

    clock.go(4)
    assert keep((lease.id, lease.epoch), (short.id, short.epoch)) == [10, 5]
    clock.go(6)
    assert keep((lease.id, lease.epoch), (short.id, short.epoch)) == [10, None]
    assert keep((lease.id, lease.epoch + 1), (99, lease.epoch)) == [None, None]


def test_a_client_renews_its_lease_by_itself(cache, address):
    with (
        CacheServer(cache, address) as server,
        connect(server.address) as client,
        client.lease(1.0) as lease,
    ):
        time.sleep(1.6)
        lease.check()
        assert client.lease_info(lease.id).remaining_s > 0


def test_an_old_connection_is_given_up_and_all_that_lives_on_it_goes_on(cache, monkeypatch):
    monkeypatch.setattr(
        "radixkv.rpc.server.AGE_OPTIONS",
        [("grpc.max_connection_age_ms", 200), ("grpc.max_connection_age_grace_ms", 100)],
    )
    with (
        CacheServer(cache, "127.0.0.1:0") as server,
        connect(server.address) as client,
        client.lease(2.0) as lease,
        client.watch() as watch,
    ):
        assert next(watch).is_start
        end = time.monotonic() + 1.5
        stored = 0
        while time.monotonic() < end:
            stored += 1
            hold(cache, [stored])
            while next(watch).revision < cache.events.revision:
                pass
            lease.check()
            assert client.match([stored]).lengths == [1]
        assert client.lease_info(lease.id).remaining_s > 0


async def test_an_async_client_renews_its_lease_by_itself(cache, address):
    import asyncio

    with CacheServer(cache, address, lends_slots=True, pool_id="p") as server:
        async with (
            AsyncClient(server.address, timeout_s=60) as client,
            await client.lease(1.0, pool_id="p") as lease,
        ):
            await asyncio.sleep(1.6)
            found = await lease.allocate(2)
            (done,) = await lease.insert(InsertCall([1, 2], found.slots))
            assert done.cached_length == 2
            (pinned,) = (await lease.pin([1, 2, 3])).matches
            assert await lease.release([pinned.pin_id]) == 1
        assert cache.stats().evictable == 2


def test_the_holders_clock_ends_before_the_servers(server, clock):
    """A frozen holder finds its time over, whatever the server would say."""
    mine = Clock()
    from radixkv.service import Client

    with Client(server.address, timeout_s=60, clock=mine) as client:
        lease = client.lease(60, pool_id="p")
        lease._closed.set()  # renews no more
        slots = lease.allocate(2).slots
        mine.go(60 - LEASE_MARGIN_S - 0.01)
        lease.check()
        mine.go(0.02)
        for use in (
            lease.check,
            lambda: lease.free(slots),
            lambda: lease.allocate(1),
            lambda: lease.insert(InsertCall([1, 2], slots)),
            lambda: lease.pin([1]),
        ):
            with pytest.raises(errors.LeaseExpiredError, match="s are left by our clock"):
                use()
        assert client.lease_info(lease.id).num_slots == 2
        assert issubclass(errors.LeaseExpiredError, errors.LeaseNotFoundError)


def test_a_lease_that_the_server_ended_is_not_used(cache, quiet):
    lease = quiet.lease(3, pool_id="p")
    quiet.revoke_lease(lease.id, lease.epoch)
    wait_until(lambda: lease._term.is_lost)
    with pytest.raises(errors.LeaseExpiredError, match="the server ended it"):
        lease.check()
    lease.close()


def test_revoking_reports_what_was_held(cache, quiet, clock):
    lease = quiet.lease(60, pool_id="p")
    lease.pin([1])
    lease.allocate(3)
    assert quiet.revoke_lease(lease.id, lease.epoch) == (1, 3)
    clock.go(LEASE_GRACE_S)
    assert quiet.stats().free_slots == 64
    lease.close()


def test_leases_page_by_page(quiet):
    granted = sorted(grant(quiet).id for _ in range(7))
    seen, token = [], ""
    while True:
        page = quiet.leases(token, page_size=3)
        seen += [lease.id for lease in page.leases]
        token = page.next_page_token
        if not token:
            break
    assert seen == granted
    assert [lease.id for lease in quiet.leases().leases] == granted
    for wrong in (
        {"page_size": -1},
        {"page_size": 1001},
        {"page_token": "x"},
        {"page_token": "9" * 5000},
    ):
        with pytest.raises(errors.InvalidArgumentError, match="page_"):
            quiet.leases(**wrong)


@pytest.mark.parametrize("address", ["127.0.0.1:0"])
def test_ten_thousand_leases(server, quiet, clock):
    """All of them live, all of them end, and others are answered meanwhile."""
    from radixkv.rpc.call import Call
    from radixkv.rpc.method_table import GRANT_LEASE
    from radixkv.service.server.handlers import LeaseHandlers

    handlers, call = LeaseHandlers(server._context), Call(GRANT_LEASE)
    for _ in range(10_000 - 2):
        handlers.grant_lease(lease_pb2.GrantLeaseRequest(ttl=Duration(seconds=100)), call)
    grant(quiet, 100)
    with quiet.lease(60, pool_id="p") as lease:
        assert quiet.stats().num_leases == 10_000
        assert len(lease.allocate(64).slots) == 64
    clock.go(200)
    assert quiet.stats().num_leases == 0


def test_more_leases_and_pins_than_the_server_takes(quiet, monkeypatch):
    monkeypatch.setattr("radixkv.service.server.leases.MAX_LEASES", 2)
    monkeypatch.setattr("radixkv.service.server.leases.MAX_PINS", 3)
    lease = quiet.lease(60)
    grant(quiet)
    with pytest.raises(errors.OverloadedError, match="leases must be at most 2") as caught:
        grant(quiet)
    assert caught.value.details["retry_after_s"] == 1.0
    lease.pin([[1], [2]])
    with pytest.raises(errors.OverloadedError, match="at most 3; the server takes no more"):
        lease.pin([[1], [2]])
    assert quiet.lease_info(lease.id).num_pins == 2
    lease.pin([1])


# ---- pools ----


def cached(client, tokens):
    return client.match(tokens, probe=True).lengths[0]


def fill(client, pool_id, tokens):
    lease = client.lease(60, pool_id=pool_id)
    slots = lease.allocate(len(tokens)).slots
    lease.insert(InsertCall(tokens, slots))
    return lease


def test_another_pool_is_another_epoch_and_nothing_of_the_old_is_matched(quiet, caplog):
    """The engine that owns the pool dies and comes back with another."""
    old = fill(quiet, "pool of boot 1", [1, 2, 3])
    router = quiet.lease(60)
    held = old.allocate(4).slots
    assert cached(quiet, [1, 2, 3]) == 3
    with pytest.raises(errors.LiveRequestsError, match="while leases name it") as caught:
        quiet.lease(60, pool_id="pool of boot 2")
    assert caught.value.details["pool_id"] == "pool of boot 1"
    assert cached(quiet, [1, 2, 3]) == 3
    new = quiet.lease(60, pool_id="pool of boot 2", replaces_pool=True)
    said = [record.getMessage() for record in caplog.records if "cache cleared" in record.message]
    assert said == [
        "cache cleared, pool 'pool of boot 1' with 3 tokens is gone: "
        "a caller replaced it by 'pool of boot 2'"
    ]
    assert new.epoch != old.epoch
    assert cached(quiet, [1, 2, 3]) == 0
    assert quiet.server_info().pool_id == "pool of boot 2"
    assert len(new.allocate(64).slots) == 64, "what the old one writes is in another pool"
    for lease in (old, router):
        with pytest.raises((errors.EpochMismatchError, errors.LeaseExpiredError)):
            lease.pin([1])
    with pytest.raises((errors.EpochMismatchError, errors.LeaseExpiredError)):
        old.free(held)
    assert quiet.check() == []


def test_the_end_of_a_pool_is_logged_in_one_line(quiet, caplog):
    fill(quiet, "p", [1, 2]).close()
    (said,) = [record for record in caplog.records if "cache cleared" in record.message]
    assert said.getMessage() == (
        "cache cleared, pool 'p' with 2 tokens is gone: its last lease ended, of ''"
    )


def test_only_an_admin_replaces_a_pool(cache, tmp_path):
    (tmp_path / "tokens.toml").write_text(
        '[[token]]\nname = "engine"\nrole = "data"\ntoken = "e"\n'
        '[[token]]\nname = "op"\nrole = "admin"\ntoken = "o"\n'
    )
    with (
        CacheServer(cache, "127.0.0.1:0", alone=True, tokens=tmp_path / "tokens.toml") as server,
        Client(server.address, token="e", timeout_s=60) as engine,
        Client(server.address, token="o", timeout_s=60) as operator,
        engine.lease(60, pool_id="p"),
    ):
        with pytest.raises(errors.ForbiddenError, match="may not replace a pool"):
            engine.lease(60, pool_id="q", replaces_pool=True)
        with operator.lease(60, pool_id="q", replaces_pool=True) as lease:
            assert lease.pool_id == "q"


async def test_an_async_lease_is_entered_at_once_or_awaited_before(server):
    async with AsyncClient(server.address, timeout_s=60) as client:
        async with client.lease(60, pool_id="p") as lease:
            assert len((await lease.allocate(3)).slots) == 3
        async with await client.lease(60, pool_id="p") as lease:
            assert len((await lease.allocate(3)).slots) == 3
        lease = await client.lease(60)
        await lease.close()


def test_ranks_of_one_engine_share_a_pool(quiet):
    first = fill(quiet, "p", [1, 2])
    second = fill(quiet, "p", [3, 4])
    assert first.epoch == second.epoch
    first.close()
    assert cached(quiet, [1, 2]) == 2
    second.close()
    assert cached(quiet, [1, 2]) == 0, "with its last lease the pool is gone"
    assert quiet.server_info().pool_id == ""
    again = quiet.lease(60, pool_id="p")
    assert again.epoch != second.epoch


def test_the_pool_ends_with_its_engine_and_a_frozen_one_keeps_its_slots_for_the_grace(quiet, clock):
    lease = fill(quiet, "p", [1, 2])
    lease._closed.set()
    lease.allocate(10)
    clock.go(61)
    assert cached(quiet, [1, 2]) == 0
    again = quiet.lease(60, pool_id="p")
    assert quiet.stats().free_slots == 54
    with pytest.raises(errors.OutOfSlotsError) as caught:
        again.allocate(60)
    assert (caught.value.details["requested"], caught.value.details["available"]) == (60, 54)
    clock.go(LEASE_GRACE_S)
    assert len(again.allocate(60).slots) == 60


def test_without_a_pool_a_lease_holds_pins_alone(quiet):
    with quiet.lease(60) as lease:
        assert lease.pin([1]).lengths == [0]
        for call in (
            lambda: lease.allocate(1),
            lambda: lease.free([1]),
            lambda: lease.insert(InsertCall([1], [1])),
        ):
            with pytest.raises(errors.InvalidArgumentError, match="of a lease with a pool_id"):
                call()


def test_an_engines_own_pool_is_never_cleared_from_outside(cache, address):
    hold(cache, [1, 2, 3])
    with CacheServer(cache, address) as server, connect(server.address) as client:
        pool_id = client.server_info().pool_id
        assert len(pool_id) == 16
        with pytest.raises(errors.InvalidArgumentError, match=r"this server's.*lends no slots"):
            client.lease(60, pool_id="another")
        with client.lease(60, pool_id=pool_id) as lease:
            assert lease.pin([1, 2, 3], leave_last_token=False).lengths == [3]
            assert cache.evict(3) == 0
            for call in (
                lambda: lease.allocate(1),
                lambda: lease.free([1]),
                lambda: lease.insert(InsertCall([9], [1])),
            ):
                with pytest.raises(errors.UnsupportedError, match="keeps its slots to itself"):
                    call()
        assert cached(client, [1, 2, 3]) == 3
        assert cache.evict(3) == 3


def test_an_engine_and_remote_ones_share_one_pool(cache, address):
    with (
        CacheServer(cache, address, lends_slots=True, pool_id="ours") as server,
        connect(server.address) as client,
        client.lease(60, pool_id="ours") as lease,
    ):
        with pytest.raises(errors.InvalidArgumentError, match="must be this server's, 'ours'; got"):
            client.lease(60, pool_id="another")
        own = cache.admit([1, 2, 3])
        slots = lease.allocate(61).slots
        assert cache.admit([9]) is None
        lease.insert(InsertCall([4, 5], slots[:2]))
        lease.free(slots[2:])
        cache.publish(own, 3)
        assert client.match([[1, 2, 3], [4, 5]]).lengths == [3, 2]
        assert client.check() == []
        cache.finish(own, up_to=own.length)


def test_B25_weights_that_change_end_leases_and_pins(cache, quiet, clock):
    """Nothing is pinned nor stored under the weights before."""
    lease = fill(quiet, "p", [1, 2])
    lease.pin([1, 2, 3])
    held = lease.allocate(4).slots
    cache.set_weight_version(2)
    wait_until(lambda: quiet.stats().num_leases == 0)
    assert quiet.stats().waiting_slots == 4 + 2
    with pytest.raises((errors.EpochMismatchError, errors.LeaseExpiredError)):
        lease.insert(InsertCall([5, 6, 7, 8], held))
    assert cached(quiet, [1, 2]) == 0
    clock.go(LEASE_GRACE_S)
    assert quiet.stats().free_slots == 64
    assert quiet.check() == []


# ---- what the wire says ----


def test_an_unknown_lease_as_another_language_sees_it(channel, cache):
    error = refusal(
        lambda: LeaseServiceStub(channel).GetLease(lease_pb2.GetLeaseRequest(lease_id=7))
    )
    info, beside = details(error)
    assert (error.code(), info.reason) == (grpc.StatusCode.NOT_FOUND, "LEASE_NOT_FOUND")
    assert (beside.resource_type, beside.resource_name) == ("radixkv.lease", "7")


def test_what_names_a_lease_names_its_epoch(channel, quiet, cache):
    lease = grant(quiet)
    stub = LeaseServiceStub(channel)
    error = refusal(lambda: stub.RevokeLease(lease_pb2.RevokeLeaseRequest(lease_id=lease.id)))
    info, beside = details(error)
    assert (info.reason, beside.field_violations[0].field) == ("INVALID_ARGUMENT", "expected_epoch")
    wrong = lease_pb2.RevokeLeaseRequest(lease_id=lease.id, expected_epoch=lease.epoch + 2)
    error = refusal(lambda: stub.RevokeLease(wrong))
    assert (error.code(), details(error)[0].reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "EPOCH_MISMATCH",
    )


def test_a_ttl_out_of_range_on_the_wire(channel):
    request = lease_pb2.GrantLeaseRequest(ttl=Duration(nanos=1))
    error = refusal(lambda: LeaseServiceStub(channel).GrantLease(request))
    info, beside = details(error)
    assert (error.code(), info.reason) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "LEASE_TTL_OUT_OF_RANGE",
    )
    assert beside.field_violations[0].field == "ttl"


def test_many_holders_at_once(cache, server):
    """Threads pin, allocate, store, free and go; nothing is lost."""
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with connect(server.address) as client, client.lease(60, pool_id="p") as lease:
                for turn in range(8):
                    prompt = [1, number % 2, turn, 4, 5]
                    (pin,) = lease.pin(prompt).matches
                    below = prompt[pin.length :]
                    try:
                        slots = lease.allocate(len(below)).slots
                    except errors.OutOfSlotsError:
                        lease.release([pin.pin_id])
                        continue
                    (done,) = lease.insert(InsertCall(below, slots, pin.pin_id))
                    lease.free(slots[: done.existing_length - pin.length])
        except BaseException as error:
            wrong.append(error)

    with connect(server.address) as client, client.lease(60, pool_id="p"):
        run_threads(*(partial(work, number) for number in range(6)))
        assert wrong == []
        stats = client.stats()
        assert (stats.allocated_slots, stats.protected_size, stats.num_pins) == (0, 0, 0)
        assert client.check() == []


def test_a_cache_of_pages(address):
    cache = PrefixCache(64, page_size=4)
    with (
        CacheServer(cache, address, alone=True) as server,
        connect(server.address) as client,
        client.lease(60, pool_id="p") as lease,
    ):
        slots = lease.allocate(6).slots
        assert len(slots) == 8
        (done,) = lease.insert(InsertCall(range(6), slots[:6], keep=True))
        assert done.cached_length == 4
        assert lease.pin([0, 1, 2, 3, 4, 5]).lengths == [4]
        lease.free(slots[4:])
        assert client.check() == []
