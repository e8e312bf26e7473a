"""Replays through a real cache, of logs so small that every answer is plain."""

import dataclasses

import pytest

from radixkv import Namespace
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import Scheduling, in_scheduled_order
from radixkv.lab.replay.setting import Setting
from tests.lab.logs import ask
from tests.support.trees import CORES


def cached(log, **setting):
    return replay(log, Setting(**setting)).cached_tokens.tolist()


def cached_beside(log, **setting):
    """Where the capacity is that of the cache beside the requests in flight."""
    return cached(log, capacity_of="cache", **setting)


def test_a_request_finds_what_those_before_it_brought():
    found = replay(ask("abcd", "abxy", "abxyz"))
    assert found.cached_tokens.tolist() == [0, 2, 4]
    assert found.prompt_tokens.tolist() == [4, 4, 5]
    assert found.hit_rate == 6 / 13


def test_the_last_token_is_always_computed():
    assert cached(ask("abcd", "abcd", "abc")) == [0, 3, 2]


def test_whole_pages_only():
    log = ask("abcdefgh", "abcdefgh", "abcdxxxx", "abcde")
    assert cached(log, page_size=4) == [0, 4, 4, 4]
    assert cached(log, page_size=8) == [0, 0, 0, 0]


def test_a_capacity_evicts_the_least_recently_used():
    log = ask("aaaa", "bbbb", "cccc", "aaaa", "cccc")
    assert cached(log) == [0, 0, 0, 3, 3]
    found = replay(log, Setting(capacity=8, capacity_of="cache"))
    assert found.cached_tokens.tolist() == [0, 0, 0, 0, 3]
    assert found.evicted_tokens.tolist() == [0, 0, 4, 4, 0]
    # In a pool the last token, computed once more, has a slot of its own until it is shared.
    pool = replay(log, Setting(capacity=8))
    assert pool.cached_tokens.tolist() == [0, 0, 0, 0, 3]
    assert pool.evicted_tokens.tolist() == [0, 0, 4, 4, 1]


def test_a_prompt_longer_than_the_capacity_keeps_its_beginning():
    assert cached_beside(ask("abcdef", "abcdef"), capacity=4) == [0, 4]


def test_a_request_longer_than_the_pool_is_refused_and_counted():
    found = replay(ask("abcdef", "abc", "abcdef", "abc"), Setting(capacity=4))
    assert found.cached_tokens.tolist() == [0, 0, 0, 2]
    assert (found.refused, found.prompt_tokens.sum()) == (2, 18)
    with_answer = replay(ask("abc", "abc", outputs=("de", "d")), Setting(capacity=4))
    assert (with_answer.refused, with_answer.cached_tokens.tolist()) == (1, [0, 0])


def test_capacity_0_keeps_nothing():
    assert cached(ask("abc", "abc"), capacity=0) == [0, 0]
    assert cached(ask("abc", "abc"), capacity=0, in_flight=16) == [0, 0]
    assert cached_beside(ask("abc", "abc"), capacity=0) == [0, 0]


def test_outputs_are_cached_only_when_asked():
    log = ask("ab", "abcdef", outputs=("cde", ""))
    assert cached(log) == [0, 2]
    assert cached(log, outputs=True) == [0, 5]


def test_another_policy():
    log = ask("a1", "b1", "a1", "c1", "a1", "b1")
    assert cached_beside(log, capacity=4, policy="lru")[4] == 1
    assert cached_beside(log, capacity=4, policy="fifo")[4] == 0


def test_namespaces_share_nothing():
    tenants = [Namespace(salt=salt) for salt in "xyx"]
    assert cached(ask("abc", "abc", "abc", namespaces=tenants)) == [0, 0, 2]


def test_what_is_in_flight_is_kept():
    log = ask("aaaa", "bbbb", "cccc", "aaaa", "bbbb")
    assert cached_beside(log, capacity=4) == [0, 0, 0, 0, 0]
    assert cached_beside(log, capacity=4, in_flight=4) == [0, 0, 0, 3, 3]


def test_what_is_in_flight_is_in_the_pool():
    log = ask("aaaa", "bbbb", "cccc", "aaaa", "bbbb")
    found = replay(log, Setting(capacity=8, in_flight=4))
    # The third waits for the first to end, which makes its room.
    assert found.cached_tokens.tolist() == [0, 0, 0, 0, 0]
    assert (found.peak_in_flight, found.waited) == (8, 3)
    assert cached(log, capacity=12, in_flight=4) == [0, 0, 0, 3, 3]


def test_an_answer_has_room_in_the_pool_from_the_beginning():
    log = ask("aa", "bb", "aac", outputs=("xx", "yy", "z"))
    found = replay(log, Setting(capacity=8, in_flight=2))
    assert (found.peak_in_flight, found.waited) == (8, 0)
    found = replay(log, Setting(capacity=7, in_flight=2))
    assert (found.peak_in_flight, found.waited) == (4, 2)


def test_a_request_in_flight_shares_its_prompt_but_not_yet_its_output():
    log = ask("ab", "abcd", "abcd", outputs=("cde", "", ""))
    assert cached(log, outputs=True, in_flight=2) == [0, 2, 3]
    assert cached(ask("ab", "abcd", outputs=("cde", "")), outputs=True, in_flight=2) == [0, 2]


def test_a_request_that_waits_is_admitted_for_its_match():
    log = ask("aaaa", "bbbb", "aaax", "bbbx")
    found = replay(log, Setting(capacity=4, scheduling=Scheduling(waiting=4, patience=9)))
    assert found.ids.tolist() == [0, 2, 1, 3]
    assert found.arrivals.tolist() == [0, 2, 1, 3]
    assert found.cached_tokens.tolist() == [0, 3, 0, 3]
    assert cached(log, capacity=4) == [0, 0, 0, 0]


def test_no_one_is_passed_over_more_often_than_patience_allows():
    log = ask("aaaa", "bbbb", "aaax", "aaay", "aaaz")
    order = replay(log, Setting(scheduling=Scheduling(waiting=5, patience=2))).ids
    assert order.tolist() == [0, 2, 3, 1, 4]


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_whatever_is_cached_no_one_is_passed_over_more_often(rng, patience):
    sessions = "".join(rng.choice(list("abcdef"), 300))
    log = ask(*["x"] * 300, sessions=sessions)
    how = Scheduling(waiting=20, patience=patience)
    order = [at for at, _ in in_scheduled_order(log, how, lambda *_: int(rng.integers(9)))]
    assert max(passed_over(order, sessions, how.waiting).values()) == patience


def passed_over(order, sessions, waiting):
    """How often a later one was admitted while each was the first of its session in the queue."""
    counts = dict.fromkeys(order, 0)
    for done, chosen in enumerate(order):
        queue = sorted({*range(min(len(order), done + waiting))} - {*order[:done]})
        first_of_session = {sessions[each]: each for each in reversed(queue)}
        for each in first_of_session.values():
            counts[each] += each < chosen
    return counts


def test_a_session_keeps_its_order_in_the_queue():
    log = ask("aaaa", "bbbb", "aaaa", sessions="uvv")
    order = replay(log, Setting(scheduling=Scheduling(waiting=3, patience=9))).ids
    assert order.tolist() == [0, 1, 2]


def test_every_request_is_admitted_once(rng):
    letters = ["".join(rng.choice(list("ab"), rng.integers(1, 9))) for _ in range(200)]
    log = ask(*letters)
    found = replay(log, Setting(capacity=30, in_flight=3, scheduling=Scheduling(8, 5)))
    assert sorted(found.ids.tolist()) == list(range(200))
    assert (found.arrivals - range(200)).max() < 8
    assert found.prompt_tokens.sum() == log.lengths.sum()


def test_the_replay_counts_its_requests():
    heard = []
    replay(ask("a", "b", "c"), progress=heard.append)
    assert heard == [1, 2, 3]


def test_an_empty_log():
    found = replay(ListedLog([]))
    assert (len(found.ids), found.hit_rate) == (0, 0.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"page_size": 0}, "page_size must be .* got 0"),
        ({"capacity": -1}, "capacity must be .* got -1"),
        ({"in_flight": 0}, "in_flight must be .* got 0"),
        ({"policy": "lucky"}, "policy must be one of lru"),
    ],
)
def test_a_setting_that_is_none(wrong, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Setting(**wrong)


def test_more_tokens_than_a_pool_holds():
    log = ask("a")
    log.lengths = log.lengths + 2**31
    with pytest.raises(InvalidArgumentError, match="give a capacity"):
        replay(log)


def test_both_cores_agree(rng):
    letters = ["".join(rng.choice(list("abc"), rng.integers(1, 20))) for _ in range(300)]
    log = ask(*letters)
    found = [
        replay(log, dataclasses.replace(Setting(page_size=2, capacity=50, in_flight=2), core=core))
        for core in CORES
    ]
    assert found[0].cached_tokens.tolist() == found[-1].cached_tokens.tolist()
    assert found[0].evicted_tokens.tolist() == found[-1].evicted_tokens.tolist()
