"""Policies: where a prompt goes, by what each worker holds of it and how busy each is."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from radixkv.errors import InvalidArgumentError
from radixkv.router import POLICIES, PickInput, Router, RoutingChoice, new_policy


def question(
    lengths, loads=None, last_picked=None, *, recent=None, pending=None, length=100, key=b"key",
    workers=None,
):  # fmt: skip
    """`pending` is 12 tokens a request under way where it is not given."""
    n = len(lengths)
    loads = loads or [0] * n
    return PickInput(
        workers=workers or tuple(f"w{at}" for at in range(n)),
        lengths=np.array(lengths, np.int32),
        loads=np.array(loads, float),
        pending=np.array(pending or [12 * load for load in loads], float),
        recent_loads=np.array(recent or [0] * n, float),
        last_picked=np.array(last_picked or [0] * n, np.int64),
        prompt_length=length,
        key=lambda: key,
    )


@pytest.fixture
def cache_aware(core):
    """The policy on each core that is built here."""
    return partial(new_policy, "cache-aware", core=core)


def place(policy, *args, **how):
    return new_policy(policy).choose(question(*args, **how)).at


def test_the_policies_there_are():
    assert set(POLICIES) == {
        "cache-aware", "consistent-hashing", "least-load", "lmetric", "round-robin"
    }  # fmt: skip
    for name in POLICIES:
        assert new_policy(name).name == name


def test_unknown_names_and_options_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"one of cache-aware, .*; got 'nearest'"):
        new_policy("nearest")
    with pytest.raises(InvalidArgumentError, match=r"must be those of round-robin; .*weight"):
        new_policy("round-robin", weight=2)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_worker_gets_all(policy):
    choice = new_policy(policy).choose(question([3], [90]))
    assert isinstance(choice, RoutingChoice)
    assert choice.at == 0
    assert choice.reason


@pytest.mark.parametrize("policy", POLICIES)
def test_a_question_is_not_changed(policy):
    asked = question([3, 5, 5], [1, 2, 2], [1, 2, 3], recent=[9, 8, 8])
    before = [array.tolist() for array in asked[1:5]]
    new_policy(policy).choose(asked)
    assert [array.tolist() for array in asked[1:5]] == before


# ---- cache-aware ----


def test_who_holds_most_wins_among_equals(cache_aware):
    assert at(cache_aware(), [10, 90, 50]) == 1
    assert at(cache_aware(), [10, 90, 50], [3, 3, 3], recent=[7, 7, 7]) == 1


def test_a_little_load_does_not_outweigh_a_match(cache_aware):
    assert at(cache_aware(), [0, 90], [0, 3]) == 1
    assert at(cache_aware(), [80, 90], [0, 3]) == 0


def test_a_hot_worker_is_left_to_its_queue(cache_aware):
    assert at(cache_aware(), [100, 0], [40, 0]) == 1


def test_under_imbalance_the_best_of_the_lightly_loaded_wins(cache_aware):
    assert at(cache_aware(), [100, 0, 50], [60, 0, 0]) == 2


def test_misses_and_ties_go_to_the_least_loaded_then_round(cache_aware):
    assert at(cache_aware(), [0, 0, 0], [2, 1, 1], [9, 5, 4]) == 2
    assert at(cache_aware(), [70, 70, 70], [2, 1, 1], [9, 5, 6]) == 1
    assert at(cache_aware(), [70, 70], [2, 1], [1, 2]) == 1


def test_misses_go_to_who_has_done_least(cache_aware):
    assert at(cache_aware(), [0, 0, 0], recent=[9_000, 7_000, 8_000]) == 1
    assert at(cache_aware(), [0, 0, 0], [0, 9, 9], recent=[0, 7_000, 8_000]) == 0, (
        "and not by turns"
    )
    assert at(cache_aware(), [0, 0, 0], [1, 0, 0], recent=[0, 8_000, 7_000]) == 2, (
        "of those that are free"
    )


def test_the_busier_workers_are_the_more_a_match_counts(cache_aware):
    """What is computed again also delays those behind, up to two requests."""
    for loads, worth in (([0, 0], 60), ([1, 1], 120), ([2, 2], 180), ([40, 40], 180)):
        for pending, chosen in ((worth - 1, 0), (worth + 1, 1)):
            queue = [1_000 + pending, 1_000]
            assert at(cache_aware(), [60, 0], loads, pending=queue) == chosen, (loads, pending)


def test_what_all_hold_alike_draws_to_none(cache_aware):
    ahead = [0, 1e6]
    assert at(cache_aware(), [60, 60], pending=[1, 0], recent=ahead) == 1
    assert at(cache_aware(), [60, 70], pending=[1, 0], recent=ahead) == 1
    assert at(cache_aware(), [60, 70], pending=[0, 0], recent=ahead) == 0


def test_a_match_is_given_up_when_its_worker_is_far_ahead(cache_aware):
    assert at(cache_aware(), [60, 0], recent=[5_740, 5_000]) == 0
    assert at(cache_aware(), [60, 0], recent=[5_760, 5_000]) == 1
    assert at(cache_aware(balance=0.5), [60, 0], recent=[5_130, 5_000]) == 1
    assert at(cache_aware(balance=0), [60, 0], recent=[1e9, 0]) == 0


def test_work_outweighs_no_queue(cache_aware):
    """Who has done nothing, because it was away, is not flooded."""
    assert at(cache_aware(), [0, 0], [4, 0], pending=[400, 0], recent=[0, 1e9]) == 1
    assert at(cache_aware(), [90, 0], [0, 2], recent=[1e9, 0]) == 0


def test_what_is_doubted_counts_as_far_as_it_is_trusted(cache_aware):
    asked = question([0, 0, 0])
    doubted = asked._replace(lengths=np.array([40.5, 40.25, 0]))
    assert cache_aware().choose(doubted) == (0, "longest match")


def test_cache_aware_says_why(cache_aware):
    def why(*args):
        return cache_aware().choose(question(*args)).reason

    assert why([0, 0]) == "no cached prefix"
    assert why([5, 60]) == "longest match"
    assert why([100, 0], [40, 0]) == "best holder overloaded"
    assert why([100, 50], [40, 0]) == "shorter match, less busy"


def at(policy, *args, **how):
    return policy.choose(question(*args, **how)).at


# ---- the others ----


def test_round_robin_takes_turns():
    assert place("round-robin", [90, 0, 0], [0, 9, 9], [7, 5, 6]) == 1


@pytest.mark.parametrize(
    ("lengths", "loads", "chosen"),
    [
        ([60, 0], [1, 0], 0),  # 40 x 2 against 100 x 1
        ([60, 0], [2, 0], 1),  # 40 x 3 against 100 x 1
        ([60, 0], [1.5, 0], 1),  # 40 x 2.5 is as much: the least loaded
        ([0, 0, 0], [3, 2, 4], 1),
        ([100, 100], [7, 6], 1),  # nothing to compute on either
        ([100, 99], [1_000, 0], 0),  # nothing to compute beats any load
    ],
)
def test_lmetric_weighs_new_tokens_by_the_batch(lengths, loads, chosen):
    assert place("lmetric", lengths, loads) == chosen
    assert new_policy("lmetric").choose(question([1])).reason == "least new tokens x requests"


def test_lmetric_takes_turns_among_equals():
    assert place("lmetric", [50, 50, 50], [1, 1, 1], [3, 1, 2]) == 1


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


@pytest.mark.parametrize(("workers", "under_way"), [(4, 8), (8, 7), (8, 16), (16, 15), (16, 32)])
def test_keys_stay_home_while_no_worker_is_overloaded(workers, under_way):
    """400 random keys, the oldest pick finished first: chance alone sends few of them elsewhere."""
    policy, names = new_policy("consistent-hashing"), tuple(f"w{n}" for n in range(workers))
    loads, open_picks, at_home = np.zeros(workers), [], 0
    for n in np.random.default_rng(1).permutation(400):
        asked = question(
            [0] * workers, list(loads), key=f"session {n}".encode(), workers=names, length=10
        )
        choice = policy.choose(asked)
        at_home += choice.reason == "key owner"
        open_picks.append(choice.at)
        loads[choice.at] += 1
        if len(open_picks) > under_way:
            loads[open_picks.pop(0)] -= 1
    assert at_home >= 0.85 * 400


def test_a_hot_key_takes_no_more_than_its_bound():
    policy, names = new_policy("consistent-hashing"), tuple("abcdefgh")
    loads = np.zeros(8)
    for n in range(1, 400):
        asked = question([0] * 8, list(loads), key=b"hot", workers=names)
        loads[policy.choose(asked).at] += 1
        mean = n / 8
        assert loads.max() <= np.ceil(max(1.25 * mean, mean + 2))


def test_a_policy_of_ones_own_needs_no_registration():
    class Last:
        name = "last"

        def choose(self, asked):
            return RoutingChoice(len(asked.workers) - 1, "last")

    assert Router(Last()).policy.name == "last"
