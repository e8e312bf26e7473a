"""Policies: where a prompt goes, by what each worker holds of it and how busy each is."""

from collections import Counter

import numpy as np
import pytest

from radixkv.errors import InvalidArgumentError
from radixkv.router import POLICIES, Choice, Question, new_policy


def question(lengths, loads=None, turns=None, *, length=100, key=b"key", workers=None):
    n = len(lengths)
    return Question(
        workers=workers or tuple(f"w{at}" for at in range(n)),
        lengths=np.array(lengths, np.int32),
        loads=np.array(loads or [0] * n, float),
        turns=np.array(turns or [0] * n, np.int64),
        prompt_length=length,
        key=lambda: key,
    )


def place(policy, *args, **how):
    return new_policy(policy).choose(question(*args, **how)).at


def test_the_policies_there_are():
    assert set(POLICIES) == {"cache-aware", "consistent-hashing", "least-load", "round-robin"}
    for name in POLICIES:
        assert new_policy(name).name == name


def test_unknown_names_and_options_are_refused():
    with pytest.raises(InvalidArgumentError, match="'nearest'; there are cache-aware, consistent-"):
        new_policy("nearest")
    with pytest.raises(InvalidArgumentError, match=r"policy round-robin: .*weight"):
        new_policy("round-robin", weight=2)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_worker_gets_all(policy):
    choice = new_policy(policy).choose(question([3], [90]))
    assert isinstance(choice, Choice)
    assert choice.at == 0
    assert choice.reason


@pytest.mark.parametrize("policy", POLICIES)
def test_a_question_is_not_changed(policy):
    asked = question([3, 5, 5], [1, 2, 2], [1, 2, 3])
    before = [array.tolist() for array in asked[1:4]]
    new_policy(policy).choose(asked)
    assert [array.tolist() for array in asked[1:4]] == before


# ---- cache-aware ----


def test_who_holds_most_wins_among_equals():
    assert place("cache-aware", [10, 90, 50]) == 1
    assert place("cache-aware", [10, 90, 50], [3, 3, 3]) == 1


def test_a_little_load_does_not_outweigh_a_match():
    assert place("cache-aware", [0, 90], [0, 3]) == 1
    assert place("cache-aware", [80, 90], [0, 3]) == 0


def test_a_hot_worker_is_left_to_its_queue():
    assert place("cache-aware", [100, 0], [40, 0]) == 1


def test_under_imbalance_the_best_of_the_lightly_loaded_wins():
    assert place("cache-aware", [100, 0, 50], [60, 0, 0]) == 2


def test_misses_and_ties_go_to_the_least_loaded_then_round():
    assert place("cache-aware", [0, 0, 0], [2, 1, 1], [9, 5, 4]) == 2
    assert place("cache-aware", [70, 70, 70], [2, 1, 1], [9, 5, 6]) == 1
    policy = new_policy("cache-aware", weight=0)
    assert policy.choose(question([70, 70], [2, 1], [1, 2])).at == 1


def test_cache_aware_says_why():
    def why(*args):
        return new_policy("cache-aware").choose(question(*args)).reason

    assert why([0, 0]) == "nobody holds any of it"
    assert why([5, 60]) == "holds most of it"
    assert why([100, 0], [40, 0]) == "who holds some is too busy"
    assert why([100, 50], [40, 0]) == "holds less than the best, and is less busy"


# ---- the others ----


def test_round_robin_takes_turns():
    assert place("round-robin", [90, 0, 0], [0, 9, 9], [7, 5, 6]) == 1


def test_least_load_looks_at_loads_alone():
    assert place("least-load", [90, 0, 0], [5, 3, 4]) == 1
    assert place("least-load", [90, 0, 0], [3, 3, 4], [2, 1, 0]) == 1


def keys(n):
    return [f"session {at}".encode() for at in range(n)]


def placed(policy, workers, loads=None):
    return {
        key: workers[
            policy.choose(question([0] * len(workers), loads, key=key, workers=workers)).at
        ]
        for key in keys(2_000)
    }


def test_a_key_goes_where_it_went():
    workers = tuple("abcdefgh")
    first = placed(new_policy("consistent-hashing"), workers)
    assert placed(new_policy("consistent-hashing"), workers) == first
    assert placed(new_policy("consistent-hashing"), workers[::-1]) == first, "whatever the order"
    shares = Counter(first.values())
    assert set(shares) == set(workers)
    assert max(shares.values()) < 1.3 * 2_000 / 8


def test_few_keys_move_when_workers_change():
    policy, workers = new_policy("consistent-hashing"), tuple("abcdefgh")
    before, after = placed(policy, workers), placed(policy, workers[:-1])
    moved = {key for key in before if before[key] != after[key]}
    assert moved == {key for key in before if before[key] == "h"}


def test_a_hot_key_spills_over_and_always_the_same_way():
    policy, workers = new_policy("consistent-hashing"), tuple("abcd")
    calm = placed(policy, workers)
    busy = placed(policy, workers, [9, 1, 1, 1])
    assert "a" not in busy.values()
    assert all(calm[key] == busy[key] for key in calm if calm[key] != "a")
    assert set(placed(policy, workers, [9, 9, 9, 9]).values()) == set(workers)
