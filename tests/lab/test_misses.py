"""Every missed token has one cause, and it is the true one."""

from itertools import pairwise

import numpy as np
import pytest

from radixkv import Namespace
from radixkv.lab.replay.engine import Engine
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from radixkv.lab.report.misses import CAUSES, Miss, explain
from radixkv.pages import round_up
from tests.lab.logs import ask


def causes(log, **setting):
    """(time, cause, start, end, other) of each miss."""
    found = explain(log, Setting(**setting))
    return [(miss.time, miss.cause, miss.start, miss.end, miss.other) for miss in found.misses]


def test_what_is_new():
    assert causes(ask("abcd")) == [(0, "new", 0, 4, None)]


def test_a_difference_from_an_earlier_request():
    assert causes(ask("abcd", "abxy", "abxz"))[1:] == [
        (1, "diverged", 2, 4, 0),
        (2, "diverged", 3, 4, 1),
    ]


def test_more_behind_an_earlier_request():
    assert causes(ask("ab", "abcd"))[1:] == [(1, "appended", 2, 4, 0)]


def test_the_last_token():
    assert causes(ask("abcd", "abcd", "ab"))[1:] == [
        (1, "last", 3, 4, None),
        (2, "last", 1, 2, None),
    ]


def test_an_answer_that_was_not_cached():
    log = ask("ab", "abcdef", outputs=("cde", ""))
    assert causes(log)[1:] == [(1, "answer", 2, 5, 0), (1, "appended", 5, 6, 0)]
    assert causes(log, outputs=True)[1:] == [(1, "appended", 5, 6, 0)]


def test_an_answer_that_the_next_prompt_has_otherwise():
    log = ask("ab", "abcx", outputs=("cde", ""))
    assert causes(log)[1:] == [(1, "answer", 2, 3, 0), (1, "appended", 3, 4, 0)]
    assert causes(log, outputs=True)[1:] == [(1, "diverged", 3, 4, 0)]


def test_what_fills_no_page():
    assert causes(ask("abcdefgh", "abcdefxx", "abcdefgh"), page_size=4)[1:] == [
        (1, "page", 4, 6, None),
        (1, "diverged", 6, 8, 0),
        (2, "page", 4, 7, None),
        (2, "last", 7, 8, None),
    ]


def test_what_another_namespace_has():
    tenants = [Namespace(salt=salt) for salt in "xyy"]
    assert causes(ask("abcd", "abcz", "abcd", namespaces=tenants))[1:] == [
        (1, "elsewhere", 0, 3, None),
        (1, "diverged", 3, 4, 0),
        (2, "last", 3, 4, None),
    ]


def test_what_was_evicted_by_others():
    log = ask("aaaa", "bbbb", "cc", "aaaa")
    # The second takes the room of the first; of the second, the third takes the end.
    assert causes(log, capacity=4)[3:] == [
        (3, "evicted", 0, 3, 1),
        (3, "last", 3, 4, None),
    ]


def test_what_was_evicted_bit_by_bit():
    log = ask("aaaa", "b", "c", "aaaa")
    assert causes(log, capacity=4)[3:] == [
        (3, "evicted", 2, 3, 2),
        (3, "last", 3, 4, None),
    ]


def test_a_prompt_longer_than_the_room():
    found = explain(ask("abcdef", "abcdef"), Setting(capacity=4, capacity_of="cache")).misses[1:]
    assert found == [
        Miss("evicted", 1, 4, 5, other=0, is_own=True),
        Miss("last", 1, 5, 6),
    ]


def test_padding_is_no_miss(read_blocks):
    log = read_blocks([[1, 2], [1, 2], [1, 3]], lengths=[700, 800, 700])
    assert causes(log, page_size=512)[1:] == [
        (1, "page", 512, 799, None),
        (1, "last", 799, 800, None),
        (2, "diverged", 512, 700, 0),
    ]


def test_totals_begin_with_the_biggest():
    totals = explain(ask("abcd", "abcdef", "ab")).totals()
    assert [*totals.items()][:3] == [("new", 4), ("appended", 2), ("last", 1)]
    assert set(totals) == set(CAUSES)


# ---- against a slow and obvious model ----


def random_log(rng, namespaces=None):
    words = ["abab", "abba", "bbbb", "aaca", "c"]
    prompts = ["".join(rng.choice(words, rng.integers(1, 6))) for _ in range(60)]
    outputs = tuple("".join(rng.choice(words, 1)) for _ in prompts)
    sessions = "".join(rng.choice(list("uvw"), 60))
    tenants = [Namespace(salt=str(rng.choice(list("xy")))) for _ in prompts]
    return ask(
        *prompts, sessions=sessions, outputs=outputs, namespaces=tenants if namespaces else None
    )


def common(one, other):
    shorter = min(len(one), len(other))
    differ = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(differ[0]) if len(differ) else shorter


SETTINGS = [
    Setting(),
    Setting(capacity=24),
    Setting(page_size=4, capacity=24),
    Setting(capacity=30, outputs=True),
    Setting(page_size=2, capacity=16, outputs=True, in_flight=3, capacity_of="cache"),
    Setting(page_size=2, capacity=60, outputs=True, in_flight=3),
    Setting(capacity=16, policy="fifo"),
    Setting(capacity=16, policy="adaptive"),
]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("namespaces", [False, True])
def test_causes_add_up_and_are_true(rng, setting, namespaces):
    for _ in range(5):
        log = random_log(rng, namespaces)
        found = explain(log, setting)
        cached = replay(log, setting).cached_tokens
        assert found.prompt_tokens - found.computed_tokens == cached.sum()
        assert sum(found.totals().values()) == found.computed_tokens
        for time, request in enumerate(log):
            spans = [(miss.start, miss.end) for miss in found.misses if miss.time == time]
            edges = [cached[time], *(end for _, end in spans)]
            assert spans == [*pairwise(edges)]
            assert edges[-1] == request.length
        for miss in found.misses:
            check_cause(log, setting, miss)


def check_cause(log, setting, miss):
    """What is said of the miss is true: every earlier request was compared."""
    request = log[miss.time]
    mine = request.token_ids
    if miss.cause == "refused":
        assert is_refused(request, setting)
        return
    shown = [shown_tokens(log, setting, time, miss.time) for time in range(miss.time)]
    depths = [
        common(mine, path) if log[time].namespace == request.namespace else 0
        for time, path in enumerate(shown)
    ]
    seen = max(depths, default=0)
    anywhere = max((common(mine, path) for path in shown), default=0)
    behind = max(seen, anywhere)
    if miss.cause in ("evicted", "page"):
        assert miss.end <= seen
    elif miss.cause == "elsewhere":
        assert seen <= miss.start < miss.end <= anywhere
    elif miss.cause == "last":
        assert miss.end == request.length == miss.start + 1 <= behind
    elif miss.cause == "new":
        assert behind == 0
    elif miss.cause == "diverged":
        assert behind == miss.start == common(mine, shown[miss.other]) < len(shown[miss.other])
    elif miss.cause == "answer":
        output = log[miss.other].outputs[0][: miss.tokens]
        assert len(shown[miss.other]) == miss.start == behind
        assert np.array_equal(output, mine[miss.start : miss.end])
    else:
        assert len(shown[miss.other]) <= miss.start
        assert miss.end == request.length


def is_refused(request, setting):
    length = len(request.token_ids) + len(request.outputs[0])
    return setting.is_pool and round_up(length, setting.page_size) > setting.capacity


def shown_tokens(log, setting, time, now):
    """What the cache was shown of a request before another came."""
    request = log[time]
    if is_refused(request, setting):
        return request.token_ids[:0]
    has_ended = setting.in_flight == 1 or now - time >= setting.in_flight
    outputs = request.outputs[:1] if setting.outputs and has_ended else ()
    return np.concatenate([request.token_ids, *outputs])


@pytest.mark.parametrize("page_size", [1, 4])
def test_tokens_were_evicted_when_it_is_said(rng, page_size):
    setting = Setting(page_size, capacity=24)
    for _ in range(5):
        log = random_log(rng)
        misses = [miss for miss in explain(log, setting).misses if miss.cause == "evicted"]
        assert misses
        engine, resident = Engine(log, setting), []
        for request in log:
            engine.serve(request)
            resident.append([engine.cache.probe(each.token_ids) for each in log])
        for miss in misses:
            # Cached for the last time before, and not after, the request to blame.
            lengths = [lengths[miss.time] for lengths in resident[: miss.time]]
            holds = [time for time, length in enumerate(lengths) if length >= miss.end]
            if miss.is_own:
                assert miss.other not in holds
            else:
                assert holds[-1] == miss.other - 1
            assert all(length <= miss.start for length in lengths[miss.other :])
