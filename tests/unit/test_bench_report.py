"""Published results come from whole runs, and a claim that is missed ends a run as failed."""

import argparse
from pathlib import Path

import pytest

from bench.report import RESULTS, Claim, judge, kept_at


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


MET = [Claim("times a", 4.0, "at least", 4), Claim("of b", 1.25, "at most", 1.25)]


def test_claims_that_are_met_end_a_run_well(capsys):
    judge(MET)
    assert capsys.readouterr().out == "2 of 2 claims are met\n"


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (Claim("times c", 3.99, "at least", 4), "times c: 3.99, at least 4 is claimed"),
        (Claim("of d", 1.26, "at most", 1.25), "of d: 1.26, at most 1.25 is claimed"),
        (Claim("times e", float("nan"), "at least", 4), "times e: nan, at least 4 is claimed"),
        (Claim("of f", float("nan"), "at most", 4), "of f: nan, at most 4 is claimed"),
    ],
)
def test_a_claim_that_is_missed_is_named_and_fails_the_run(claim, said, capsys):
    with pytest.raises(SystemExit) as ended:
        judge([*MET, claim])
    assert ended.value.code == 1
    assert capsys.readouterr().out == f"missed: {said}\n2 of 3 claims are met\n"


def test_a_run_that_claims_nothing_fails():
    with pytest.raises(SystemExit):
        judge([])
