"""What one token may use: its own part, whatever others use."""

import threading
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from radixkv import Namespace, PrefixCache, errors
from radixkv.rpc import limits
from radixkv.rpc.quota import TENANT_DEFAULT, CallCounts, Quota
from radixkv.service import CacheServer, Client, InsertCall
from radixkv.service.client import lease_calls
from radixkv.service.client.lease_calls import LeaseRef
from radixkv.v1.info_pb2 import GetServerInfoRequest
from radixkv.v1.info_pb2_grpc import InfoServiceStub
from radixkv.v1.lease_pb2_grpc import LeaseServiceStub
from tests.support.clock import Clock
from tests.support.service import details, hold, refusal
from tests.support.waiting import wait_until

TOKENS = """
[[token]]
name = "engine"
role = "data"
token = "engine"

[[token]]
name = "a"
role = "data"
token = "a"
salt = "a"
slots = 8
leases = 2
pins = 3
streams = 2

[[token]]
name = "b"
role = "data"
token = "b"
salt = "b"

[[token]]
name = "full-1"
role = "data"
token = "full-1"
salt = "full-1"
slots = 24
leases = 3
pins = 4
streams = 2

[[token]]
name = "full-2"
role = "data"
token = "full-2"
salt = "full-2"
slots = 24
leases = 3
pins = 4
streams = 2

[[token]]
name = "slow"
role = "data"
token = "slow"
calls_per_s = 0.001
"""
A, B = Namespace(salt="a"), Namespace(salt="b")


@pytest.fixture
def cache():
    return PrefixCache(64)


@pytest.fixture
def server(cache, tmp_path, clock):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    with CacheServer(cache, "127.0.0.1:0", tokens=file, lends_slots=True, clock=clock) as server:
        yield server


@pytest.fixture
def connect(server):
    """A client with that token."""
    with ExitStack() as stack:
        yield lambda token: stack.enter_context(
            Client(server.address, token=token, timeout_s=60, clock=lambda: 0.0)
        )


@pytest.fixture
def pool(server, connect):
    return connect("engine").server_info().pool_id


@contextmanager
def beyond(quota, most):
    with pytest.raises(errors.OverloadedError) as caught:
        yield
    assert caught.value.details["quota"] == quota
    assert caught.value.details["most"] == most


def granted(client, **fields):
    return client.lease(60, **fields)


def test_leases_of_a_token_are_limited_and_of_others_not(connect, clock):
    a, b = connect("a"), connect("b")
    first = granted(a)
    granted(a)
    with beyond("leases", 2):
        granted(a)
    granted(b)
    first.close()
    granted(a)
    clock.go(100)
    granted(a)


def test_pins_of_a_token_are_limited(connect, cache):
    hold(cache, [1, 2, 3], A)
    hold(cache, [1, 2, 3], B)
    lease, other = granted(connect("a")), granted(connect("b"))
    reply = lease.pin([[1, 2, 3]] * 3, A)
    with beyond("pins", 3):
        lease.pin([1, 2, 3], A)
    other.pin([[1, 2, 3]] * 4, B)
    lease.release([reply.matches[0].pin_id])
    lease.pin([1, 2, 3], A)


def test_slots_of_a_token_are_limited_until_the_grace_is_over(connect, clock, pool):
    a, b = connect("a"), connect("b")
    lease = granted(a, pool_id=pool)
    slots = lease.allocate(6).slots
    with beyond("slots", 8):
        lease.allocate(3)
    granted(b, pool_id=pool).allocate(20)
    lease.insert(InsertCall([1, 2, 3], slots[:3]), A)
    lease.free(slots[3:4])
    lease.allocate(6)
    with beyond("slots", 8):
        lease.allocate(1)
    lease.close()
    again = granted(a, pool_id=pool)
    with beyond("slots", 8):
        again.allocate(1)
    clock.go(6)
    again.allocate(8)


def test_streams_of_a_token_are_limited_and_others_go_on(server, connect):
    """A tenant that opens streams and says nothing takes no one else's."""
    with grpc.insecure_channel(server.address) as channel:
        open_streams(channel, "a", asked=12, granted=2)
        with connect("b").lease(2) as lease:
            lease.check()


def open_streams(channel, token, *, asked, granted):
    """Streams of renewals that say nothing and go on until the channel closes; the rest is
    refused."""
    keep = LeaseServiceStub(channel).KeepLeaseAlive
    streams = [
        keep(_Silence(), metadata=[("authorization", f"Bearer {token}")]) for _ in range(asked)
    ]
    wait_until(lambda: sum(stream.done() for stream in streams) >= asked - granted)
    refused = [details(stream)[0].metadata["quota"] for stream in streams if stream.done()]
    assert refused == ["streams"] * (asked - granted)


class _Silence:
    """Requests that never come; the thread that waits for them does not keep the process."""

    def __iter__(self):
        return self

    def __next__(self):
        threading.Event().wait(20)
        raise StopIteration


def take_all(client, channel, token, namespace, pool):
    """Use a token up to each of its limits at once, and be refused beyond each."""
    infos = [client.send(lease_calls.grant(60, "", pool)) for _ in range(3)]
    with beyond("leases", 3):
        client.send(lease_calls.grant(60))
    lease = LeaseRef(infos[0].id, infos[0].epoch)
    slots = client.send(lease_calls.allocate(lease, 24)).slots
    assert len(slots) == 24
    with beyond("slots", 24):
        client.send(lease_calls.allocate(lease, 1))
    client.send(lease_calls.pin(lease, [[1, 2, 3]] * 4, namespace))
    with beyond("pins", 4):
        client.send(lease_calls.pin(lease, [1, 2, 3], namespace))
    open_streams(channel, token, asked=3, granted=2)


def test_a_tenant_at_all_its_limits_leaves_another_all_of_its_own(server, connect, cache, pool):
    """Two with the same limits, in a pool that has as much as both together; each takes all."""
    for namespace in (Namespace(salt="full-1"), Namespace(salt="full-2")):
        hold(cache, [1, 2, 3], namespace)
    with grpc.insecure_channel(server.address) as channel:
        for token in ("full-1", "full-2"):
            take_all(connect(token), channel, token, Namespace(salt=token), pool)
        assert connect("engine").match([1]).lengths == [0]


def test_calls_a_second_are_limited(connect):
    slow, other = connect("slow"), connect("engine")
    slow.match([1])
    with beyond("calls_per_s", 0.001):
        slow.match([1])
    other.match([1])
    other.match([1])


def test_refusals_of_a_caller_that_calls_too_often_are_late(server, connect, monkeypatch):
    """One that asks again at once would take the server's time with refusals alone."""
    monkeypatch.setattr(limits, "REFUSAL_DELAY_S", 3_600.0)
    slow, other = connect("slow"), connect("b")
    slow.server_info()
    with beyond("calls_per_s", 0.001):
        slow.match([1], timeout_s=0.5)
    stub = InfoServiceStub(grpc.insecure_channel(server.address))
    asked = stub.GetServerInfo.future(
        GetServerInfoRequest(), metadata=[("authorization", "Bearer slow")]
    )
    for _ in range(100):
        other.match([1], B)
    assert not asked.done()
    asked.cancel()


def test_of_too_many_late_refusals_the_rest_comes_at_once(server, connect, monkeypatch):
    monkeypatch.setattr(limits, "REFUSAL_DELAY_S", 3_600.0)
    monkeypatch.setattr(limits, "MOST_LATE_REFUSALS", 0)
    slow = connect("slow")
    slow.server_info()
    stub = InfoServiceStub(grpc.insecure_channel(server.address))
    error = refusal(
        lambda: stub.GetServerInfo(
            GetServerInfoRequest(), metadata=[("authorization", "Bearer slow")], timeout=60
        )
    )
    assert details(error)[0].reason == "OVERLOADED"


def test_a_budget_of_calls_fills_up_again():
    clock = Clock()
    counts, quota = CallCounts(clock), Quota(calls_per_s=2)

    def begun():
        try:
            counts.spend("me", quota)
        except errors.OverloadedError as error:
            return error.details["retry_after_s"]
        return None

    assert [begun() for _ in range(3)] == [None, None, 0.5]
    clock.go(0.5)
    assert [begun(), begun()] == [None, 0.5]
    clock.go(100)
    assert [begun() for _ in range(3)] == [None, None, 0.5], "no more than a second's worth"


def test_calls_under_way_are_counted_for_each_caller():
    counts, quota = CallCounts(), Quota(calls=1)
    with counts.counted("data", "me", quota):
        with beyond("calls", 1), counts.counted("data", "me", quota):
            pass
        with counts.counted("data", "you", quota), counts.counted("stream", "me", quota):
            pass
    with counts.counted("data", "me", quota):
        assert not counts.is_idle
    assert counts.is_idle


def test_tenants_have_limits_without_any_in_the_file(connect):
    assert TENANT_DEFAULT.streams == 64
    b = connect("b")
    for _ in range(TENANT_DEFAULT.leases):
        b.send(_grant())
    with beyond("leases", TENANT_DEFAULT.leases):
        b.send(_grant())


def _grant():
    from radixkv.service.client import lease_calls

    return lease_calls.grant(60)


def test_a_tenant_gets_no_figure_that_others_move(server, connect, cache, pool):
    """Revisions, free slots and evictions show what other tenants compute."""
    a = connect("a")
    lease = granted(a, pool_id=pool)
    before = a.match([1], A), a.server_info()
    hold(cache, range(100, 150), B)
    after = a.match([1], A), a.server_info()
    assert after == before
    found = lease.allocate(8)
    hold(cache, range(200, 256), B)
    assert found.num_evicted == 0
    lease.free(found.slots)
    engine = granted(connect("engine"), pool_id=pool)
    taken = engine.allocate(cache.free_size + cache.tree.evictable_size)
    assert taken.num_evicted > 0
    info, _ = details(refusal(lambda: _allocate(server, lease, 5)))
    assert info.reason == "OUT_OF_SLOTS"
    assert set(info.metadata) == {"requested", "retry_after_s"}
    with pytest.raises(errors.OutOfSlotsError) as caught:
        engine.allocate(64)
    assert caught.value.details["available"] == 0


def _allocate(server, lease, n):
    from radixkv.v1.prefix_cache_pb2 import AllocateSlotsRequest
    from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub

    with grpc.insecure_channel(server.address) as channel:
        PrefixCacheServiceStub(channel).AllocateSlots(
            AllocateSlotsRequest(num_slots=n, lease_id=lease.id, expected_epoch=lease.epoch),
            metadata=[("authorization", "Bearer a")],
            timeout=60,
        )
