"""The smallest capacity for a hit rate, against trying every capacity."""

from dataclasses import replace

import pytest

from radixkv.lab.logs.workloads import generate
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.target import PRECISION, TargetSearch
from tests.lab.logs import random_log

SETTINGS = [
    Setting(),
    Setting(in_flight=3, outputs=True),
    Setting(policy="fifo", in_flight=2),
    Setting(capacity_of="cache"),
    Setting(capacity_of="cache", policy="lfu"),
    Setting(page_size=4, in_flight=2),
]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("share", [0.3, 0.8, 0.99])
def test_the_capacity_reaches_the_rate_and_little_less_does_not(rng, setting, share):
    log = random_log(rng)
    wanted = share * replay(log, setting).hit_rate
    found = TargetSearch(log, setting).capacity_for(wanted)
    assert found is not None

    def reaches(capacity):
        return replay(log, replace(setting, capacity=capacity)).hit_rate >= wanted

    assert reaches(found)
    least = longest_request(log, setting.page_size) if setting.capacity_of == "pool" else 0
    less = int(found * (1 - PRECISION)) - setting.page_size
    assert found == least or less < least or not reaches(less)


def test_a_rate_that_no_cache_has(rng):
    log = random_log(rng)
    for setting in SETTINGS:
        assert TargetSearch(log, setting).capacity_for(0.999) is None


def test_few_replays_are_made(monkeypatch):
    log = generate("agents", requests=200, seed=3)
    made = []
    monkeypatch.setattr(
        "radixkv.lab.replay.target.replay",
        lambda *how: made.append(how) or replay(*how),
    )
    search = TargetSearch(log, Setting(in_flight=8))
    assert search.capacity_for(0.7) is not None
    assert len(made) < 20
