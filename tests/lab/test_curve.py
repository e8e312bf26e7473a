import numpy as np
import pytest

from radixkv import Namespace
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog, LoggedRequest
from radixkv.lab.replay.clairvoyant import clairvoyant_hit_rate
from radixkv.lab.replay.curve import lru_curve, sampled_curve, shrink
from radixkv.lab.replay.paths import find_paths
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from tests.lab.logs import ask

CAPACITIES = (0, 1, 5, 17, 40, 90, 200, 1000)


@pytest.fixture
def log(rng) -> ListedLog:
    """Prompts that share beginnings, end inside one another, come again, and are padded."""
    stems = [rng.integers(0, 5, 60).astype(np.int32) for _ in range(4)]
    requests = []
    for at in range(150):
        stem = stems[int(rng.integers(0, 4))]
        own = rng.integers(0, 3, int(rng.integers(0, 12))).astype(np.int32)
        ids = np.concatenate([stem[: int(rng.integers(1, 60))], own])
        padding = int(rng.integers(0, min(len(ids), 4)))
        space = Namespace(salt="a" if at % 5 == 0 else None)
        requests.append(LoggedRequest(at, str(at), 0, None, ids, (own,), space, padding))
    return ListedLog(requests)


@pytest.mark.parametrize("outputs", [False, True])
@pytest.mark.parametrize("page_size", [1, 4])
def test_the_curve_is_what_replays_give_at_every_capacity(log, page_size, outputs):
    paths = find_paths(log, page_size=page_size, outputs=outputs)
    curve = lru_curve(paths)
    for capacity in CAPACITIES:
        exact = replay(
            log, Setting(page_size, capacity, outputs=outputs, capacity_of="cache")
        ).hit_rate
        assert curve.hit_rate(capacity) == pytest.approx(exact, abs=1e-12), capacity
    ideal = replay(log, Setting(page_size, outputs=outputs)).hit_rate
    assert paths.ideal_hit_rate == pytest.approx(ideal)
    assert curve.hit_rate(curve.largest_useful) == pytest.approx(ideal)
    assert curve.hit_rate(max(curve.largest_useful - page_size, 0)) < ideal


def test_the_least_capacity_for_a_hit_rate(log):
    curve = lru_curve(find_paths(log))
    wanted = curve.hit_rate(90)
    least = curve.capacity_for(wanted)
    assert least is not None
    assert least <= 90
    assert curve.hit_rate(least) >= wanted > curve.hit_rate(least - 1)
    assert curve.capacity_for(1.0) is None
    assert curve.capacity_for(0) == 0


def test_runs_are_what_requests_share_whole():
    paths = find_paths(ask("abcd", "abxy", "ab", "q"))
    words = [[paths.lengths[run] for run in paths.path(at)] for at in range(4)]
    assert words == [[2, 2], [2, 2], [2], [1]]
    assert paths.path(0)[0] == paths.path(1)[0] == paths.path(2)[0]
    assert paths.prompt_tokens.tolist() == [4, 4, 2, 1]


def test_prompts_shorter_than_a_page_go_through_nothing():
    paths = find_paths(ask("ab", "abcd"), page_size=4)
    assert paths.path(0) == []
    assert lru_curve(paths).hit_rate(100) == 0


def test_an_empty_log_has_an_empty_curve():
    paths = find_paths(ListedLog([]))
    assert lru_curve(paths).hit_rate(100) == paths.ideal_hit_rate == 0
    assert lru_curve(paths).largest_useful == 0
    assert clairvoyant_hit_rate(paths, 10) == 0


# ---- other policies ----


def test_a_sample_keeps_every_branch(log):
    paths = find_paths(log)
    whole = shrink(paths, 1)
    assert [len(request.token_ids) - 1 for request in whole] == [
        len(request.token_ids) for request in log
    ]
    small = sum(len(request.token_ids) - 1 for request in shrink(paths, 3))
    assert small == pytest.approx(sum(map(len, (r.token_ids for r in log))) / 3, rel=0.1)


def test_a_cache_small_enough_is_not_made_smaller(log):
    paths = find_paths(log)
    (found,) = sampled_curve(paths, [90], "slru")
    padded = ListedLog(
        LoggedRequest(r.id, r.session, 0, None, r.token_ids, (), r.namespace) for r in log
    )
    exact = replay(padded, Setting(capacity=90, policy="slru", capacity_of="cache"))
    assert (found.every, found.error) == (1, 0)
    assert found.hit_rate == pytest.approx(exact.cached_tokens.sum() / log.lengths.sum(), abs=0.02)


def test_a_sample_of_a_large_log_is_near(rng):
    stems = [rng.integers(0, 1000, 4000).astype(np.int32) for _ in range(12)]
    picks = [stems[at][: int(rng.integers(500, 4000))] for at in rng.zipf(1.5, 300) % 12]
    log = ListedLog(LoggedRequest(at, str(at), 0, None, ids) for at, ids in enumerate(picks))
    (found,) = sampled_curve(find_paths(log), [20_000], "lfu")
    exact = replay(log, Setting(capacity=20_000, policy="lfu", capacity_of="cache")).hit_rate
    assert found.every == 2
    assert found.hit_rate == pytest.approx(exact, abs=0.005)
    assert abs(found.error) < 0.005


def test_pages_are_samples_already(log):
    with pytest.raises(InvalidArgumentError, match="page_size of a sampled curve must be 1; got 4"):
        sampled_curve(find_paths(log, page_size=4), [10], "lfu")


# ---- clairvoyant ----


def test_of_a_loop_the_clairvoyant_keeps_what_fits():
    log = ask(*["aaaa", "bbbb", "cccc"] * 20)
    paths = find_paths(log)
    # Two of three prompts stay, and of 4 tokens 3 are hits.
    assert clairvoyant_hit_rate(paths, 8) == pytest.approx(2 / 3 * 3 / 4, abs=0.03)
    assert replay(log, Setting(capacity=8)).hit_rate == 0
    assert clairvoyant_hit_rate(paths, 12) == paths.ideal_hit_rate
    assert clairvoyant_hit_rate(paths, 0) == 0


def test_the_clairvoyant_evicts_what_is_needed_last():
    # When "bb" comes, "aa" and "cc" must shrink to two tokens: "cc" is never needed again.
    paths = find_paths(ask("ccx", "aax", "bbx", "aax"))
    assert clairvoyant_hit_rate(paths, 3) * 12 == 2


def test_no_policy_does_better_on_this_log(log):
    paths = find_paths(log)
    for capacity in CAPACITIES:
        best = clairvoyant_hit_rate(paths, capacity)
        assert best <= paths.ideal_hit_rate + 1e-12
        for policy in ("lru", "slru", "adaptive"):
            assert (
                replay(log, Setting(capacity=capacity, policy=policy, capacity_of="cache")).hit_rate
                <= best
            )


def test_the_clairvoyant_evicts_whole_pages(log):
    paths = find_paths(log, page_size=4)
    assert clairvoyant_hit_rate(paths, 42) == clairvoyant_hit_rate(paths, 40)


def test_a_capacity_is_no_negative_number(log):
    paths = find_paths(log)
    for ask_for in (lru_curve(paths).hit_rate, lambda n: clairvoyant_hit_rate(paths, n)):
        with pytest.raises(InvalidArgumentError, match=r"capacity must be .* got -1"):
            ask_for(-1)
