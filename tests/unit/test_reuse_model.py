"""What the adaptive policy learns, in numbers small enough to count by hand."""

import pytest

from radixkv.tree.policies.reuse_model import AGES, KINDS, STEP, ReuseModel, age_group
from radixkv.tree.prefix_hash import STRIDE, extend_hash, shorten_hash
from radixkv.tree.tokens import as_token_ids


def step(model: ReuseModel) -> None:
    """A request without a time."""
    model.begin(model.now + STEP)


def after(ticks: int) -> ReuseModel:
    model = ReuseModel()
    for _ in range(ticks):
        step(model)
    return model


def worth_by_age(model: ReuseModel, kind: int, ages: range) -> list[int]:
    model.refresh(1000)
    return [model.worth(kind, model.now + STEP - age * STEP) for age in ages]


def test_ages_are_distinguished_to_a_quarter():
    groups = [age_group(STEP * age) for age in range(1, 40_000)]
    assert groups[:8] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert groups == sorted(groups)
    first: dict[int, int] = {}
    for age, group in enumerate(groups, 1):
        first.setdefault(group, age)
    assert all(age - first[group] <= first[group] // 4 for age, group in enumerate(groups, 1))
    assert age_group(2**63) == AGES - 1
    assert age_group(5 * STEP - 1) == age_group(4 * STEP)


def test_at_first_what_waited_longer_is_worth_less():
    worth = worth_by_age(after(100), 0, range(1, 100))
    assert worth == sorted(worth, reverse=True)
    assert worth[0] > worth[-1]


def test_in_a_loop_it_is_worth_most_just_before_its_turn_and_little_after():
    model = after(0)
    for _ in range(200):
        step(model)
        if model.uses > 16:
            model.reuse(model.now - 16 * STEP, 1, 100, 16 * STEP)
        model.add(model.now, 1, 100)
    worth = worth_by_age(model, 1, range(1, 30))
    assert worth[:16] == sorted(worth[:16])
    assert worth[15] > 8 * worth[0]
    assert max(worth[19:]) < worth[0]  # ages 16 to 19 are one group


def test_what_never_comes_back_is_worth_less_than_what_does():
    model = after(0)
    for _ in range(200):
        step(model)
        model.add(model.now, 0, 100)
        if model.uses > 3:
            model.reuse(model.now - 3 * STEP, 2, 50, 3 * STEP)
        model.add(model.now, 2, 50)
    assert worth_by_age(model, 0, range(1, 4)) < worth_by_age(model, 2, range(1, 4))


def test_a_kind_of_which_nothing_is_known_is_worth_what_all_are():
    model = after(20)
    model.add(10 * STEP, 0, 500)
    model.reuse(10 * STEP, 0, 500, 10 * STEP)
    unknown = [worth_by_age(model, kind, range(1, 20)) for kind in range(1, KINDS)]
    assert all(worth == unknown[0] for worth in unknown)
    assert unknown[0] != worth_by_age(after(20), 0, range(1, 20))


def test_old_uses_share_cells_and_no_token_is_lost():
    model = after(0)
    for use in range(1, 5000):
        model.begin(use**2)  # time passes unevenly
        model.add(use**2, use % KINDS, 3)
    assert model.waiting_tokens == 3 * 4999
    assert len(model._firsts) <= 512
    for use in range(1, 5000):
        model.remove(use**2, use % KINDS, 3)
    assert model.waiting_tokens == 0
    assert not any(map(any, model._waiting))


def test_what_was_learnt_fades():
    model = after(1)
    for _ in range(300):
        step(model)
        model.add(model.now, 0, 1000)
        model.give_up(model.now, 0, 1000)
        model.refresh(1000)
    assert model._learnt <= 66 * 1000


@pytest.mark.parametrize("length", [0, 1, STRIDE - 1, STRIDE, STRIDE + 1, 3 * STRIDE + 5])
def test_a_hash_goes_on_and_back(rng, length):
    codes = as_token_ids(rng.integers(0, 2**31, 50 + length))
    start = extend_hash(77, codes[:50])
    end = extend_hash(start, codes[50:])
    assert end == extend_hash(77, codes)
    assert shorten_hash(end, codes[50:]) == start
    assert length == 0 or end != extend_hash(78, codes)


def test_hashes_distinguish_prefixes():
    hashes = {extend_hash(0, as_token_ids([0] * n)) for n in range(300)}
    assert len(hashes) == 300
