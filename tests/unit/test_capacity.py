"""What other amounts of memory would give, against the answer that is known."""

import numpy as np
import pytest

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.arrays import EMPTY
from radixkv.cache.capacity import MOST_WATCHED, CapacityEstimator
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog, LoggedRequest
from radixkv.lab.replay.curve import lru_curve
from radixkv.lab.replay.paths import find_paths

FACTORS = (0.5, 1, 2, 4)


def estimator_of(prompts, capacity: int) -> CapacityEstimator:
    estimator = CapacityEstimator(capacity, window=10**9)
    for prompt in prompts:
        estimator.observe(prompt)
    return estimator


def exact(prompts, capacity: int) -> list[float]:
    log = ListedLog(LoggedRequest(at, str(at), 0, None, ids) for at, ids in enumerate(prompts))
    curve = lru_curve(find_paths(log))
    return [curve.hit_rate(int(capacity * factor)) for factor in FACTORS]


@pytest.fixture
def prompts(rng) -> list[np.ndarray]:
    """Chats that share one of three beginnings, with turns of a few hundred tokens."""
    stems = [rng.integers(0, 50_000, 1500).astype(np.int32) for _ in range(3)]
    chats = [stems[at % 3] for at in range(40)]
    out = []
    for _ in range(400):
        at = int(rng.zipf(1.4) % 40)
        chats[at] = np.concatenate([chats[at], rng.integers(0, 50_000, 200).astype(np.int32)])
        out.append(chats[at])
    return out


@pytest.mark.parametrize("capacity", [2_000, 10_000, 30_000])
def test_it_estimates_what_every_factor_gives(prompts, capacity):
    estimator = estimator_of(prompts, capacity)
    estimated = [estimator.hit_rate(factor) for factor in FACTORS]
    assert estimated == pytest.approx(exact(prompts, capacity), abs=0.02)
    assert estimated == sorted(estimated)


def test_a_sample_gives_nearly_the_same_estimate(rng):
    """So large a cache that one prefix in a few is watched."""
    stems = [rng.integers(0, 50_000, 3000).astype(np.int32) for _ in range(300)]
    prompts = [stems[int(at) % 300] for at in rng.zipf(1.1, 1500)]
    estimator = estimator_of(prompts, 200_000)
    estimated = [estimator.hit_rate(factor) for factor in FACTORS]
    assert estimator.watched <= MOST_WATCHED
    assert estimated == pytest.approx(exact(prompts, 200_000), abs=0.02)


def test_a_loop_is_a_cliff():
    loop = [np.arange(1000, dtype=np.int32) + 5000 * number for number in range(10)] * 20
    estimator = estimator_of(loop, 6000)
    assert [round(estimator.hit_rate(factor), 1) for factor in FACTORS] == [0, 0, 0.9, 0.9]


def test_memory_stays_bounded(rng):
    estimator = CapacityEstimator(100_000)
    for _ in range(300):
        estimator.observe(rng.integers(0, 2**31, 20_000).astype(np.int32))
    assert estimator.watched == MOST_WATCHED
    assert estimator.hit_rate(4) == 0


def test_what_is_long_ago_counts_less(rng):
    first = np.arange(1000, dtype=np.int32)
    estimator = CapacityEstimator(1000)
    for _ in range(50):
        estimator.observe(first)
    assert estimator.hit_rate() > 0.9
    for _ in range(200):
        estimator.observe(rng.integers(0, 2**31, 1000).astype(np.int32))
    assert estimator.hit_rate() < 0.2


def test_namespaces_and_content_are_distinguished():
    prompt = np.arange(100, dtype=np.int32)
    estimator = CapacityEstimator(1000)
    estimator.observe(prompt)
    estimator.observe(prompt, Namespace(salt="a"))
    estimator.observe(prompt, content=[(0, 10, b"x")])
    estimator.observe(prompt, content=[(0, 10, b"y")])
    assert estimator.hit_rate(4) == 0
    estimator.observe(prompt, content=[(0, 10, b"y")])
    assert estimator.hit_rate(4) == pytest.approx(96 / 500)


LOOK_UPS = {
    "match_prefix": lambda cache, *args: cache.match_prefix(*args),
    "match_batch": lambda cache, ids, space: cache.match_batch([ids], space),
    "match_lengths": lambda cache, ids, space: cache.match_lengths([ids], space),
    "pin": lambda cache, *args: cache.loans.pin(*args),
    "admit": lambda cache, *args: cache.abort(cache.admit(*args)),
}


@pytest.mark.parametrize("look_up", LOOK_UPS.values(), ids=LOOK_UPS)
def test_a_prefix_is_watched_once_whatever_names_its_weights(look_up):
    cache = PrefixCache(500, estimate_capacity=True)
    cache.set_weight_version(1)
    prompt = list(range(100))
    for space in (DEFAULT, Namespace(weight_version=1)):
        look_up(cache, prompt, space)
    assert cache.capacity_estimator.watched == 100 // 16
    assert cache.capacity_estimator.hit_rate() == pytest.approx(96 / 200)


@pytest.mark.parametrize("look_up", ["match_prefix", "match_batch", "match_lengths"])
def test_a_look_up_in_other_weights_is_not_watched(look_up):
    cache = PrefixCache(500, estimate_capacity=True)
    cache.set_weight_version(2)
    LOOK_UPS[look_up](cache, list(range(100)), Namespace(weight_version=1))
    assert cache.capacity_estimator.watched == 0


def test_nothing_seen_is_no_hit():
    estimator = CapacityEstimator(10)
    estimator.observe(EMPTY)
    estimator.observe(np.arange(3, dtype=np.int32))
    assert estimator.hit_rate() == 0


@pytest.mark.parametrize("factor", [-1, 4.1, float("nan")])
def test_factors_have_bounds(factor):
    with pytest.raises(InvalidArgumentError, match="factor must be"):
        CapacityEstimator(10).hit_rate(factor)


def test_a_capacity_is_a_number_of_tokens():
    with pytest.raises(InvalidArgumentError, match=r"capacity must be .* got 0"):
        CapacityEstimator(0)
