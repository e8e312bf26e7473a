"""Published results come from whole runs."""

import argparse
from pathlib import Path

import pytest

from bench.report import RESULTS, kept_at


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--traces", nargs="+", default=["a", "b"])
    parser.add_argument("--out", type=Path)
    return parser


@pytest.mark.parametrize(
    ("given", "is_published"),
    [([], True), (["--traces", "a", "b"], True), (["--traces", "a"], False), (["x"], False)],
)
def test_only_a_whole_run_is_published(parser, given, is_published):
    args = parser.parse_args(given)
    path = kept_at("routing", parser, args, "names", "traces")
    assert (path.parent == RESULTS, path.name) == (is_published, "routing.json")


def test_a_run_goes_where_it_is_told_to(parser):
    args = parser.parse_args(["--traces", "a", "--out", "here.json"])
    assert kept_at("routing", parser, args, "traces") == Path("here.json")
