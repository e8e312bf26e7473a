"""What the memory system itself takes: a compare in place, and a copy of the slots."""

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.peers import workloads
from bench.peers.contender import now


def run(work: str, most_s: float) -> dict[str, Any]:
    """w3 only."""
    if work != "w3":
        return {}
    ids, _ = workloads.long_prompt()
    key = np.array(ids, np.int32)
    stored, asked = key.tobytes(), key.tobytes()
    return {"native": _median(lambda: stored == asked) + _median(key.copy)}


def _median(call: Callable[[], Any]) -> float:
    """Microseconds."""
    taken = []
    for _ in range(400):
        t = now()
        call()
        taken.append(now() - t)
    return statistics.median(taken) / 1e3
