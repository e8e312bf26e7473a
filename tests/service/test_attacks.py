"""Floods, guesses and garbage: each is answered with its reason, and others are served meanwhile.

What else is held off has its tests beside what it attacks: `test_auth.py` (tokens, roles, guesses
of namespaces, certificates), `test_leases.py` (10,000 leases), `test_slots.py` (others' slots and
pins), `test_limits.py` (messages over the limit), `test_processes.py` (what is no gRPC).
"""

import socket
import struct
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.rpc import limits
from radixkv.rpc.limits import MAX_MESSAGE_BYTES
from radixkv.service import CacheServer
from radixkv.v1.lease_pb2 import KeepLeaseAliveRequest
from radixkv.v1.lease_pb2_grpc import LeaseServiceStub
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest
from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub
from radixkv.v1.types_pb2 import TokenSequence
from tests.support.service import SlowCache, connect, details, hold, refusal

ONE = MatchPrefixRequest(sequences=[TokenSequence(ids=[1])])


@pytest.fixture
def slow():
    """A server on a cache whose matches wait until they are let go."""
    cache = SlowCache(64)
    with CacheServer(cache, "127.0.0.1:0") as server, grpc.insecure_channel(server.address) as ch:
        yield cache, server, PrefixCacheServiceStub(ch)
        cache.go.set()


def test_more_calls_than_are_taken_at_once(slow, monkeypatch):
    monkeypatch.setitem(limits.CONCURRENT_CALLS, "data", 3)
    cache, server, stub = slow
    running = [stub.MatchPrefix.future(ONE, timeout=60) for _ in range(3)]
    assert cache.is_inside.wait(timeout=60)
    error = refusal(lambda: stub.MatchPrefix(ONE, timeout=0.2))
    while error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:  # the three are still on their way
        error = refusal(lambda: stub.MatchPrefix(ONE, timeout=0.2))
    info, beside = details(error)
    assert (error.code(), info.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    assert beside.retry_delay.ToMilliseconds() == 100
    place = cache.events.position()
    with connect(server.address) as client, client.watch(after=place) as watch:
        assert next(watch)[:2] == place, "streams are another kind"
        cache.go.set()
        assert [call.result().matches[0].matched_length for call in running] == [0, 0, 0]
        assert client.match([1]).lengths == [0]


def test_a_server_that_drains_says_so_to_who_calls_then(slow):
    cache, server, stub = slow
    keep = LeaseServiceStub(grpc.insecure_channel(server.address)).KeepLeaseAlive
    ended = threading.Event()

    def requests():
        yield KeepLeaseAliveRequest(lease_id=1)
        ended.wait(60)

    conversation = keep(requests())
    next(conversation)
    under_way = stub.MatchPrefix.future(ONE, timeout=60)
    assert cache.is_inside.wait(timeout=60)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(server.stop, 60)
        info, beside = details(refusal(lambda: next(conversation)))
        assert info.reason == "DRAINING"
        ended.set()
        error = refusal(lambda: stub.MatchPrefix(ONE, timeout=60))
        info, beside = details(error)
        assert (error.code(), info.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert beside.retry_delay.seconds == 1
        cache.go.set()
        assert under_way.result().matches[0].matched_length == 0
        stopping.result()


def test_a_small_message_that_unpacks_to_a_large_one(server, cache, client):
    """Zeros compress a thousandfold; what counts is what they take unpacked."""
    hold(cache, [1, 2])
    before = cache.stats()
    bomb = MatchPrefixRequest(sequences=[TokenSequence(packed=bytes(MAX_MESSAGE_BYTES + 1000))])
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.address, options) as channel:
        match = PrefixCacheServiceStub(channel).MatchPrefix
        error = refusal(lambda: match(bomb, compression=grpc.Compression.Gzip, timeout=60))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert cache.stats() == before
    assert client.match([1, 2]).lengths == [2]


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


FRAMES = {
    "noise": np.random.default_rng(8).bytes(4096),
    "headers of nothing": frame(1, 4, 1, b"\xff" * 40),
    "data of no stream": frame(0, 1, 7, bytes(100)),
    "settings of a wrong size": frame(4, 0, 0, bytes(7)),
    "a window of 0": frame(8, 0, 0, bytes(4)),
    "a frame larger than allowed": b"\xff\xff\xff" + bytes(6 + 100),
    "a flood of settings": frame(4, 0, 0, b"") * 10_000,
    "a flood of pings": frame(6, 0, 0, bytes(8)) * 10_000,
    "a flood of resets": b"".join(frame(3, 0, 2 * n + 1, bytes(4)) for n in range(10_000)),
}


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("address", ["127.0.0.1:0"])
def test_frames_that_are_none(cache, server, client, frames):
    hold(cache, [1, 2])
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.settimeout(30)
        try:
            raw.sendall(PREFACE + frame(4, 0, 0, b"") + frames)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65_536):
                pass
        except OSError:
            pass  # cut off, as it should be
    assert client.match([1, 2]).lengths == [2]
    assert client.check() == []


def test_a_flood_of_connections_that_say_nothing(client, server, cache):
    if server.address.startswith("unix:"):
        family, where = socket.AF_UNIX, server.address.removeprefix("unix:")
    else:
        host, port = server.address.split(":")
        family, where = socket.AF_INET, (host, int(port))
    idle = []
    for _ in range(200):
        idle.append(socket.socket(family))
        idle[-1].settimeout(30)
        idle[-1].connect(where)
    assert client.match([1]).lengths == [0]
    for each in idle:
        each.close()
    # gRPC may crash where a server stops, as this one will, while it still gets them.
    time.sleep(0.2)
    assert client.match([1]).lengths == [0]


@pytest.mark.parametrize("field", ["salt", "adapter", "extra_key"])
def test_a_long_namespace_is_refused(cache, client, channel, field):
    request = MatchPrefixRequest(sequences=[TokenSequence(ids=[1])])
    setattr(request.namespace, field, "x" * (8 << 20))
    error = refusal(lambda: PrefixCacheServiceStub(channel).MatchPrefix(request))
    info, _ = details(error)
    assert (info.reason, info.metadata["field"]) == ("INVALID_NAMESPACE", field)
    assert "must be at most 256 bytes; got 8388608" in error.details()
    assert client.match([1]).lengths == [0]


def test_slots_under_the_longest_fields_cost_little():
    """What a tenant may choose freely of a namespace and of content is small beside a slot."""
    cache = PrefixCache(1_000)
    longest, spans = "x" * 256, [(0, 1, b"y" * 256)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(60):
        name = f"{n:03}{longest[3:]}"
        hold(cache, [1], Namespace(name, name, name), content=spans)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2 << 20


@pytest.mark.parametrize("keeps", ["cached", "evicted"])
def test_a_watch_begins_whatever_is_cached(cache, keeps):
    """A small cache's worth of the longest namespaces: each message stays below the limit."""
    for n in range(60):
        hold(cache, [n], Namespace(extra_key=f"{n:04}" + "x" * 252))
        if keeps == "evicted":
            cache.evict(1)
    with CacheServer(cache, "127.0.0.1:0") as server, connect(server.address) as client:
        with client.watch() as watch:
            assert len(next(watch).events) == (60 if keeps == "cached" else 0)
        epoch, _ = cache.events.position()
        with client.watch(after=(epoch, 0)) as watch:
            assert next(watch)


def test_a_cache_without_room_answers_still():
    cache = PrefixCache(4)
    request = cache.admit([1, 2, 3, 4])
    with CacheServer(cache, "127.0.0.1:0") as server, connect(server.address) as client:
        assert client.evict(4) == 0
        assert client.match([1, 2, 3, 4]).lengths == [0]
    cache.finish(request, up_to=request.length)
