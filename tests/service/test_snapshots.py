"""Snapshots of watches: shared, and not kept for clients that do not read them."""

import gc
import weakref

import grpc
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.cache import snapshot
from radixkv.rpc import limits
from radixkv.service import CacheServer
from radixkv.v1.watch_pb2 import WatchRequest
from radixkv.v1.watch_pb2_grpc import WatchServiceStub
from tests.support.service import connect, hold
from tests.support.waiting import wait_until

TOKENS, RUN = 6_000_000, 20_000  # more than sockets take
ALL = WatchRequest(snapshot=True)
# Pieces wait at the server, not at the client.
STALLED = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.lookahead_bytes", 1024)]


@pytest.fixture
def cache():
    cache = PrefixCache(2 * TOKENS)
    for first in range(0, TOKENS, RUN):
        hold(cache, range(first, first + RUN))
    return cache


@pytest.fixture
def taken(monkeypatch):
    """The snapshots that were made, as long as they are kept."""
    made = []

    class Noted(snapshot.Snapshot):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(weakref.ref(self))

    monkeypatch.setattr(snapshot, "Snapshot", Noted)
    return made


@pytest.fixture
def server(cache, taken):
    with CacheServer(cache, "127.0.0.1:0") as server:
        yield server


def kept(taken):
    gc.collect()
    return sum(each() is not None for each in taken)


def whole(watch):
    """The events of a snapshot."""
    events = []
    for update in watch:
        events += update.events
        if update.is_whole:
            return events
    return events


def stalled(server, n):
    """Watches that take their first piece and no more."""
    channels = [grpc.insecure_channel(server.address, STALLED) for _ in range(n)]
    watches = [WatchServiceStub(channel).Watch(ALL) for channel in channels]
    for watch in watches:
        next(watch)
    return channels, watches


def test_watchers_that_do_not_read_share_a_snapshot_whatever_happens_meanwhile(
    server, cache, taken
):
    channels, _ = stalled(server, 3)
    hold(cache, [7, 7, 7], Namespace(salt="a"))
    more, _ = stalled(server, 3)
    assert kept(taken) == len(taken) == 1
    with connect(server.address) as client, client.watch() as watch:
        assert len(whole(watch)) == TOKENS // RUN
        assert len(taken) == 1, "it goes on from the shared one"
        assert next(watch).events[0].change.namespace == Namespace(salt="a")
    for channel in (*channels, *more):
        channel.close()
    wait_until(lambda: kept(taken) == 0)


def test_a_watcher_that_reads_nothing_is_cut(server, taken, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_STALL_S", 0.3)
    channels, _ = stalled(server, 2)
    wait_until(lambda: kept(taken) == 0 and not server.watches.places)
    with connect(server.address) as client, client.watch() as watch:
        assert len(whole(watch)) == TOKENS // RUN
    for channel in channels:
        channel.close()


def test_a_snapshot_that_the_log_left_behind_is_not_shared(server, cache, taken, monkeypatch):
    channels, _ = stalled(server, 1)
    monkeypatch.setattr(cache.events, "compact_revision", cache.events.revision)
    hold(cache, [5, 5, 5])
    monkeypatch.setattr(cache.events, "compact_revision", cache.events.revision)
    with connect(server.address) as client, client.watch() as watch:
        assert len(whole(watch)) == TOKENS // RUN + 1
    assert len(taken) == 2
    channels[0].close()
