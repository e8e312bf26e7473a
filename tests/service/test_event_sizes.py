"""What watching costs on the wire, at page size 1 and after years of work: numbers are large."""

import numpy as np
import pytest

from radixkv import PrefixCache
from radixkv.cache.events import Event, Update
from radixkv.service.event_codec import write_update
from radixkv.tree import DEFAULT, Stored, Trimmed
from tests.support.service import hold

EPOCH, REVISION, RUN = 2**63 + 1, 2**34, 2**33  # as many revisions as 500 a second for a year


def size(*changes):
    """Bytes of the messages for these changes, one after another at revisions of their own."""
    events = tuple(Event(REVISION + at, change) for at, change in enumerate(changes))
    return sum(map(len, write_update(Update(EPOCH, REVISION + len(events) - 1, events))))


def stored(length, run=RUN):
    return Stored(run, RUN - 1, 100_000, np.arange(length, dtype=np.int32), DEFAULT)


@pytest.mark.parametrize("length", [200, 1000, 100_000])
def test_a_stored_token_takes_at_most_4_6_bytes_in_runs_of_200(length):
    assert size(stored(length)) <= 4.6 * length
    assert size(*(stored(length, RUN + at) for at in range(5))) <= 4.6 * 5 * length


@pytest.mark.parametrize("keep", [0, 100_000])
def test_a_removal_takes_at_most_24_bytes_whatever_its_size(keep):
    header = size()
    assert size(Trimmed(RUN, keep)) - header <= 24
    assert size(*(Trimmed(RUN + at, keep) for at in range(1000))) <= 24 * 1000 + header


def test_a_cache_says_no_more_than_that():
    """Whole prompts of 1,000 tokens, stored and evicted, as a real log tells of them."""
    cache = PrefixCache(10_000)
    for at in range(20):
        hold(cache, range(1000 * at, 1000 * at + 1000))
    update = cache.events.read(0, 0, 1 << 30)
    tokens = sum(len(e.change.codes) for e in update.events if isinstance(e.change, Stored))
    removals = sum(isinstance(event.change, Trimmed) for event in update.events)
    assert tokens == 20_000
    assert removals
    assert sum(map(len, write_update(update))) <= 4.6 * tokens + 24 * removals
