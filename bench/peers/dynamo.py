"""Dynamo's router index: counts of blocks by worker, no slots, no eviction."""

import json
import sys
import time
from typing import Any

from bench.peers import setup, workloads
from bench.peers.contender import Times, now

BLOCK = 16
WORKER = 0


class Dynamo:
    """Its RadixTree, fed with stored events."""

    native = "block hashes"

    def __init__(self) -> None:
        sys.path.insert(0, str(setup.FOLDER / "dynamo"))
        from dynamo import _core

        self.hashes, self.tree, self.events = _core.compute_block_hash_for_seq, _core.RadixTree(), 0

    def match(self, hashes: list[int]) -> int:
        score: int = self.tree.find_matches(hashes).scores.get((WORKER, 0), 0)
        return score

    def event(self, hashes: list[int], known: int) -> bytes:
        """What stores the blocks behind the first `known`, as JSON."""
        chain, parent = [], 0
        for block in hashes:
            parent = hash((parent, block)) & (2**63 - 1)
            chain.append(parent)
        self.events += 1
        pairs = zip(chain[known:], hashes[known:], strict=True)
        stored = {
            "parent_hash": chain[known - 1] if known else None,
            "blocks": [{"block_hash": own, "tokens_hash": block} for own, block in pairs],
        }
        return json.dumps({"event_id": self.events, "data": {"stored": stored}}).encode()

    def cycle(self, times: Times, prompt: list[int], output: list[int]) -> int:
        t = now()
        hashes = self.hashes(prompt, BLOCK)
        times.add("convert", now() - t)
        t = now()
        known = self.match(hashes)
        times.add("match", now() - t)
        if output:
            t = now()
            hashes = self.hashes(prompt + output, BLOCK)
            times.add("convert", now() - t)
        if known < len(hashes):
            event = self.event(hashes, known)
            t = now()
            self.tree.apply_event(WORKER, event)
            times.add("insert", now() - t)
        times.end_request()
        return known * BLOCK


def run(work: str, most_s: float) -> dict[str, Any]:
    """A workload; nothing where it takes eviction or memory by the token."""
    cache, times = Dynamo(), Times()
    end = time.monotonic() + most_s
    if work == "w3":
        ids, endings = workloads.long_prompt()
        cache.cycle(Times(), ids, [])
        for ending in endings:
            ids[-16:] = ending
            t = now()
            hashes = cache.hashes(ids, BLOCK)
            times.add("convert", now() - t)
            t = now()
            cache.match(hashes)
            times.add("match", now() - t)
            times.end_request()
        medians = times.medians()
        return {"from list": medians["cycle from list"], "native": medians["match"]}
    if work not in ("w1", "w2"):
        return {}
    hit = total = 0
    for prompt, output in workloads.turns(work):
        hit += cache.cycle(times, prompt, output)
        total += len(prompt)
        if time.monotonic() > end:
            break
    return {**times.medians(), "requests": len(times.native), "hit rate": hit / total}
