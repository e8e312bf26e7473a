"""A worker process: a cache under random work, served over gRPC; commanded line by line.

python engine.py ADDRESS SEED: prints "up"; "work N" does N random calls and answers with the place
in the log and all runs that the tree holds.
"""

import json
import random
import sys
from typing import Any

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.cache.runs import runs_of
from radixkv.service import CacheServer

SPACES = [DEFAULT, DEFAULT, Namespace(salt="a"), Namespace(adapter="a")]
# Prompts that many workers get, so that the index shares what they hold.
COMMON = [[at * 7 % 50 for at in range(start, start + 40)] for start in (0, 3, 9)]


class Engine:
    """Random requests that live for a while."""

    def __init__(self, cache: PrefixCache, seed: int) -> None:
        self.cache, self.rng = cache, random.Random(seed)
        self.live: list[Any] = []

    def work(self, calls: int) -> None:
        for _ in range(calls):
            draw = self.rng.random()
            if draw < 0.5:
                self.admit()
            elif draw < 0.75 and self.live:
                self.end(self.live.pop(self.rng.randrange(len(self.live))))
            elif draw < 0.99:
                self.cache.evict(self.rng.randrange(8))
            elif draw < 0.993:
                self.cache.reset(force=True)
                while self.live:
                    self.cache.abort(self.live.pop())

    def admit(self) -> None:
        common = self.rng.choice(COMMON)
        ids = common[: self.rng.randrange(len(common))]
        ids = [*ids, *(self.rng.randrange(4) for _ in range(self.rng.randrange(1, 12)))]
        spans = [(len(ids) - 1, 1, b"cat")] if self.rng.random() < 0.1 else []
        request = self.cache.admit(ids, self.rng.choice(SPACES), content=spans)
        if request is not None:
            self.cache.publish(request, request.length // 2)
            self.live.append(request)

    def end(self, request: Any) -> None:
        if self.rng.random() < 0.8:
            self.cache.finish(request, up_to=request.length)
        else:
            self.cache.abort(request)

    def reported(self) -> dict[str, Any]:
        with self.cache.lock:
            log, runs = self.cache.events, runs_of(self.cache.tree.walk())
            rows = {
                number: [run.parent_run, run.parent_offset, run.codes.tolist(), repr(run.namespace)]
                for number, run in runs.items()
            }
            return {"position": [log.epoch, log.revision], "runs": rows}


def main() -> None:
    address, seed = sys.argv[1], int(sys.argv[2])
    cache = PrefixCache(600)
    # A short history, so that who is away for long takes a snapshot.
    cache.events._max_bytes = 60_000
    engine = Engine(cache, seed)
    with CacheServer(cache, address):
        print("up", flush=True)
        for line in sys.stdin:
            engine.work(int(line.split()[1]))
            print(json.dumps(engine.reported()), flush=True)


if __name__ == "__main__":
    main()
