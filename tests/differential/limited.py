"""Serves under a limit of memory, close above what is in use, until it has run out several times.

    python -m tests.differential.limited SEED

Prints a JSON object: how often memory ran out, in which calls, what is broken, and why the cache
refused service, if it did.
"""

import json
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from radixkv import PrefixCache
from radixkv.cache.request import Request
from radixkv.tree import POLICIES

NUM_SLOTS, MOST_STEPS, MOST_ERRORS = 3_000_000, 4000, 3
LEAST_BYTES, MOST_BYTES = 4 << 20, 60 << 20


@contextmanager
def limit(more: int) -> Iterator[None]:
    """No more than `more` bytes besides those in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Load:
    """Requests at random: they come, share what came before, publish, fork and end."""

    def __init__(self, cache: PrefixCache, seed: int) -> None:
        self.cache, self.live = cache, list[Request]()
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.errors: Counter[str] = Counter()

    def step(self) -> None:
        weights = {self.admit: 7, self.finish: 2, self.extend: 2, self.publish: 1, self.evict: 0.2}
        (call,) = self.random.choices(list(weights), list(weights.values()))
        key = self.key()
        if self.live or call == self.admit:
            self.attempt(call, key)

    def attempt(self, call: Callable[[Any], None], key: Any) -> None:
        try:
            call(key)
        except MemoryError as error:
            self.errors[f"{type(error).__name__} in {call.__name__}"] += 1

    def key(self) -> Any:
        base = np.full(self.random.randint(1, 5000), self.random.randint(0, 30), np.int32)
        rest = self.numbers.integers(0, 1000, self.random.randint(1, 3000)).astype(np.int32)
        return np.concatenate([base, rest])

    def admit(self, key: Any) -> None:
        request = self.cache.admit(key)
        if request is not None:
            self.live.append(request)

    def finish(self, _: Any) -> None:
        at = self.random.randrange(len(self.live))
        self.cache.finish(self.live[at], up_to=self.live[at].length)
        del self.live[at]

    def extend(self, key: Any) -> None:
        self.cache.extend(self.live[-1], key)

    def publish(self, _: Any) -> None:
        self.cache.publish(self.live[-1], self.live[-1].length)

    def evict(self, key: Any) -> None:
        self.cache.evict(len(key))


def main() -> int:
    seed = int(sys.argv[1])
    draw = random.Random(seed)
    cache = PrefixCache(NUM_SLOTS, max_requests=256, policy=draw.choice(list(POLICIES)))
    load = Load(cache, seed)
    with limit(draw.randint(LEAST_BYTES, MOST_BYTES)):
        for _ in range(MOST_STEPS):
            try:
                load.step()
            except MemoryError:
                load.errors["outside the cache"] += 1
            if sum(load.errors.values()) > MOST_ERRORS or cache.violations:
                break
    refused = list(cache.violations[:1])
    broken = [] if refused else cache.check_integrity()
    found = {"errors": load.errors, "broken": broken, "refused": refused}
    print(json.dumps({"policy": cache.tree.policy, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
