"""A router's index follows engines by their events: SGLang's, vLLM's, or a cache of ours."""

import random
import time
from functools import partial

import msgspec
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.cache.events import Event, Update
from radixkv.errors import InvalidArgumentError
from radixkv.integrations.events import BlockMirror, CacheEvents, EngineEvents, EventPublisher
from radixkv.integrations.events.messages import AllBlocksCleared, BlockRemoved, BlockStored
from radixkv.router import PrefixIndex, Router
from tests.integrations.events.work import work

B = 4


def decoded(events):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(events))


def stored(parent, *blocks, salt=None):
    """blocks: (name, tokens)."""
    names, tokens = [name for name, _ in blocks], [t for _, ids in blocks for t in ids]
    return BlockStored(names, parent, tokens, B, None, "GPU", None, salt)


class Followed:
    """A mirror, and a router's index that gets what it reports: all of it must be possible."""

    def __init__(self):
        self.mirror, self.index, self._revision = BlockMirror(B), PrefixIndex(), 0
        self.index.add_worker("a", page_size=B)
        self.index.apply("a", Update(1, 0, is_start=True))

    def follow(self, *events):
        changes = self.mirror.follow(decoded(events))
        if changes:
            self._revision += 1
            made = tuple(Event(self._revision, change) for change in changes)
            self.index.apply("a", Update(1, self._revision, made))
        view = self.index.view("a")
        assert (view.state, view.num_unknown) == ("current", 0)

    def match(self, ids):
        return self.index.lookup(ids).get("a", 0)


# Some begin alike.
STEPS = ([1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 2, 1], [2, 1, 1, 1])


def test_blocks_come_and_go_in_any_order():
    """Against a set of names, and for each path how much of it is there from the root on."""
    rng, followed, held, tree = random.Random(4), Followed(), {}, [()]
    for _ in range(80):  # all blocks that there can be: a tree of them
        tree.append((*rng.choice(tree), rng.randrange(len(STEPS))))
    paths = sorted({path for path in tree if path})
    longest = 0
    for _ in range(1500):
        path = rng.choice(paths)
        if path in held and rng.random() < 0.6:
            followed.follow(BlockRemoved([hash(path)], "GPU"))
            held[path] -= 1
            if not held[path]:
                del held[path]
        else:
            parent = hash(path[:-1]) if path[:-1] else None
            followed.follow(stored(parent, (hash(path), STEPS[path[-1]])))
            held[path] = held.get(path, 0) + 1
        for path in rng.sample(paths, 10):
            ids = [token for step in path for token in STEPS[step]]
            there = next((n for n in range(len(path)) if path[: n + 1] not in held), len(path))
            assert followed.match(ids) == there * B
            longest = max(longest, there)
    assert longest >= 5
    for path in paths:
        followed.follow(*[BlockRemoved([hash(path)], "GPU")] * held.pop(path, 0))
    assert followed.index.view("a").num_tokens == 0
    followed.follow(stored(None, (1, STEPS[0])))
    followed.follow(AllBlocksCleared())
    assert followed.match(STEPS[0]) == 0


def test_what_does_not_say_its_tokens_or_is_elsewhere_is_left_out():
    followed = Followed()
    followed.follow(BlockStored([1], None, [(1, 2), (2, 3), (3, 4), (4, 5)], B, None, "GPU", None))
    followed.follow(BlockStored([2], None, [1, 2, 3, 4], B, None, "CPU", None))
    with_image = {**decoded(stored(None, (3, [1, 2, 3, 4]))), "extra_keys": [[["image", 0]]]}
    assert followed.mirror.follow([with_image]) == []
    assert followed.match([1, 2, 3, 4]) == 0


@pytest.mark.parametrize(
    ("more", "namespace"),
    [
        ({"cache_salt": "s"}, Namespace(salt="s")),
        ({"extra_keys": [["s"]]}, Namespace(salt="s")),
        ({"lora_name": "l", "extra_keys": [["l", "s"]]}, Namespace(salt="s", adapter="l")),
        ({"lora_name": "l", "extra_keys": [["l"]]}, Namespace(adapter="l")),
        ({"extra_keys": [None]}, Namespace()),
    ],
)
def test_salts_and_adapters_are_read_from_either_engine(more, namespace):
    (change,) = BlockMirror(B).follow([{**decoded(stored(None, (1, [1, 2, 3, 4]))), **more}])
    assert change.namespace == namespace


def test_blocks_of_another_size_are_refused():
    with pytest.raises(InvalidArgumentError, match="block_size must be the engine's, 4; got 8"):
        BlockMirror(8).follow([decoded(stored(None, (1, [1, 2, 3, 4])))])


@pytest.fixture
def publisher():
    with EventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*") as publisher:
        yield publisher


def wait_until(is_so):
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def same(router, cache, asked, block_size=B):
    found = [router.pick(ids).matched_length for ids in asked]
    return found == [cache.probe(ids) // block_size * block_size for ids in asked]


@pytest.mark.parametrize("block_size", [1, 16])
def test_an_index_follows_over_the_wire_under_eviction_and_a_flush(publisher, block_size):
    rng, cache = random.Random(5), PrefixCache(400, max_requests=4)
    asked = [*work(rng, cache, 20, [Namespace()])]  # before it comes
    with CacheEvents(cache, publisher, block_size=block_size), Router() as router:
        source = EngineEvents(publisher.endpoint, publisher.replay_endpoint, block_size=block_size)
        router.add_worker("a", source, page_size=block_size)
        for round_ in range(4):
            if round_ == 2:
                cache.reset()
            asked += work(rng, cache, 20, [Namespace()])
            wait_until(partial(same, router, cache, asked, block_size))
    assert cache.stats().evicted_tokens > 1000


def test_what_was_lost_is_forgotten_and_never_guessed():
    """Batches are dropped that cannot be had again: what hangs below them is not believed."""
    with EventPublisher("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", kept_batches=2) as publisher:
        publisher.publish([stored(None, (1, [1] * B))])
        for n in range(2, 6):
            publisher.publish([stored(n - 1, (n, [n] * B))])
        publisher.publish([stored(None, (9, [9] * B))])
        with Router() as router:
            router.add_worker(
                "a", EngineEvents(publisher.endpoint, publisher.replay_endpoint, block_size=B),
                page_size=B,
            )  # fmt: skip
            wait_until(lambda: router.pick([9] * B).matched_length == B)
            assert router.pick([n for n in range(1, 6) for _ in range(B)]).matched_length == 0


def test_an_engine_that_restarted_is_followed_from_its_beginning(publisher):
    endpoint, replay_endpoint = publisher.endpoint, publisher.replay_endpoint
    for n in range(5):
        publisher.publish([stored(n or None, (n + 1, [n] * B))])
    with Router() as router:
        source = EngineEvents(endpoint, replay_endpoint, block_size=B)
        router.add_worker("a", source, page_size=B)
        wait_until(lambda: router.pick([0] * B + [1] * B).matched_length == 2 * B)
        publisher.close()
        with EventPublisher(endpoint, replay_endpoint) as again:

            def is_followed():
                again.publish([stored(None, (7, [7] * B))])  # on and on: it may not listen yet
                return router.pick([7] * B).matched_length == B

            wait_until(is_followed)
            assert router.pick([0] * B).matched_length == 0
