"""Replays of published traces give the published hit rates, to 0.1 points."""

import pytest

from radixkv.lab.logs.requests import in_order
from radixkv.lab.replay.pool import longest_request
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting

# trace, order, capacity, outputs, percent at page sizes 1, 16, 64 and 512
PUBLISHED = [
    ("mtbench101", "file", None, False, [45.9, 40.6, 28.7, 0.4]),
    ("mtbench101", "file", None, True, [80.1, 74.4]),
    ("mtbench101", "file", 4_096, False, [45.6, 40.5, 28.6, 0.4]),
    ("mtbench_judge", "interleave-16", 65_536, False, [16.4, 15.6, 14.7, 0.7]),
    ("lmcache_magagent", "interleave-16", 4_096, False, [3.4, 3.2, 2.6, 0.2]),
    ("lmcache_magagent", "interleave-16", 65_536, False, [81.4, 81.2, 80.2, 72.9]),
    ("lmcache_magagent", "file", 16_384, False, [75.5, 75.2, 74.1, 64.8]),
    ("hotpot_react", "interleave-16", 4_096, False, [84.4, 83.8, 82.3, 73.9]),
]
PAGE_SIZES = (1, 16, 64, 512)


@pytest.mark.parametrize(("name", "order", "capacity", "outputs", "percents"), PUBLISHED)
def test_published_hit_rates(read_trace, name, order, capacity, outputs, percents):
    log = in_order(read_trace(name), order)
    for page_size, percent in zip(PAGE_SIZES, percents, strict=False):
        found = replay(log, Setting(page_size, capacity, outputs=outputs, capacity_of="cache"))
        assert 100 * found.hit_rate == pytest.approx(percent, abs=0.1)


@pytest.mark.parametrize(
    ("name", "capacity", "percent"),
    [
        ("claude_code_a", 250_000, 30.60),
        ("claude_code_a", 1_000_000, 85.03),
        ("claude_code_b", 500_000, 35.70),
        ("claude_code_b", None, 96.30),
    ],
)
def test_published_hit_rates_of_traces_of_blocks_of_64(read_trace, name, capacity, percent):
    log = read_trace(name)
    assert (log.about.format, log.about.block_size) == ("sized-blocks", 64)
    found = replay(log, Setting(64, capacity, capacity_of="cache"))
    assert 100 * found.hit_rate == pytest.approx(percent, abs=0.1)


@pytest.mark.parametrize(
    ("name", "page_size"),
    [("lmcache_magagent", 1), ("taubench_airline", 16), ("hotpot_react", 64)],
)
def test_sixteen_in_flight_never_take_more_than_the_pool(read_trace, name, page_size):
    log = in_order(read_trace(name), "interleave-16")
    for factor in (1, 4):
        capacity = factor * longest_request(log, page_size)
        found = replay(log, Setting(page_size, capacity, in_flight=16, outputs=True))
        assert found.peak_in_flight <= capacity
        assert found.refused == 0
        assert sorted(found.ids.tolist()) == [*range(len(log))]
        assert found.prompt_tokens.sum() == log.lengths.sum()


def test_a_published_hit_rate_of_a_trace_of_blocks(read_trace):
    found = replay(
        read_trace("mooncake_conversation"), Setting(512, 10_000 * 512, capacity_of="cache")
    )
    assert 100 * found.hit_rate == pytest.approx(21.6, abs=0.1)
    assert found.prompt_tokens.sum() == 144_793_823
