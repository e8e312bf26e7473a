"""Waiting for what other threads and processes do."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], object], what: str = "", timeout_s: float = 60.0) -> None:
    """Raises AssertionError if it does not come true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not in {timeout_s:g} s: {what or condition}"
        time.sleep(0.005)


def nudge_until(
    nudge: Callable[[], T], condition: Callable[[T], object], *, again_s: float, timeout_s: float
) -> None:
    """Wait until `condition` is true of what `nudge` returned; nudge again where that takes long.

    For a follower that sees that it missed something only when more comes.
    """
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        made, moment = nudge(), time.monotonic() + again_s
        while time.monotonic() < moment:
            if condition(made):
                return
            time.sleep(0.005)
    raise AssertionError(f"not in {timeout_s:g} s: {made}")


def run_threads(*targets: Callable[[], object]) -> None:
    """Run each in a thread of its own, all at once, until the last has returned."""
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
