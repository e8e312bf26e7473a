"""MatchPrefix, over real sockets, against a cache that an engine uses."""

import threading
from array import array

import numpy as np
import pytest
import torch

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.service import CacheServer, Prompt
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest
from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub
from radixkv.v1.types_pb2 import TokenSequence
from tests.support.service import connect, hold


def test_lengths_come_in_the_order_asked(cache, client):
    hold(cache, [1, 2, 3, 4])
    assert client.match([[1, 2, 9], [7], [1, 2, 3, 4, 5], [1]]).lengths == [2, 0, 4, 1]


@pytest.mark.parametrize(
    "prompt",
    [
        [1, 2, 3],
        (1, 2, 3),
        array("i", [1, 2, 3]),
        np.array([1, 2, 3]),
        np.array([1, 2, 3], np.uint8),
        np.array([1, 2, 3], "<i4").tobytes(),
        torch.tensor([1, 2, 3]),
        Prompt([1, 2, 3]),
    ],
    ids=lambda prompt: type(prompt).__name__,
)
def test_any_kind_of_prompt_alone_or_in_a_batch(cache, client, prompt):
    hold(cache, [1, 2])
    assert client.match(prompt).lengths == [2]
    assert client.match([prompt, prompt]).lengths == [2, 2]


def test_a_matrix_is_a_batch_of_its_rows(cache, client):
    hold(cache, [1, 2])
    assert client.match(np.array([[1, 2], [1, 3]])).lengths == [2, 1]


def test_slots_are_the_caches_own(cache, client):
    slots = hold(cache, [1, 2, 3, 4])
    hit, miss = client.match([[1, 2, 3, 9], [8]], want_slots=True).matches
    assert hit.slots.tolist() == slots[:3]
    assert hit.slots.dtype == np.int32
    assert miss.slots.tolist() == []
    assert client.match([1]).matches[0].slots is None


def test_leave_last_token_leaves_one_to_compute(cache, client):
    slots = hold(cache, [1, 2, 3, 4])
    (match,) = client.match([1, 2, 3, 4], leave_last_token=True, want_slots=True).matches
    assert (match.length, match.slots.tolist()) == (3, slots[:3])
    assert client.match([1], leave_last_token=True).lengths == [0]
    assert client.match([1, 2, 3, 4]).lengths == [4]


def test_leave_last_token_keeps_whole_pages():
    cache = PrefixCache(16, page_size=4)
    hold(cache, range(8))
    with CacheServer(cache, "127.0.0.1:0") as server, connect(server.address) as client:
        assert client.match(range(8)).lengths == [8]
        assert client.match(range(8), leave_last_token=True).lengths == [4]


def test_leave_last_token_inside_a_content_span(cache, client):
    hold(cache, [5, 9, 9, 6], content=[(1, 2, b"x")])
    prompt = Prompt([5, 9, 9], content=[(1, 2, b"x")])
    assert client.match(prompt).lengths == [3]
    assert client.match(prompt, leave_last_token=True).lengths == [2]


def test_B15_same_placeholder_other_content(cache, client):
    hold(cache, [5, 9, 9, 6], content=[(1, 2, b"\0" * 30 + b"xz")])
    same = Prompt([5, 9, 9, 6], content=[(1, 2, b"\0" * 30 + b"xz")])
    other = Prompt([5, 9, 9, 6], content=[(1, 2, b"\1" * 30 + b"xz")])
    assert client.match([same, other, [5, 9, 9, 6]]).lengths == [4, 1, 1]
    assert client.match([same, other], probe=True).lengths == [4, 1]


def test_a_match_is_a_use_and_a_probe_is_none():
    for probe, survivor in [(False, 1), (True, 2)]:
        cache = PrefixCache(4)
        hold(cache, [1, 1])
        hold(cache, [2, 2])
        with CacheServer(cache, "127.0.0.1:0") as server, connect(server.address) as client:
            client.match([1, 1], probe=probe)
        cache.evict(2)
        assert [cache.probe([n, n]) for n in (1, 2)] == [2 * (survivor == n) for n in (1, 2)]


def test_a_probe_is_not_counted(cache, client):
    hold(cache, [1, 2, 3])
    before = client.stats()
    client.match([1, 2, 3], probe=True)
    assert client.stats() == before
    client.match([1, 2, 3, 4])
    after = client.stats()
    assert after.lookup_tokens - before.lookup_tokens == 4
    assert after.hit_tokens - before.hit_tokens == 3


def test_B14_namespaces_are_compared_field_by_field(cache, client):
    hold(cache, [1, 2, 3], Namespace(salt="ab", adapter="c"))
    asked = [
        Namespace(salt="ab", adapter="c"),
        Namespace(salt="a", adapter="bc"),
        Namespace(salt="abc"),
        Namespace(salt="ab", adapter="c", extra_key=""),
        DEFAULT,
    ]
    assert [client.match([1, 2, 3], namespace).lengths for namespace in asked] == [
        [3],
        [0],
        [0],
        [0],
        [0],
    ]


def test_unset_is_not_empty(cache, client):
    hold(cache, [1, 2], Namespace(salt=""))
    assert client.match([1, 2], Namespace(salt="")).lengths == [2]
    assert client.match([1, 2], Namespace(salt=None)).lengths == [0]
    assert client.match([1, 2]).lengths == [0]
    assert client.match([1, 2], Namespace(salt="None")).lengths == [0]


def test_B25_old_weights_match_nothing(cache, client):
    cache.set_weight_version(1)
    hold(cache, [1, 2])
    assert client.match([1, 2], Namespace(weight_version=1)).lengths == [2]
    assert client.match([1, 2], Namespace(weight_version=0)).lengths == [2]
    cache.set_weight_version(2)
    for version in (0, 1, 2):
        assert client.match([1, 2], Namespace(weight_version=version)).lengths == [0]


def test_ids_and_packed_are_the_same(cache, channel):
    hold(cache, [1, 2, 3])
    request = MatchPrefixRequest(
        sequences=[
            TokenSequence(ids=[1, 2, 3]),
            TokenSequence(packed=np.array([1, 2, 3], "<i4").tobytes()),
        ]
    )
    response = PrefixCacheServiceStub(channel).MatchPrefix(request)
    assert [match.matched_length for match in response.matches] == [3, 3]


def test_every_answer_has_epoch_and_revision(cache, client):
    hold(cache, [1, 2])
    hold(cache, [3, 4])
    now = (cache.events.epoch, cache.events.revision)
    answers = [
        client.match([1]),
        client.match([1], probe=True),
        client.stats(),
        client.server_info(),
    ]
    assert {(answer.epoch, answer.revision) for answer in answers} == {now}


def test_a_batch_is_answered_at_one_revision(cache, client):
    """An engine stores and evicts all the time: both prompts of a batch are held, or neither is."""
    done = threading.Event()

    def work():
        while not done.is_set():
            hold(cache, [1, 2, 3, 4])
            cache.evict(4)

    engine = threading.Thread(target=work)
    engine.start()
    try:
        seen = {tuple(client.match([[1, 2, 3, 4]] * 50).lengths) for _ in range(100)}
    finally:
        done.set()
        engine.join()
    assert seen <= {(4,) * 50, (0,) * 50}
    assert cache.check_integrity() == []
