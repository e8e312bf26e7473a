"""Logs of lengths alone: what they say, and what they cannot."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.lab.replay.sizes import concurrency

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,100,50
2023-11-16 18:00:01.0000000,300,100
2023-11-16 18:12:00.0000000,200,0
"""


@pytest.fixture
def lengths(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    return path


def lab(command, *options):
    return CliRunner().invoke(app, ["lab", command, *map(str, options)])


def test_a_log_of_lengths_has_sizes_and_times_and_no_hit_rate(lengths):
    found = json.loads(lab("replay", lengths, "--json").stdout)
    assert found["hit_rate"] is None
    assert found["prompt_tokens"] == {
        "total": 600, "mean": 200, "median": 200, "p95": 290, "p99": 298, "most": 300,
    }  # fmt: skip
    times = found["times"]
    assert (times["seconds"], times["requests_per_day"]) == (720, 360)
    assert times["most_requests_a_minute"] == 2
    assert times["concurrency"]["most"] == 1
    shown = lab("replay", lengths).stdout
    assert "unknown: the log has lengths and no contents" in shown


@pytest.mark.parametrize("command", ["curve", "sweep", "explain", "report"])
def test_what_needs_contents_is_refused_for_a_log_of_lengths(lengths, command):
    result = lab(command, lengths)
    assert result.exit_code == 2
    assert "has lengths and no contents: hit rates cannot be measured" in result.stderr


def test_a_log_of_lengths_without_times_says_nothing_of_days(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("prompt_tokens\n5\n7\n")
    assert "times" not in json.loads(lab("replay", path, "--json").stdout)


def test_concurrency_is_that_of_a_slow_count(rng):
    times, seconds = np.sort(rng.integers(0, 50, 40) * 1.0), rng.integers(1, 9, 40) * 1.0
    counts = [((times <= at) & (at < times + seconds)).sum() for at in np.arange(0, 60, 0.5)]
    assert concurrency(times, seconds)["most"] == max(counts)
