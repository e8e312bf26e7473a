"""Finalizers and signal handlers that call the cache or the router, at any line: nothing hangs."""

import subprocess
import sys
from typing import Any

import pytest

COMMON = """
import gc, random, signal
from radixkv import PrefixCache
from radixkv.router import Router
rng = random.Random(1)
cache = PrefixCache(500, core="{core}")
prompt = lambda: [rng.randint(0, 3) for _ in range(rng.randint(1, 30))]
"""

# An engine's request in a ring with its callback, as such things are: the collector ends it.
FINALIZER = """
gc.set_threshold({threshold})
class Running:
    def __init__(self, request):
        self.request, self.on_done = request, lambda: self
    def __del__(self):
        cache.finish(self.request, self.request.length)
for n in range({rounds}):
    request = cache.admit(prompt())
    if request is None:
        gc.collect()
    else:
        Running(request)
gc.collect()
print(cache.check_integrity())
"""

# Others that begin and end requests in the middle of a call, the one that it is about as well.
MEDDLER = """
from radixkv.errors import RequestEndedError
gc.set_threshold({threshold})
running = []
class Meddler:
    def __init__(self):
        self.ring = self
    def __del__(self):
        cache.admit([5] * 3)
        if running:
            cache.abort(running.pop())
for n in range({rounds}):
    request = cache.admit(prompt())
    if request is None:
        while running:
            cache.abort(running.pop())
        cache.reset(force=True)
        continue
    running.append(request)
    Meddler()
    try:
        cache.extend(request, [n % 4])
        Meddler()
        cache.publish(request, up_to=request.length)
        Meddler()
        cache.finish(request, request.length)
    except RequestEndedError:
        pass
gc.collect()
ids = [request.id for request in cache.live_requests]
assert len(set(ids)) == len(ids), ids
print(cache.check_integrity())
"""

SIGNAL = """
cache.finish(cache.admit([9] * 40), up_to=40)
def handle(*_):
    cache.evict(1)
    cache.events.read(cache.events.epoch, cache.events.compact_revision, 1000)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for n in range({rounds}):
    request = cache.admit(prompt())
    if request is not None:
        cache.finish(request, request.length)
signal.setitimer(signal.ITIMER_REAL, 0)
print(cache.check_integrity())
"""

PICK = """
gc.set_threshold({threshold})
router = Router(core="{core}")
router.add_worker("a")
class Picked:
    def __init__(self, pick):
        self.pick, self.on_done = pick, lambda: self
    def __del__(self):
        router.finish(self.pick)
epoch = revision = 0
for n in range({rounds}):
    cache.finish(done := cache.admit(prompt()), up_to=done.length)
    update = cache.events.read(epoch, revision, 1 << 20)
    router.apply("a", update)
    epoch, revision = update.epoch, update.revision
    Picked(router.pick(prompt()))
gc.collect()
print(router.index.check_integrity())
"""


def run(script: str, timeout: float = 120, **values: Any) -> subprocess.CompletedProcess[str]:
    code = (COMMON + script).format(**values)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.parametrize(
    "script", [FINALIZER, MEDDLER, SIGNAL, PICK], ids=["finalizer", "meddler", "signal", "pick"]
)
@pytest.mark.parametrize("threshold", [1, 50])
def test_calls_from_finalizers_and_signal_handlers_do_not_hang(core, script, threshold):
    if script is SIGNAL and core == "python":
        pytest.skip("calls of the Python core are not whole where a handler interrupts them")
    done = run(script, core=core, threshold=threshold, rounds=3_000)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
