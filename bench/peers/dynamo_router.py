"""Dynamo's RadixTree as a router's index of a whole fleet; runs in the peers' environment.

Takes one JSON request a line and answers each with one: {"build": block}, then {"prompts": seed}.
"""

import json
import statistics
import sys
import time
from typing import Any

from bench.peers import setup
from bench.peers.contender import resident
from bench.peers.fleet import Fleet


class DynamoRouter:
    """Its tree over blocks of `block` tokens, fed with stored events as JSON, as it takes them."""

    def __init__(self, block: int) -> None:
        sys.path.insert(0, str(setup.FOLDER / "dynamo"))
        from dynamo import _core

        self.hashes, self.tree, self.block = (
            _core.compute_block_hash_for_seq,
            _core.RadixTree(),
            block,
        )
        self._events = 0

    def build(self, fleet: Fleet) -> dict[str, float]:
        """Feed all workers; tokens a second of its own calls, and bytes a token and worker."""
        before, spent = resident(), 0.0
        for worker in range(fleet.workers):
            for stored in fleet.stored(worker):
                event = self._event(stored.whole.tolist(), stored.known // self.block)
                since = time.perf_counter()
                self.tree.apply_event(worker, event)
                spent += time.perf_counter() - since
        tokens = fleet.workers * fleet.num_tokens
        return {"apply": tokens / spent, "bytes": (resident() - before) / tokens}

    def _event(self, ids: list[int], known: int) -> bytes:
        hashes = self.hashes(ids, self.block)
        chain, parent = [], 0
        for block in hashes:
            parent = hash((parent, block)) & (2**63 - 1)
            chain.append(parent)
        self._events += 1
        pairs = zip(chain[known:], hashes[known:], strict=True)
        stored = {
            "parent_hash": chain[known - 1] if known else None,
            "blocks": [{"block_hash": own, "tokens_hash": block} for own, block in pairs],
        }
        return json.dumps({"event_id": self._events, "data": {"stored": stored}}).encode()

    def look(self, fleet: Fleet, seed: int, count: int) -> dict[str, float]:
        """Medians in microseconds: the way from a list, from an int32 array, and the tree alone."""
        taken: dict[str, list[int]] = {"from list": [], "from array": [], "native": []}
        for ids in fleet.prompts(count, seed):
            as_list = ids.tolist()
            began = time.perf_counter_ns()
            hashes = self.hashes(as_list, self.block)
            hashed = time.perf_counter_ns()
            scores = self.tree.find_matches(hashes).scores
            found = time.perf_counter_ns()
            as_list = ids.tolist()
            converted = time.perf_counter_ns()
            taken["from list"].append(found - began)
            taken["native"].append(found - hashed)
            # The fastest way that it has from an array: a list of it first.
            taken["from array"].append(found - began + converted - found)
            assert max(scores.values()) >= (len(ids) - 100) // self.block - 1
        return {name: statistics.median(times) / 1e3 for name, times in taken.items()}


def main() -> None:
    fleet = Fleet(int(sys.argv[1]), int(sys.argv[2]))
    router: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        if "build" in request:
            router = DynamoRouter(request["build"])
            answer = router.build(fleet)
        else:
            answer = router.look(fleet, request["prompts"], request["count"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
