"""The thread that keeps an index fed lives as long as its worker is known."""

import threading

from radixkv.errors import ServiceUnavailableError
from radixkv.router.feeding import Feeder
from radixkv.router.index import PrefixIndex


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
    feeder.start()
    assert watch.is_open.wait(60)
    (thread,) = (each for each in threading.enumerate() if each.name == "radixkv-a")
    feeder.stop()
    assert watch.was_closed
    assert not thread.is_alive()
