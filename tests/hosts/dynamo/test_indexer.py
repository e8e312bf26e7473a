"""Dynamo's own indexer follows a cache of ours, unedited: `python -m dynamo.indexer`."""

import os
import random
import socket
import subprocess
import sys
import time

import pytest
import requests

from radixkv import PrefixCache
from radixkv.integrations.events import CacheEvents, EventPublisher
from tests.support.waiting import wait_until

QUERIES, WORKER, MODEL = 1000, 1, "m"
START_S = SETTLE_S = 60


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Indexer:
    """A running indexer that follows one publisher."""

    def __init__(self, address):
        self.address = address

    def register(self, publisher, block_size):
        self._post(
            "/register",
            instance_id=WORKER,
            dp_rank=0,
            endpoint=publisher.endpoint,
            replay_endpoint=publisher.replay_endpoint,
            model_name=MODEL,
            block_size=block_size,
        )

    def tokens(self, ids):
        """How many tokens of `ids` it believes to be cached."""
        scores = self._post("/query", token_ids=ids, model_name=MODEL).get("scores") or {}
        return max((n for ranks in scores.values() for n in ranks.values()), default=0)

    def _post(self, path, **body):
        answer = requests.post(f"{self.address}{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture
def indexer(tmp_path):
    pytest.importorskip("dynamo.indexer")
    port = free_port()
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dynamo.indexer", "--port", str(port)],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    found, until = Indexer(f"http://127.0.0.1:{port}"), time.monotonic() + START_S
    try:
        while True:
            try:
                requests.get(f"{found.address}/dump", timeout=5)
                break
            except requests.ConnectionError:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.2)
        yield found
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_its_answers_are_exact_under_eviction_a_flush_and_for_a_late_joiner(indexer, block_size):
    rng = random.Random(block_size)
    cache = PrefixCache(3000, max_requests=8)
    roots = [[rng.randrange(50_000) for _ in range(rng.randrange(20, 300))] for _ in range(4)]
    asked = []

    def serve(n):
        for _ in range(n):
            base = rng.choice([*roots, *asked[-20:]])[: rng.randrange(1, 500)]
            ids = base + [rng.randrange(50_000) for _ in range(rng.randrange(1, 150))]
            cache.finish(cache.admit(ids), up_to=len(ids))
            asked.append(ids)

    def wanted(ids):
        return cache.probe(ids) // block_size * block_size

    def settle():
        """What was published last is known; nothing happens meanwhile."""
        recent = asked[-5:]
        exact = [*map(wanted, recent)]
        wait_until(lambda: [*map(indexer.tokens, recent)] == exact, timeout_s=SETTLE_S)

    publisher = EventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    with CacheEvents(cache, publisher, block_size=block_size):
        serve(60)  # before it joins
        indexer.register(publisher, block_size)
        found = 0
        for round_ in range(10):
            if round_ == 5:
                cache.reset()
            serve(20)
            settle()
            for ids in rng.choices(asked, k=QUERIES // 10):
                cut = ids[: rng.randrange(1, len(ids) + 1)]
                assert indexer.tokens(cut) == wanted(cut)
                found += wanted(cut)
    assert found > 10_000
    assert cache.stats().evicted_tokens > 5_000
