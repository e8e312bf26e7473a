"""What surrounds the capture of a CUDA graph; the graphs themselves take a card."""

import gc
import threading
from contextlib import contextmanager

import torch

from radixkv.integrations.transformers.graphs import _captured_in
from tests.support.waiting import run_threads


def test_captures_of_several_threads_take_turns_and_collect_no_garbage(monkeypatch):
    """Each begins with a wait for the whole device, which would end another's."""
    events, meet = [], threading.Barrier(2)

    @contextmanager
    def graph(captured, pool, capture_error_mode):
        assert capture_error_mode == "thread_local"
        events.append("begins")
        yield
        events.append("ends")

    def capture():
        meet.wait()
        with _captured_in(None, None):
            is_collecting.append(gc.isenabled())
            released.wait(0.1)  # it is never set: gives the other time to arrive

    is_collecting, released = [], threading.Event()
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("waits for the device"))
    run_threads(capture, capture)
    assert events == ["waits for the device", "begins", "ends"] * 2
    assert is_collecting == [False, False]
    assert gc.isenabled()
