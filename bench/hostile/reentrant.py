"""A finalizer, a signal's handler and a pick's finalizer that call the cache at any allocation."""

import time
from typing import Any

from bench.report import Claim
from tests.unit.test_reentrant import FINALIZER, PICK, SIGNAL
from tests.unit.test_reentrant import run as run_script

REQUESTS, THRESHOLD = 100_000, 1


def run() -> tuple[dict[str, Any], list[Claim]]:
    figures: dict[str, Any] = {}
    claims = []
    for name, script in (("finalizer", FINALIZER), ("signal", SIGNAL), ("pick", PICK)):
        began = time.monotonic()
        done = run_script(
            script, core="native", threshold=THRESHOLD, rounds=REQUESTS, timeout=3_000
        )
        is_sound = (done.returncode, done.stdout) == (0, "[]\n")
        figures[name] = {
            "requests": REQUESTS, "gc_threshold": THRESHOLD, "is_sound": is_sound,
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        print(f"{name:10} {figures[name]}", flush=True)
        claims.append(Claim(f"{name}: ends, and integrity is clean", is_sound, "at least", 1))
    return figures, claims
