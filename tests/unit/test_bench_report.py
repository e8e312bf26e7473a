"""Published results come from whole runs, and a claim that is missed ends a run as failed.

Git keeps summaries, not samples.
"""

import argparse
import json
from pathlib import Path

import pytest

from bench.report import RESULTS, Claim, command, judge, kept_at, laid_out, save


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


def test_a_run_goes_to_the_file_that_out_names(parser):
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


FIGURES = {
    "us": {"ours": 2.5},
    "samples_us": {"ours": [1, 2, 3, 4], "theirs": [5.0]},
    "rows": [{"samples": [{"match": 1.0, "evict": 4.0}, {"match": 3.0}]}],
}
SUMMARIES = {
    "us": {"ours": 2.5},
    "samples_us": {
        "ours": {"n": 4, "median": 2.5, "quartiles": [1.75, 3.25]},
        "theirs": {"n": 1, "median": 5.0, "quartiles": [5.0, 5.0]},
    },
    "rows": [
        {
            "samples": {
                "match": {"n": 2, "median": 2.0, "quartiles": [1.5, 2.5]},
                "evict": {"n": 1, "median": 4.0, "quartiles": [4.0, 4.0]},
            }
        }
    ],
}


def read(path):
    return json.loads(path.read_text())


def test_results_have_summaries_and_the_samples_lie_in_a_file_next_to_them(tmp_path):
    path = save("made_up", FIGURES, tmp_path / "made_up.json")
    saved, raw = read(path), read(tmp_path / "made_up.raw.json")
    assert {key: saved[key] for key in FIGURES} == SUMMARIES
    assert {key: raw[key] for key in FIGURES} == FIGURES
    assert saved["command"] == raw["command"] == command()


def test_figures_without_samples_are_saved_once(tmp_path):
    save("made_up", {"us": {"ours": 2.5}}, tmp_path / "made_up.json")
    assert [path.name for path in tmp_path.iterdir()] == ["made_up.json"]


def lists_of_samples(figures, name=""):
    """The lists of numbers under a name that begins with "samples", at every depth."""
    if isinstance(figures, dict):
        for key, value in figures.items():
            below = "samples" if name or key.startswith("samples") else ""
            yield from lists_of_samples(value, "" if key == "quartiles" else below)
    elif isinstance(figures, list):
        if name and figures:
            yield figures
        for value in figures:
            yield from lists_of_samples(value)


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_git_keeps_no_samples(path):
    assert [*lists_of_samples(FIGURES)] != []
    assert [*lists_of_samples(read(path))] == []


@pytest.mark.parametrize("value", [{}, [], [1] * 500, {"a": [{"b": "x" * 300, "c": None}] * 2}])
def test_a_layout_is_the_same_json(value):
    assert json.loads(laid_out(value)) == value
    assert laid_out({"a": [1, 2]}) == '{"a": [1, 2]}'
