"""Logs in memory, and the orders in which their requests may come."""

import numpy as np
import pytest

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog, LoggedRequest, in_order, interleave


def log_of(sessions, times=None):
    times = times or [None] * len(sessions)
    return ListedLog(
        LoggedRequest(
            at, session, sessions[:at].count(session), ts, np.arange(at + 1, dtype=np.int32)
        )
        for at, (session, ts) in enumerate(zip(sessions, times, strict=True))
    )


def places(log, order):
    return [request.id for request in in_order(log, order)]


def test_a_log_has_its_requests_without_making_them():
    log = log_of("aabac", [0.5, None, 2, 3, 4])
    assert log.sessions.tolist() == [0, 0, 1, 0, 2]
    assert log.lengths.tolist() == [1, 2, 3, 4, 5]
    assert np.isnan(log.times).tolist() == [False, True, False, False, False]
    assert len(log) == 5
    assert log[-1].session == "c"
    assert [request.turn for request in log[:4]] == [0, 1, 0, 2]


def test_the_order_of_the_file():
    assert places(log_of("aabac"), "file") == [0, 1, 2, 3, 4]


def test_by_time_equal_times_keep_the_order_of_the_file():
    assert places(log_of("abcd", [3, 1, 3, 0]), "time") == [3, 1, 0, 2]


def test_by_time_takes_a_time_for_each_request():
    with pytest.raises(InvalidArgumentError, match="got request 1 without"):
        in_order(log_of("ab", [3, None]), "time")


def test_sessions_take_turns():
    assert places(log_of("aaabbc"), "interleave-2") == [0, 3, 1, 4, 2, 5]


def test_a_session_that_ended_makes_room_after_its_round_behind_those_that_stay():
    # a and b begin; a ends with the first round, and c joins behind b.
    assert places(log_of("abbbccd"), "interleave-2") == [0, 1, 2, 4, 3, 5, 6]


def test_one_at_a_time_goes_session_by_session():
    assert places(log_of("abab"), "interleave-1") == [0, 2, 1, 3]


def test_more_turns_than_sessions():
    assert places(log_of("abab"), "interleave-16") == [0, 1, 2, 3]


@pytest.mark.parametrize("order", ["", "random", "interleave-0", "interleave-x", "interleave"])
def test_an_order_that_is_none(order):
    with pytest.raises(InvalidArgumentError, match="order must be file, time or interleave-N"):
        in_order(log_of("ab"), order)


def test_an_empty_log():
    log = ListedLog([])
    assert [*in_order(log, "interleave-2"), *in_order(log, "time"), *log] == []


def test_a_hundred_thousand_sessions():
    sessions = np.repeat(np.arange(100_000), 2)
    order = interleave(sessions, 16)
    assert order[:32].tolist() == [*range(0, 32, 2), *range(1, 32, 2)]
    assert np.array_equal(np.sort(order), np.arange(200_000))
