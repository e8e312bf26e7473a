"""What goes over the wire: bytes that stay as they were, and how many events take."""

import json

import numpy as np
import pytest

from radixkv import Namespace, PrefixCache
from radixkv.events import Update
from radixkv.service.event_codec import write_update
from radixkv.tree import Stored
from tests.service.golden import FILE, message_classes, shown
from tests.service.helpers import hold

CLASSES = {kind.DESCRIPTOR.full_name: kind for kind in message_classes()}
GOLDEN = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_what_old_clients_say_is_understood_as_they_meant_it(name):
    entry = GOLDEN[name]
    message = CLASSES[name].FromString(bytes.fromhex(entry["bytes"]))
    assert shown(message) == entry["fields"]
    assert message.SerializeToString(deterministic=True).hex() == entry["bytes"]


def test_every_message_has_its_bytes_kept():
    assert CLASSES.keys() == GOLDEN.keys(), "python -m tests.service.golden adds new ones"


def wire_bytes(updates: list[Update]) -> int:
    """As many messages as a watcher gets that is told of each call at once, with gRPC's prefix."""
    return sum(len(message) + 5 for update in updates for message in write_update(update))


def calls_of(cache) -> list[Update]:
    """One update a revision: the dearest way to tell them."""
    log = cache.events
    return [log.read(log.epoch, at, 1) for at in range(log.compact_revision, log.revision)]


@pytest.mark.parametrize("salt", [None, "tenant-0123456789abcdef"])
@pytest.mark.parametrize("length", [200, 1000, 4000])
def test_a_stored_token_costs_at_most_4_6_bytes(length, salt, rng):
    cache = PrefixCache(100 * length)
    stem = rng.integers(0, 2**17, length // 2)
    for _ in range(100):
        own = rng.integers(0, 2**17, 3 * length // 2)
        request = cache.admit(np.concatenate([stem, own])[: 2 * length], Namespace(salt=salt))
        if request is not None:
            cache.finish(request)
    changes = [event.change for event in cache.events.since(0)]
    stored = [change for change in changes if isinstance(change, Stored)]
    assert min(len(change.codes) for change in stored) >= 200
    tokens = sum(len(change.codes) for change in stored)
    updates = calls_of(cache)
    told = [u._replace(events=tuple(e for e in u.events if e.change in stored)) for u in updates]
    assert wire_bytes([u for u in told if u.events]) / tokens <= 4.6


def test_a_removal_costs_at_most_24_bytes(rng):
    """Whatever its size, in evictions of several runs at once as a full pool makes them."""
    cache = PrefixCache(20_000)
    for _ in range(300):
        hold(cache, rng.integers(0, 2**17, 60))
    begun = cache.events.revision
    while cache.tree.total_size:
        cache.evict(int(rng.integers(200, 2000)))
    log = cache.events
    updates = [log.read(log.epoch, at, 1) for at in range(begun, log.revision)]
    removals = sum(len(update.events) for update in updates)
    assert removals >= 300
    assert wire_bytes(updates) / removals <= 24


def test_a_removal_of_a_large_run_costs_what_one_of_a_small_does(rng):
    cache = PrefixCache(100_000)
    hold(cache, rng.integers(0, 2**17, 90_000))
    begun = cache.events.revision
    cache.evict(89_000)
    log = cache.events
    (update,) = [log.read(log.epoch, at, 1) for at in range(begun, log.revision)]
    (message,) = write_update(update)
    assert len(update.events) == 1
    assert len(message) <= 48
