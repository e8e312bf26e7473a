"""AdminService, EvictPrefixes and GetStats of a namespace."""

import threading
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv import Namespace, PrefixCache, errors
from radixkv.cache import integrity
from radixkv.rpc.codec import unpack, write_namespace
from radixkv.service import CacheServer, Prompt
from radixkv.service.server.handlers import context
from radixkv.v1 import admin_pb2
from radixkv.v1.admin_pb2_grpc import AdminServiceStub
from radixkv.v1.info_pb2 import GetStatsRequest
from radixkv.v1.info_pb2_grpc import InfoServiceStub
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest
from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub
from radixkv.v1.types_pb2 import TokenSequence
from tests.support.service import connect, details, hold, refusal

ASK = GetStatsRequest()
A, B = Namespace(salt="a"), Namespace(salt="b")


def test_evicting(cache, client):
    hold(cache, range(10))
    assert client.evict(4) == 4
    assert client.evict(0) == 0
    assert client.evict(100) == 6
    assert client.evict(1) == 0


def test_evicting_what_continues_a_prefix(cache, client):
    hold(cache, [1, 2, 3, 4])
    hold(cache, [1, 2, 9])
    hold(cache, [1, 7])
    assert client.evict_below([1, 2]) == 3
    assert client.match([[1, 2, 3], [1, 7]]).lengths == [2, 2]
    assert client.evict_below([5]) == 0, "it is not cached"
    assert client.check() == []


def test_what_is_pinned_stays_when_its_prefix_is_evicted(cache, client):
    hold(cache, [1, 2, 3, 4])
    hold(cache, [1, 2, 9])
    with client.lease(60) as lease:
        lease.pin([1, 2, 3], leave_last_token=False)
        assert client.evict_below([1]) == 2, "4 and 9"
        assert client.match([[1, 2, 3, 4], [1, 2, 9]]).lengths == [3, 2]
    assert client.evict_below([1]) == 2


def test_an_empty_prefix_is_a_whole_namespace(cache, client):
    for namespace in (A, B):
        hold(cache, [1, 2, 3], namespace)
    assert client.evict_below([], A) == 3
    assert client.match([1, 2], A).lengths == [0]
    assert client.match([1, 2], B).lengths == [2]


def test_evicting_below_content(cache, client):
    """Text with the same placeholder tokens is another prefix."""
    hold(cache, [1, 5, 5, 2], content=[(1, 2, b"cat")])
    hold(cache, [1, 5, 5, 2], content=[(1, 2, b"dog")])
    assert client.evict_below(Prompt([1, 5, 5], [(1, 2, b"cat")])) == 1
    assert client.match(Prompt([1, 5, 5, 2], [(1, 2, b"dog")])).lengths == [4]


def test_what_no_eviction_can_be(channel):
    stub = PrefixCacheServiceStub(channel)
    both = EvictPrefixesRequest(num_tokens=1, prefix=TokenSequence(ids=[1]))
    info, beside = details(refusal(lambda: stub.EvictPrefixes(both)))
    assert (info.reason, beside.field_violations[0].field) == ("INVALID_ARGUMENT", "num_tokens")


def test_a_part_of_a_page_is_no_prefix_to_evict_below(address):
    whole = "whole pages of 4; got 3"
    with (
        CacheServer(PrefixCache(64, page_size=4), address) as server,
        connect(server.address) as client,
    ):
        with pytest.raises(errors.InvalidArgumentError, match=whole) as caught:
            client.evict_below([1, 2, 3])
        assert caught.value.details["field"] == "prefix"


def test_clearing(cache, client):
    hold(cache, [1, 2])
    before = client.stats().epoch
    with client.lease(60) as lease:
        lease.pin([1, 2])
        with pytest.raises(errors.LiveRequestsError, match="1 pins") as caught:
            client.clear()
        assert caught.value.reason == "PREFIX_PINNED"
        assert client.match([1, 2]).lengths == [2]
        epoch = client.clear(force=True)
        assert epoch == client.stats().epoch != before
        stats = client.stats()
        assert (stats.num_leases, stats.num_pins, stats.protected_size) == (0, 0, 0)
        with pytest.raises((errors.EpochMismatchError, errors.LeaseExpiredError)):
            lease.pin([1])
    assert client.match([1, 2]).lengths == [0]
    assert client.check() == []


def test_clearing_under_an_engines_requests(cache, client, channel):
    request = cache.admit([1, 2, 3])
    error = refusal(lambda: AdminServiceStub(channel).ClearCache(admin_pb2.ClearCacheRequest()))
    info, beside = details(error)
    assert (error.code(), info.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PREFIX_PINNED")
    assert beside.violations[0].type == "PREFIX_PINNED"
    client.clear(force=True)
    cache.finish(request, up_to=request.length)
    assert client.stats().free_slots == 64


def test_a_broken_cache_is_found_and_answers_nothing_any_more(channel):
    cache = PrefixCache(16)
    hold(cache, [1, 2])
    with CacheServer(cache, "127.0.0.1:0") as server, connect(server.address) as client:
        assert client.check() == []
        cache.loans.borrower_of[9] = 1
        violations = client.check()
        assert any("I1" in line for line in violations)
        for call in (client.stats, lambda: client.match([1]), lambda: client.lease(60)):
            with pytest.raises(errors.CacheCorruptedError) as caught:
                call()
            assert caught.value.details["code"] == "DATA_LOSS"
        info, beside = details(refusal(lambda: InfoServiceStub(client._channel).GetStats(ASK)))
        assert (info.reason, dict(info.metadata)) == ("CACHE_CORRUPTED", {})
        assert list(beside.stack_entries) == violations[:10], "shown on this machine alone"
        assert client.check() == violations
        health = health_pb2_grpc.HealthStub(client._channel)
        for response in health.Watch(health_pb2.HealthCheckRequest()):
            if response.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                break


def dump(channel, **fields):
    stub = AdminServiceStub(channel)
    return list(stub.DumpTree(admin_pb2.DumpTreeRequest(**fields), timeout=60))


def test_a_dump_shows_every_node(cache, channel):
    hold(cache, [1, 2, 3, 4], A)
    hold(cache, [1, 2, 9], A)
    hold(cache, [7], B)
    (response,) = dump(channel, want_tokens=True)
    assert response.header.revision == 3
    nodes = {node.node_id: node for node in response.nodes}
    assert [len(unpack(node.tokens)) for node in nodes.values()] == [
        node.num_tokens for node in nodes.values()
    ]
    spelled = sorted(unpack(node.tokens).tolist() for node in nodes.values())
    assert spelled == [[1, 2], [3, 4], [7], [9]]
    assert {node.parent_id for node in nodes.values()} <= {0, *nodes}
    shown = dump(channel, max_depth=1)[0].nodes
    assert [(node.num_tokens, node.tokens) for node in shown] == [(2, b""), (1, b"")]
    only = dump(channel, namespace=write_namespace(B), want_tokens=True)[0].nodes
    assert [unpack(node.tokens).tolist() for node in only] == [[7]]
    assert dump(channel, namespace=write_namespace(Namespace()))[0].nodes == []


def test_B22_a_dump_of_two_million_tokens_comes_in_pieces():
    """Over a channel with gRPC's own limit of 4 MiB."""
    cache = PrefixCache(2_000_000, max_context_len=1_500_000)
    hold(cache, np.arange(1_500_000, dtype=np.int32))
    for start in range(0, 500_000, 1000):
        hold(cache, np.arange(2_000_000 + start, 2_001_000 + start, dtype=np.int32))
    with (
        CacheServer(cache, "127.0.0.1:0") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        responses = dump(channel, want_tokens=True)
    assert max(response.ByteSize() for response in responses) < 2**18
    tokens: dict[int, list] = {}
    for node in (node for response in responses for node in response.nodes):
        parts = tokens.setdefault(node.node_id, [])
        assert node.tokens_offset == sum(map(len, parts))
        parts.append(unpack(node.tokens))
    assert sum(len(part) for parts in tokens.values() for part in parts) == 2_000_000
    longest = max(tokens.values(), key=lambda parts: sum(map(len, parts)))
    assert np.array_equal(np.concatenate(longest), np.arange(1_500_000))


def test_stats_of_one_namespace(cache, client):
    hold(cache, [1, 2, 3], A)
    hold(cache, [1, 2], B)
    with client.lease(60) as lease:
        lease.pin([1, 2, 3], A)
        stats = client.stats(A)
        assert (stats.evictable_size, stats.protected_size, stats.num_pins) == (1, 2, 1)
        assert stats.num_nodes == 2
        assert client.stats(B).evictable_size == 2
        assert client.stats(Namespace()).evictable_size == 0


def test_a_check_pauses_between_its_slices(cache, client, monkeypatch):
    """A call that waits for the lock gets it there; it would not from a thread that never waits."""
    matched = []

    def pause(seconds):
        other = threading.Thread(target=lambda: matched.append(cache.probe(range(10))))
        other.start()
        other.join(30)

    monkeypatch.setattr(context, "time", SimpleNamespace(sleep=pause))
    hold(cache, range(10))
    monkeypatch.setattr(integrity, "_SLOTS", 16)
    assert client.check() == []
    assert len(matched) > cache.num_slots // 16
    assert set(matched) == {10}
