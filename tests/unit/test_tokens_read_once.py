"""Token ids and slots are read where they come in, and by nothing behind that."""

from collections import Counter

import numpy as np
import pytest

from radixkv.arrays import INT32_MAX
from radixkv.cache import prefix_cache
from radixkv.cache.loans import Insert
from radixkv.cache.prefix_cache import PrefixCache
from radixkv.errors import InvalidSlotsError, InvalidTokensError
from radixkv.service import CacheServer, InsertCall, Prompt
from radixkv.tree import ContentSpan, content, new_tree
from radixkv.tree.content import check_content
from radixkv.tree.reader import Reader
from tests.support.service import connect

# What no reader lets pass: a second reader raises.
REFUSED = np.array([-7, -8, -9], np.int32)
PROMPT = (7, 8, 9)


@pytest.fixture
def reads():
    """How often each value was read."""
    return Counter()


@pytest.fixture
def cache(core, reads, monkeypatch):
    """A cache whose reader takes PROMPT for what every reader refuses."""

    def read(values):
        reads[values if isinstance(values, tuple) else "slots"] += 1
        return REFUSED if values == PROMPT else np.array(values, np.int32)

    monkeypatch.setattr(prefix_cache, "new_reader", lambda core: Reader(read, None, None, None))
    return PrefixCache(8, core=core)


def test_a_match_reads_its_tokens_once(cache, reads):
    assert cache.match_prefix(PROMPT).length == 0
    assert reads == {PROMPT: 1}


def test_a_match_with_content_reads_its_tokens_once(cache, reads):
    assert cache.match_prefix(PROMPT, content=[ContentSpan(0, 3, b"a")]).length == 0
    assert reads == {PROMPT: 1}


@pytest.fixture
def checks(monkeypatch):
    """The lengths of the prompts whose content the tree and the cache checked."""
    lengths = []

    def check(spans, length):
        if spans:
            lengths.append(length)
        return check_content(spans, length)

    for module in (content, prefix_cache):
        monkeypatch.setattr(module, "check_content", check)
    return lengths


@pytest.mark.parametrize("verb", ["match_batch", "match_lengths"])
def test_a_batch_reads_each_prompt_once(cache, reads, verb):
    assert len(getattr(cache, verb)([PROMPT, (1, 2), PROMPT])) == 3
    assert reads == {PROMPT: 2, (1, 2): 1}


def test_a_pin_reads_its_tokens_once(cache, reads):
    assert len(cache.loans.pin(PROMPT).slots) == 0
    assert reads == {PROMPT: 1}


@pytest.mark.parametrize("content", [(), (ContentSpan(0, 3, b"a"),)], ids=["plain", "content"])
def test_storing_reads_tokens_and_slots_once(cache, reads, content):
    borrower = cache.loans.new_borrower()
    slots, _ = cache.loans.allocate(borrower, 3)
    (done,) = cache.loans.store(borrower, [Insert(PROMPT, slots.tolist(), content)])
    assert (done.existing_length, done.cached_length) == (0, 3)
    assert reads == {PROMPT: 1, "slots": 1}


@pytest.mark.parametrize("verb", ["match_batch", "match_lengths", "probe_batch"])
def test_a_batch_that_was_checked_is_not_read(cache, reads, verb):
    assert len(getattr(cache, verb)([REFUSED, REFUSED], checked=True)) == 2
    assert not reads


def test_a_prompt_that_was_checked_is_not_read(cache, reads):
    assert cache.match_prefix(REFUSED, checked=True).length == 0
    assert cache.probe(REFUSED, checked=True) == 0
    assert len(cache.loans.pin(REFUSED, checked=True).slots) == 0
    borrower = cache.loans.new_borrower()
    slots, _ = cache.loans.allocate(borrower, 3)
    assert cache.loans.store(borrower, [Insert(REFUSED, slots)], checked=True)
    assert not reads


@pytest.mark.parametrize("content", [(), (ContentSpan(0, 3, b"a"),)], ids=["plain", "content"])
def test_a_server_has_read_and_checked_all_of_a_call(cache, reads, checks, content):
    prompt = Prompt(list(PROMPT), content)
    with CacheServer(cache, "127.0.0.1:0", alone=True) as server, connect(server.address) as client:
        for how in ({}, {"probe": True}, {"want_slots": True}):
            assert client.match(prompt, **how).lengths == [0]
        with client.lease(pool_id="p") as lease:
            assert lease.pin(prompt).matches[0].length == 0
            slots = lease.allocate(3).slots
            (done,) = lease.insert(InsertCall(PROMPT, slots, content=content))
    assert done.cached_length == 3
    assert (list(reads), list(checks)) == ([], [])


@pytest.mark.parametrize("verb", ["match_prefix", "probe", "admit"])
def test_content_is_checked_once(core, checks, verb):
    getattr(PrefixCache(8, core=core), verb)((1, 2, 3), content=[ContentSpan(0, 3, b"a")])
    assert checks == [3]


@pytest.mark.parametrize("refused", [[-1], [INT32_MAX + 1], [1.5]], ids=str)
def test_what_was_not_checked_is(core, refused):
    tree = new_tree(core=core)
    for look in (tree.match_prefix, lambda ids: tree.match_batch([ids])):
        with pytest.raises(InvalidTokensError):
            look(refused)
    with pytest.raises(InvalidTokensError):
        tree.insert(refused, [1])
    with pytest.raises(InvalidSlotsError):
        tree.insert([1], refused)


def test_what_was_checked_is_found_alike(core):
    tree = new_tree(core=core)
    ids, slots = np.array([1, 2, 3], np.int32), np.array([11, 12, 13], np.int32)
    assert tree.insert(ids, slots, checked=True).prefix_length == 0
    for checked in (False, True):
        assert tree.match_prefix(ids[:2], checked=checked).slots.tolist() == [11, 12]
        assert tree.match_lengths([ids, ids[:1]], checked=checked) == [3, 1]
        assert [m.length for m in tree.match_batch([ids, ids[1:]], checked=checked)] == [3, 0]
    assert not tree.check_integrity()
