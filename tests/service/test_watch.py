"""Watch, over real sockets: replaying what it tells gives exactly what is resident."""

import asyncio
import threading
from itertools import pairwise

import grpc
import numpy as np
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.cache.events import Cleared, EventLog
from radixkv.cache.runs import Runs, follow, runs_of
from radixkv.cache.snapshot import take_snapshot
from radixkv.rpc import limits, method_table
from radixkv.rpc.call import Call
from radixkv.service import AsyncClient, CacheServer
from radixkv.service.event_codec import PIECE_BYTES, UpdateReader, write_snapshot, write_update
from radixkv.service.server import watching
from radixkv.tree import Changes, Stored, Trimmed
from radixkv.v1.watch_pb2 import WatchRequest, WatchResponse
from radixkv.v1.watch_pb2_grpc import WatchServiceStub
from tests.support.service import connect, details, hold, refusal

A, B = Namespace(salt="a"), Namespace(salt="b")


def paths(runs) -> set[tuple[Namespace, tuple[int, ...]]]:
    """Every run as the whole prompt that it ends."""

    def path(number: int, end: int) -> tuple[int, ...]:
        run = runs[number]
        above = path(run.parent_run, run.parent_offset) if run.parent_run else ()
        return above + tuple(run.codes[:end].tolist())

    return {(run.namespace, path(number, len(run.codes))) for number, run in runs.items()}


def resident(cache):
    return paths(runs_of(cache.tree.walk()))


class Mirror:
    """One who knows the updates alone."""

    def __init__(self, watch) -> None:
        self.watch = watch
        self.runs: Runs = {}
        self.seen: list = []

    def take(self):
        """The next update that says something."""
        while True:
            update = next(self.watch)
            self.seen.append(update)
            follow(update, self.runs)
            if update.events or update.is_start:
                return update

    def until(self, cache):
        """Everything up to where the cache is now."""
        while not self.seen or (self.seen[-1].epoch, self.seen[-1].revision) != (
            cache.events.epoch,
            cache.events.revision,
        ):
            self.take()
        return self


@pytest.fixture
def mirror(client):
    with client.watch() as watch:
        yield Mirror(watch)


def test_an_empty_cache_is_an_empty_snapshot(cache, mirror):
    update = mirror.take()
    assert update == (cache.events.epoch, 0, (), True, True)


def test_a_snapshot_and_what_follows_it(cache, mirror):
    hold(cache, [1, 2, 3, 4], A)
    hold(cache, [1, 2, 9], A)
    hold(cache, [1, 2], B)
    first = mirror.take()
    assert (first.is_start, first.is_whole, first.revision) == (True, True, 3)
    assert paths(mirror.runs) == resident(cache)
    hold(cache, [1, 2, 3, 4, 5, 6], A)
    cache.evict(3)
    mirror.until(cache)
    assert paths(mirror.runs) == resident(cache)
    assert [update.is_start for update in mirror.seen].count(True) == 1


def test_B16_a_split_reports_no_removal(cache, mirror):
    mirror.take()
    hold(cache, [1, 2, 3, 4])
    hold(cache, [1, 2, 9])
    mirror.until(cache)
    changes = [event.change for update in mirror.seen for event in update.events]
    assert [type(change) for change in changes] == [Stored, Stored]
    assert (changes[1].parent_run, changes[1].parent_offset) == (changes[0].run, 2)
    assert changes[1].codes.tolist() == [9]


def test_B17_a_clear_arrives_without_traffic_and_what_follows_counts(cache, mirror):
    hold(cache, [1, 2, 3])
    before = mirror.take()
    cache.reset()
    cleared = mirror.take()
    assert [event.change for event in cleared.events] == [Cleared()]
    assert cleared.epoch == cache.events.epoch != before.epoch
    assert mirror.runs == {}
    hold(cache, [1, 2])
    mirror.until(cache)
    assert paths(mirror.runs) == {(Namespace(), (1, 2))}


def test_a_change_of_weights_clears_too(cache, mirror):
    hold(cache, [1, 2, 3])
    mirror.take()
    cache.set_weight_version(2)
    hold(cache, [1, 2])
    mirror.until(cache)
    assert paths(mirror.runs) == {(Namespace(weight_version=2), (1, 2))}


def test_one_namespace_alone(cache, client):
    hold(cache, [1, 2], A)
    hold(cache, [1, 2], B)
    with client.watch(A) as watch:
        mirror = Mirror(watch)
        assert paths((mirror.take(), mirror.runs)[1]) == {(A, (1, 2))}
        hold(cache, [1, 2, 3], B)
        hold(cache, [1, 2, 4], A)
        mirror.until(cache)
        assert paths(mirror.runs) == {(A, (1, 2)), (A, (1, 2, 4))}


def test_content_is_reported_as_what_no_token_equals(cache, mirror):
    hold(cache, [5, 9, 9, 6], content=[(1, 2, b"x")])
    mirror.take()
    (run,) = mirror.runs.values()
    assert run.codes[[0, 3]].tolist() == [5, 6]
    assert (run.codes[1:3] < 0).all()


def test_a_quiet_watcher_gets_progress_where_nothing_happened(cache, client, monkeypatch):
    monkeypatch.setattr("radixkv.service.server.watching.PROGRESS_S", 0.02)
    with client.watch() as watch:
        first = next(watch)
        assert [next(watch)[:3] for _ in range(3)] == [(first.epoch, 0, ())] * 3


def test_closing_ends_who_waits(client):
    watch = client.watch()
    next(watch)
    threading.Timer(0.05, watch.close).start()
    assert list(watch) == []
    assert list(watch) == []


def test_a_watcher_that_goes_is_forgotten(cache, server, client):
    with client.watch() as watch:
        next(watch)
        assert len(server.watches.places) == 1
    while server.watches.places:
        client.stats()


# ---- resuming ----


def test_it_resumes_where_it_was(cache, address):
    hold(cache, [1])
    with CacheServer(cache, address) as server:
        where, client = server.address, connect(server.address)
        mirror = Mirror(client.watch())
        mirror.take()
    hold(cache, [2])
    with CacheServer(cache, where):
        mirror.until(cache)
        assert paths(mirror.runs) == resident(cache)
        assert [update.is_start for update in mirror.seen].count(True) == 1
        client.close()


def test_it_takes_a_snapshot_where_history_is_gone(address):
    cache = PrefixCache(64)
    cache.transactions.events = EventLog(max_bytes=600)
    hold(cache, [1])
    with CacheServer(cache, address) as server:
        where, client = server.address, connect(server.address)
        mirror = Mirror(client.watch())
        mirror.take()
    for token in range(2, 9):
        hold(cache, [token])
    with CacheServer(cache, where):
        mirror.until(cache)
        assert paths(mirror.runs) == resident(cache)
        assert [update.is_start for update in mirror.seen].count(True) == 2
        client.close()


def test_B18_another_process_is_another_epoch(cache, address):
    hold(cache, [1, 2])
    hold(cache, [3, 4])
    with CacheServer(cache, address) as server:
        where, client = server.address, connect(server.address)
        mirror = Mirror(client.watch())
        mirror.take()
    other = PrefixCache(64)
    hold(other, [9])
    with CacheServer(other, where):
        mirror.until(other)
        assert paths(mirror.runs) == {(Namespace(), (9,))}
        client.close()


def test_a_watch_goes_on_after_what_another_has_seen(cache, client):
    hold(cache, [1])
    with client.watch() as watch:
        seen = next(watch)
    hold(cache, [2])
    with client.watch(after=(seen.epoch, seen.revision)) as watch:
        mirror = Mirror(watch)
        update = mirror.take()
        assert (update.is_start, [e.change.codes.tolist() for e in update.events]) == (False, [[2]])


async def test_the_async_watch_resumes_too(cache, address):
    hold(cache, [1])
    runs: dict = {}
    with CacheServer(cache, address) as first:
        where = first.address
        client = AsyncClient(where)
        watch = client.watch()
        follow(await anext(watch), runs)
    hold(cache, [2])
    with CacheServer(cache, where):
        async for update in watch:
            follow(update, runs)
            if update.revision == 2:
                break
        assert paths(runs) == resident(cache)
        await watch.aclose()
        assert [update async for update in watch] == []
        await client.close()


async def test_a_snapshot_that_was_sent_is_freed_some_runs_at_a_time(cache, monkeypatch):
    taken = []

    def take(*args):
        for snapshot in take_snapshot(*args):
            if snapshot is not None:
                taken.append(snapshot.runs)
            yield snapshot

    async def in_writer(work):
        return work()

    monkeypatch.setattr(watching, "take_snapshot", take)
    monkeypatch.setattr(watching, "_FREED_AT_ONCE", 2)
    for at in range(7):
        hold(cache, [at])
    watches = watching.Watches(cache, in_writer)
    watch = watches.watch(WatchRequest(snapshot=True), Call(method_table.WATCH))
    await anext(watch)
    (runs,) = taken
    assert len(runs) == 7
    await watch.aclose()
    left = [len(runs)]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(len(runs))
    assert left == [5, 3, 1, 0]


# ---- refusals ----


def watch_once(channel, **fields):
    return next(WatchServiceStub(channel).Watch(WatchRequest(**fields), timeout=30))


BAD_WATCHES = {
    "snapshot and start": ({"snapshot": True, "start_revision": 1, "epoch": 1}, "snapshot"),
    "start of no epoch": ({"start_revision": 1}, "epoch"),
    "negative start": ({"start_revision": -1, "epoch": 1}, "start_revision"),
}


@pytest.mark.parametrize(("fields", "field"), BAD_WATCHES.values(), ids=BAD_WATCHES)
def test_what_no_watch_can_be(channel, fields, field):
    info, bad_request = details(refusal(lambda: watch_once(channel, **fields)))
    assert info.reason == "INVALID_ARGUMENT"
    assert bad_request.field_violations[0].field == field


def test_history_that_is_gone_or_not_there_yet(channel, cache):
    cache.events._max_bytes = 600
    for token in range(1, 6):
        hold(cache, [token])
    epoch = cache.events.epoch
    gone = refusal(lambda: watch_once(channel, start_revision=2, epoch=epoch))
    assert (gone.code(), details(gone)[0].reason) == (
        grpc.StatusCode.OUT_OF_RANGE,
        "REVISION_COMPACTED",
    )
    assert details(gone)[0].metadata["compact_revision"] == "3"
    assert watch_once(channel, start_revision=6, epoch=epoch).header.revision == 5
    future = refusal(lambda: watch_once(channel, start_revision=7, epoch=epoch))
    assert (future.code(), details(future)[0].reason) == (
        grpc.StatusCode.OUT_OF_RANGE,
        "REVISION_IN_FUTURE",
    )
    other = refusal(lambda: watch_once(channel, start_revision=1, epoch=epoch + 2))
    assert details(other)[0].reason == "EPOCH_MISMATCH"
    assert details(other)[0].metadata["epoch"] == str(epoch)


def test_a_slow_watcher_is_cut_and_others_are_not(cache, server, client):
    cache.events._max_bytes = 200_000
    # A connection that buffers little, so that not reading is felt soon.
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535)]
    channel = grpc.insecure_channel(server.address, narrow)
    slow = WatchServiceStub(channel).Watch(WatchRequest())
    place = next(slow).header
    with client.watch() as watch:
        mirror = Mirror(watch)
        mirror.take()
        rng = np.random.default_rng(1)
        while mirror.seen[-1].revision < 10_000:  # far more than connections buffer
            for _ in range(200):
                hold(cache, rng.integers(0, 2**31, 60, dtype=np.int32))
            mirror.until(cache)
        assert paths(mirror.runs) == resident(cache)
    places = [place]
    cut = refusal(lambda: places.extend(response.header for response in slow))
    info, _ = details(cut)
    assert (cut.code(), info.reason) == (grpc.StatusCode.OUT_OF_RANGE, "WATCHER_TOO_SLOW")
    assert info.metadata["last_revision"] == str(places[-1].revision)
    channel.close()


def test_draining_reports_where_to_resume(cache, server, channel):
    hold(cache, [1])
    stream = WatchServiceStub(channel).Watch(WatchRequest())
    assert next(stream).header.revision == 1
    hold(cache, [2])
    assert next(stream).header.revision == 2
    server.stop()
    error = refusal(lambda: next(stream))
    info, _ = details(error)
    assert (error.code(), info.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert info.metadata["last_revision"] == "2"


# ---- pieces ----


def read_all(messages):
    reader = UpdateReader()
    responses = [WatchResponse.FromString(message) for message in messages]
    return responses, [update for r in responses if (update := reader.read(r)) is not None]


@pytest.mark.parametrize("length", [1, PIECE_BYTES // 4, PIECE_BYTES // 4 + 1, PIECE_BYTES])
def test_long_runs_and_many_come_in_pieces(length):
    cache = PrefixCache(8 * length, max_context_len=8 * length)
    for start in range(4):
        hold(cache, np.arange(start * length, (start + 1) * length, dtype=np.int32))
    cache.evict(1)
    log, runs = cache.events, runs_of(cache.tree.walk())
    responses, updates = read_all(write_snapshot(log.epoch, log.revision, runs))
    known: dict = {}
    for update in updates:
        follow(update, known)
    assert paths(known) == paths(runs)
    assert [update.is_start for update in updates] == [True] + [False] * (len(updates) - 1)
    assert [update.is_whole for update in updates][-1:] == [True]
    assert all(response.ByteSize() < 2.1 * PIECE_BYTES for response in responses)
    assert [response.snapshot_done for response in responses].count(True) == 1
    known = {}
    _, updates = read_all(write_update(log.read(log.epoch, 0, 10**9)))
    for update in updates:
        follow(update, known)
    assert paths(known) == paths(runs)


def test_a_large_revision_comes_in_pieces_and_is_applied_as_one(cache):
    length, log = 1000, EventLog()
    codes = np.arange(length, dtype=np.int32)
    log.append(Changes(Stored(run, 0, 0, codes, A) for run in range(1, 200)))
    log.append(Changes(Trimmed(run, 3) for run in range(1, 200)))
    responses, updates = read_all(write_update(log.read(log.epoch, 0, 10**9)))
    assert len(responses) > 5
    assert [response.more for response in responses].count(True) == len(responses) - len(updates)
    assert [update.revision for update in updates] == [2]
    assert all(a.header.revision <= b.header.revision for a, b in pairwise(responses))
    assert updates[0].events[0].change.codes.tolist() == codes.tolist()
    assert len(updates[0].events) == 2 * 199


def test_a_watcher_during_random_work_always_agrees(core, address, rng, monkeypatch):
    """Splits, evictions, trims, clears and new weights, watchers cut at random."""
    cache = PrefixCache(64, core=core)
    with CacheServer(cache, address) as server, connect(server.address) as client:
        watches = [client.watch() for _ in range(3)]
        mirrors = [Mirror(watch) for watch in watches]
        for step in range(120):
            salt = Namespace(salt="ab"[rng.integers(2)], weight_version=cache.weight_version)
            match rng.integers(12):
                case 0:
                    cache.evict(int(rng.integers(1, 40)))
                case 1 if step % 10 == 0:
                    cache.reset()
                case 2 if step % 10 == 0:
                    cache.set_weight_version(step + 1)
                case _:
                    hold(cache, rng.integers(0, 3, rng.integers(1, 16)), salt)
            if rng.integers(4) == 0:
                stream = mirrors[rng.integers(3)].watch._stream
                if stream is not None:
                    stream.cancel()
            if rng.integers(6) == 0:
                mirror = mirrors[rng.integers(3)].until(cache)
                assert paths(mirror.runs) == resident(cache)
        for mirror in mirrors:
            assert paths(mirror.until(cache).runs) == resident(cache)
            mirror.watch.close()
    assert cache.check_integrity() == []


def test_limits_of_streams(cache, server, client, monkeypatch):
    monkeypatch.setitem(limits.CONCURRENT_CALLS, "stream", 1)
    with client.watch() as watch:
        next(watch)
        with grpc.insecure_channel(server.address) as channel:
            error = refusal(lambda: watch_once(channel))
            assert (error.code(), details(error)[0].reason) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "OVERLOADED",
            )
        assert client.match([1]).lengths == [0]
