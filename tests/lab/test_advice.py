"""The paragraph of advice, against counts of its own."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import ListedLog, in_order
from radixkv.lab.logs.workloads import generate
from radixkv.lab.replay.models import SHAPES
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.replay.setting import Setting
from radixkv.lab.report.advice import Serving, advise, check_target
from tests.lab.logs import ask

LLAMA = Serving(SHAPES["llama-3.1-8b"], "bfloat16", tflops=400)
SETTING = Setting(in_flight=4, outputs=True)


@pytest.fixture(scope="module")
def log():
    return in_order(generate("agents", requests=150, seed=2), "interleave-16")


@pytest.fixture(scope="module")
def advice(log):
    return advise(log, SETTING, target=0.6, serving=LLAMA, jobs=1)


def rate(log, **how):
    return replay(log, replace(SETTING, **how)).hit_rate


def test_the_pool_reaches_the_target_and_one_less_does_not(log, advice):
    assert rate(log, capacity=advice.pool) >= 0.6 > rate(log, capacity=int(0.98 * advice.pool))
    best = replace(SETTING, policy=re.search(r"policy (\w+)", advice.best)[1],
                   scheduling=SCHEDULINGS[advice.best.split()[-1]])  # fmt: skip
    assert replay(log, replace(best, capacity=advice.best_pool)).hit_rate >= 0.6
    assert advice.pool_gib == advice.pool * 131_072 / 2**30


def test_changes_are_what_replays_of_them_give(log, advice):
    assert advice.capacity == advice.pool
    assert advice.hit_rate == rate(log, capacity=advice.pool)
    for change in advice.changes:
        how = {}
        if found := re.search(r"policy (\w+)", change.what):
            how["policy"] = found[1]
        if found := re.search(r"by ([\w-]+)", change.what):
            how["scheduling"] = SCHEDULINGS[found[1]]
        assert change.hit_rate == rate(log, capacity=advice.pool, **how)
        assert change.points == pytest.approx(change.hit_rate - advice.hit_rate)
    for size, cost in advice.page_sizes.items():
        one = rate(log, capacity=advice.pool)
        assert cost == pytest.approx(one - rate(log, capacity=advice.pool, page_size=size))


def test_a_day_is_the_log_at_its_own_pace(log, advice):
    found = replay(log, replace(SETTING, capacity=advice.pool))
    seconds = log.times.max() - log.times.min()
    assert advice.per_day["cached_tokens"] == pytest.approx(
        found.cached_tokens.sum() * 86_400 / seconds
    )
    zero = found.cached_tokens * 0
    saved = LLAMA.shape.prefill_flops(zero, found.cached_tokens).sum() / 400e12
    assert advice.per_day["gpu_hours"] == pytest.approx(saved * 86_400 / seconds / 3600)


def test_the_paragraph_says_all_of_it(advice):
    text = advice.paragraph()
    assert f"60.0 % takes a pool of {advice.pool:,} tokens ({advice.pool_gib:,.2f} GiB of" in text
    assert "llama-3.1-8b in bfloat16" in text
    assert f"In a pool of {advice.pool:,} tokens the hit rate is" in text
    assert "admitting by longest-match brings" in text
    assert "GPU hours of prefill" in text
    assert "Of what is computed, " in text


def test_a_target_that_no_pool_reaches():
    found = advise(ask("abcd", "wxyz"), Setting(), target=0.5, jobs=1)
    assert (found.pool, found.best_pool) == (None, None)
    assert "No pool reaches 50.0 %." in found.paragraph()


def test_a_capacity_that_is_given_is_where_changes_are_tried(log):
    capacity = 30_000
    found = advise(log, replace(SETTING, capacity=capacity), jobs=1)
    assert found.capacity == capacity
    assert found.target == pytest.approx(0.9 * found.infinite_hit_rate)
    assert f"In a pool of {capacity:,} tokens" in found.paragraph()


def test_requests_longer_than_the_pool_are_said():
    found = advise(ask("abcdef", "ab", "ab"), Setting(capacity=4), jobs=1)
    assert "and 1 requests are longer than the pool" in found.paragraph()


def test_a_log_without_times_says_nothing_of_days(log):
    timeless = ListedLog(replace(each, ts=None) for each in log[:20])
    found = advise(timeless, Setting(), jobs=1)
    assert found.per_day == {}
    assert "day" not in found.paragraph()


@pytest.mark.parametrize("target", [0, 100, -5, float("nan")])
def test_a_target_that_is_not_a_rate(target):
    with pytest.raises(InvalidArgumentError, match="target must be a hit rate in percent"):
        check_target(target)


def test_the_command(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [{"prompt": "abcd" * (at % 7 + 1), "ts": at, "session": str(at % 3)} for at in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    how = ["lab", "advise", str(path), "--tokenizer", "bytes", "--target", "50", "--jobs", "1"]
    result = CliRunner().invoke(app, how)
    assert result.stdout.startswith("An infinite cache would serve")
    found = json.loads(CliRunner().invoke(app, [*how, "--model", "llama-3.1-8b", "--json"]).stdout)
    assert found["pool_gib"] == found["pool"] * 131_072 / 2**30
    assert found["advice"].startswith("An infinite cache would serve")
