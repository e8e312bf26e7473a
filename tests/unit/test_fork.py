"""A process that forks while other threads use its cache: the child has a whole cache to use."""

import subprocess
import sys

SCRIPT = """
import os, sys, threading, warnings
from radixkv import PrefixCache
warnings.simplefilter("ignore")
cache = PrefixCache(500, core="{core}")
is_over = threading.Event()
def work(seed):
    n = seed
    while not is_over.is_set():
        n += 7
        request = cache.admit([n % 5, n % 3, n % 11])
        if request is not None:
            cache.finish(request, request.length)
        cache.events.read(0, cache.events.compact_revision, 10_000)
threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
for thread in threads:
    thread.start()
failed = 0
for _ in range(40):
    child = os.fork()
    if child == 0:
        cache.evict(10)
        cache.events.position()
        os._exit(len(cache.check_integrity()))
    failed += os.waitpid(child, 0)[1] != 0
is_over.set()
print(failed, cache.match_prefix([1]).length >= 0)
"""


def test_children_of_a_fork_do_not_hang(core):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(core=core)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0 True\n", "")
