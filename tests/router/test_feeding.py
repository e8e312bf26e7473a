"""The thread that keeps an index fed lives as long as its worker is known."""

import threading
from types import SimpleNamespace

from radixkv import PrefixCache
from radixkv.errors import ServiceUnavailableError
from radixkv.router import PrefixIndex, Router
from radixkv.router.feeding import Feeder, watch_of
from tests.support.caches import store


def test_a_worker_that_is_away_for_hours_is_tried_on(monkeypatch):
    """The wait doubles with each failure, and 2.0 ** 1024 is no float any more."""
    monkeypatch.setattr("radixkv.router.feeding._LONGEST_WAIT_S", 0.001)
    attempts, is_tried = 0, threading.Event()

    def source(_):
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            is_tried.set()
        raise ServiceUnavailableError("away")

    index = PrefixIndex()
    index.add_worker("a")
    feeder = Feeder(index, "a", source, index.apply)
    feeder.num_failures = 1_100
    feeder.start()
    try:
        assert is_tried.wait(5)
    finally:
        feeder.stop()
    assert feeder.is_failing


class Silent:
    """A watch that says nothing until it is closed."""

    def __init__(self):
        self.is_open, self.is_closed = threading.Event(), threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        self.is_open.set()
        self.was_closed = self.is_closed.wait(20)
        raise StopIteration

    def close(self):
        self.is_closed.set()


def test_stopping_closes_a_silent_watch_and_waits_for_its_thread():
    index, watch = PrefixIndex(), Silent()
    index.add_worker("a")
    feeder = Feeder(index, "a", lambda _: watch, index.apply)
    before = set(threading.enumerate())
    feeder.start()
    assert watch.is_open.wait(60)
    (thread,) = set(threading.enumerate()) - before
    feeder.stop()
    assert watch.was_closed
    assert not thread.is_alive()


class Ended:
    """A watch that ends without an update."""

    def __iter__(self):
        return iter(())

    def close(self):
        pass


def test_watches_that_end_without_an_update_are_failures(monkeypatch):
    monkeypatch.setattr("radixkv.router.feeding._FIRST_WAIT_S", 0.001)
    begun, is_begun_often = [], threading.Event()

    def source(position):
        begun.append(position)
        if len(begun) == 4:
            is_begun_often.set()
        return Ended()

    index = PrefixIndex()
    index.add_worker("a")
    feeder = Feeder(index, "a", source, index.apply)
    feeder.start()
    assert is_begun_often.wait(60)
    feeder.stop()
    assert feeder.is_failing
    assert feeder.num_failures in (len(begun) - 1, len(begun))


class Worker:
    """A client of a worker whose watch is silent."""

    def __init__(self):
        self.stream, self.is_probed = Silent(), threading.Event()

    def server_info(self, *, timeout_s=None):
        if timeout_s is not None:
            self.is_probed.set()
        return SimpleNamespace(page_size=4, num_slots=8, epoch=1, revision=0)

    def watch(self, *, after):
        return self.stream


def test_a_worker_reports_its_pool_when_its_watch_begins():
    cache = PrefixCache(8, page_size=4)
    store(cache, [1, 2, 3, 4])
    index = PrefixIndex()
    index.add_worker("a")
    watch_of(Worker(), index, "a")(None)
    index.apply("a", cache.events.read(0, 0, 1 << 20))
    assert index.lookup([1, 2, 3, 4]) == {"a": 4}
    assert index.lookup([1, 2, 3]) == {}, "a part of a page"


def test_a_router_that_is_closed_probes_no_longer():
    router, worker = Router(probe_every_s=0.001), Worker()
    router.follow("a", worker)
    assert worker.is_probed.wait(60)
    (probes,) = (each for each in threading.enumerate() if each.name == "radixkv-probes")
    router.close()
    assert not probes.is_alive()
