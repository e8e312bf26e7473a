"""Waiting for what other threads and processes do."""

import threading
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str = "", timeout_s: float = 60.0) -> None:
    """Raises AssertionError if it does not come true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not in {timeout_s:g} s: {what or condition}"
        time.sleep(0.005)


def run_threads(*targets: Callable[[], object]) -> None:
    """Run each in a thread of its own, all at once, until the last has returned."""
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
