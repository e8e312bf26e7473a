"""Blocks of any size say exactly what is cached; over the wire, for those who come late, too."""

import random
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from radixkv import PrefixCache
from radixkv.cache.events import Cleared, EventLog
from radixkv.errors import InvalidArgumentError, ListenError
from radixkv.integrations.events import (
    BLOCK_NAMES,
    BlockTranslator,
    CacheEvents,
    EventPublisher,
    SGLangNames,
    VllmNames,
)
from radixkv.integrations.events.messages import EventBatch
from radixkv.tree import ContentSpan, Namespace, Stored
from radixkv.tree.radix_tree import Changes
from tests.integrations.events.subscriber import Held, Subscriber
from tests.integrations.events.work import ADAPTER, SPACES, compute, work
from tests.support.waiting import wait_until


class Followed:
    """The changes of one namespace of a cache, translated and applied by a consumer."""

    def __init__(self, namespace, translator):
        self.namespace, self.translator, self.held = namespace, translator, Held()
        self._runs = set()

    def follow(self, changes):
        events = self.translator.translate(change for change in changes if self._is_ours(change))
        self.held.apply(self.held.next, msgspec.msgpack.encode(EventBatch(0.0, events)))

    def _is_ours(self, change):
        if isinstance(change, Stored) and change.namespace == self.namespace:
            self._runs.add(change.run)
        return isinstance(change, Cleared) or change.run in self._runs


@pytest.mark.parametrize(
    ("page_size", "block_size"), [(1, 1), (1, 3), (1, 16), (1, 64), (4, 4), (4, 12), (4, 64)]
)
@pytest.mark.parametrize("names", BLOCK_NAMES)
def test_blocks_say_what_is_cached(page_size, block_size, names):
    cache = PrefixCache(600, page_size=page_size, max_requests=4)
    followed = [
        Followed(s, BlockTranslator(block_size, BLOCK_NAMES[names](), page_size=page_size))
        for s in SPACES
    ]
    revision = found = 0
    for ids in work(random.Random(block_size), cache, 120, SPACES):
        changes = [event.change for event in cache.events.since(revision)]
        revision = cache.events.revision
        for each in followed:
            each.follow(changes)
            wanted = cache.probe(ids, namespace=each.namespace) // block_size * block_size
            assert each.held.match(ids, block_size) == wanted
            found += wanted
    assert found > 1000
    assert cache.stats().evicted_tokens > 1000
    cache.reset()
    for each in followed:
        each.follow(event.change for event in cache.events.since(revision))
        assert each.held.blocks == {}


def test_names_of_two_namespaces_differ():
    cache, translator = PrefixCache(100), BlockTranslator(4)
    for space in SPACES:
        compute(cache, range(9), namespace=space)
    events = translator.translate(event.change for event in cache.events.since(0))
    assert [event.lora_name for event in events] == [None, None, ADAPTER]
    assert [event.cache_salt for event in events] == [None, "a", "a"]
    assert len({name for event in events for name in event.block_hashes}) == 6


def test_blocks_with_content_and_those_behind_them_are_not_reported():
    cache, translator = PrefixCache(100), BlockTranslator(4)
    content = [ContentSpan(6, 3, b"image")]
    for ids in (range(20), [*range(20), *range(50, 70)]):
        compute(cache, ids, content=content)
    (stored,) = translator.translate(event.change for event in cache.events.since(0))
    assert stored.token_ids == [0, 1, 2, 3]
    before = cache.events.revision
    cache.evict(100)
    (removed,) = translator.translate(event.change for event in cache.events.since(before))
    assert removed.block_hashes == stored.block_hashes


@pytest.mark.parametrize("block_size", [0, 6])
def test_a_block_is_whole_pages(block_size):
    with pytest.raises(InvalidArgumentError, match="block_size"):
        BlockTranslator(block_size, page_size=4)


@pytest.mark.parametrize(
    ("names", "namespace", "wanted"),
    [
        # Made by `hash_block_tokens` of vLLM 0.32.0.
        (VllmNames(), Namespace(), [10429158316690216413, 5745192707610611011]),
        (VllmNames(), Namespace(salt="s"), [12447238380120047565, 17893195590753513371]),
        (
            VllmNames(paths={"l": "/l"}),
            Namespace(adapter="l"),
            [16389812310512557251, 15544614068738535443],
        ),
        (VllmNames(seed="0"), Namespace(), [13235216678433461279, 13780132221494506686]),
    ],
)
def test_the_names_are_those_that_vllm_makes(names, namespace, wanted):
    ids = np.arange(8, dtype=np.int32)
    first = names.extend(None, ids[:4], namespace)
    second = names.extend(first, ids[4:], namespace)
    assert [names.published(digest, namespace) for digest in (first, second)] == wanted


@pytest.mark.parametrize(
    ("namespace", "wanted"),
    [
        # Made by SGLang 0.5.23's recorder; the adapter is one whose name it knows.
        (Namespace(), [3817746824117602890, -4216701448867210342]),
        (Namespace(salt="tenant"), [4840194856762549878, -912727690607319558]),
        (
            Namespace(salt="tenant", adapter=ADAPTER, extra_key="k"),
            [603753907729324254, 4093647769405683136],
        ),
    ],
)
def test_the_names_are_those_that_sglang_makes(namespace, wanted):
    names = SGLangNames()
    first = names.extend(None, np.array([1, 2], np.int32), namespace)
    second = names.extend(first, np.array([3, 4], np.int32), namespace)
    assert [names.published(digest, namespace) for digest in (first, second)] == wanted


@pytest.fixture
def publisher():
    with EventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", topic="kv") as publisher:
        yield publisher


@pytest.fixture
def subscriber(publisher):
    subscriber = Subscriber(publisher)
    yield subscriber
    subscriber.close()


def test_batches_are_numbered_from_0_and_sent_again(publisher, subscriber):
    numbers = [publisher.publish([]) for _ in range(5)]
    assert numbers == [0, 1, 2, 3, 4]
    assert [number for number, _ in subscriber.replayed(2)] == [2, 3, 4]
    assert [number for number, _ in subscriber.replayed(9)] == []
    while not subscriber.has_come():  # a subscription takes its time
        publisher.publish([])
    topic, number, batch = subscriber.receive()
    assert topic == b"kv"
    assert next(subscriber.replayed(number)) == (number, batch)


def test_only_so_many_are_kept():
    with EventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", kept_batches=3) as publisher:
        for _ in range(10):
            publisher.publish([])
        subscriber = Subscriber(publisher)
        assert [number for number, _ in subscriber.replayed(0)] == [7, 8, 9]
        subscriber.close()


def test_an_address_that_is_taken_is_refused(publisher):
    with pytest.raises(ListenError, match="cannot publish events at"):
        EventPublisher(publisher.endpoint)
    with pytest.raises(ListenError, match="cannot publish events at nowhere"):
        EventPublisher("nowhere")


def held_of(asked, held, subscriber, block_size):
    """How many tokens of each prompt the consumer holds, once it has read what is new."""
    for number, batch in subscriber.replayed(held.next):
        held.apply(number, batch)
    return [held.match(ids, block_size) for ids in asked]


@pytest.mark.parametrize("block_size", [1, 16])
def test_a_cache_is_followed_over_the_wire(publisher, subscriber, block_size):
    """It held something before, is cleared in between, and the consumer comes late."""
    rng, cache = random.Random(1), PrefixCache(400, max_requests=4)
    asked, held = [*work(rng, cache, 10, SPACES[:1])], Held()
    events = CacheEvents(cache, publisher, block_size=block_size)
    asked += work(rng, cache, 40, SPACES[:1])
    cache.reset()
    asked += work(rng, cache, 40, SPACES[:1])
    wanted = [cache.probe(ids) // block_size * block_size for ids in asked]
    wait_until(lambda: held_of(asked, held, subscriber, block_size) == wanted)
    assert sum(wanted) > 500
    events.close()


def test_a_follower_that_the_log_has_left_behind_starts_over(publisher, subscriber):
    cache, held = PrefixCache(400, max_requests=4), Held()
    log = EventLog(max_bytes=2_000)
    short = SimpleNamespace(lock=cache.lock, tree=cache.tree, page_size=1, events=log)
    with cache.lock:  # in which the follower starts, or waits
        events = CacheEvents(short, publisher, block_size=4)
        asked = [*work(random.Random(2), cache, 40, SPACES[:1])]
        for event in cache.events.since(0):
            log.append(Changes([event.change]))
    assert not log.is_complete
    wanted = [cache.probe(ids) // 4 * 4 for ids in asked]
    wait_until(lambda: held_of(asked, held, subscriber, 4) == wanted)
    events.close()
