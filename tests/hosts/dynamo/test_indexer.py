"""Dynamo's own indexer follows a cache of ours, unedited."""

import random

import pytest

from radixkv import PrefixCache
from radixkv.integrations.events import CacheEvents, EventPublisher
from tests.support.dynamo_indexer import running_indexer
from tests.support.waiting import nudge_until

QUERIES, SETTLE_S = 1000, 60


@pytest.fixture
def indexer(tmp_path):
    with running_indexer(tmp_path) as indexer:
        yield indexer


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

    def one_more():
        ids = [rng.randrange(50_000) for _ in range(block_size)]
        cache.finish(cache.admit(ids), up_to=len(ids))
        return ids

    def settle():
        """What was published last is known; nothing happens meanwhile."""
        nudge_until(
            one_more,
            lambda ids: indexer.tokens(ids) == wanted(ids),
            again_s=2,
            timeout_s=SETTLE_S,
        )

    publisher = EventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    with CacheEvents(cache, publisher, block_size=block_size):
        serve(60)  # before it joins
        indexer.register(publisher.endpoint, publisher.replay_endpoint, block_size)
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
