"""The README is short, its figures are those of bench/results, and its examples run."""

import re
from pathlib import Path

import pytest

from bench import documents
from bench.charts import CHARTS, IMAGES, TEXT, draw_all, label_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
WRITE = "python -m bench.documents writes it again"
FIGURE = re.compile(r"\d[\d,.]*\s?(?:x|%|us|ms|s|points|tokens|GiB|MiB)\b")


def test_it_is_read_in_a_minute():
    assert len(README.splitlines()) <= 130
    assert len(README.split()) <= 900


@pytest.mark.parametrize("path", documents.documents(), ids=lambda path: path.name)
def test_the_figures_of_a_document_are_those_of_the_results(path):
    text = path.read_text("utf-8")
    assert documents.filled(text) == text, WRITE


def test_a_figure_that_is_not_that_of_the_results_is_found():
    changed = re.sub(r"at most \*\*0", "at most **1", README)
    assert changed != README
    assert documents.filled(changed) == README


def test_no_figure_stands_outside_the_blocks_that_are_made_from_results():
    prose = documents.BLOCK.sub("", README)
    prose = re.sub(r"^```.*?^```|^    .*?$", "", prose, flags=re.DOTALL | re.MULTILINE)
    assert FIGURE.findall(prose) == []
    assert FIGURE.findall("5.2 x as fast, 16 us, 0.06 points, 85 %") != []


def test_there_are_six_figures_and_each_links_to_a_page():
    lines = documents.headlines().splitlines()
    assert len(lines) == 6
    assert all(re.search(r"\*\*\d.*\*\*.*\]\(docs/\w+\.md", line) for line in lines)


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_shows_the_results_on_light_and_dark_pages(name):
    bars = CHARTS[name]().bars
    wanted = [label_of(value) for values in bars.values() for value in values if value is not None]
    for page in TEXT:
        drawn = (IMAGES / f"{name}{page}.svg").read_text("utf-8")
        shown = re.findall(r"<text [^>]*>([\d,]+)</text>", drawn)
        assert sorted(shown) == sorted(wanted), WRITE
        assert f'"docs/images/{name}{page}.svg"' in README


def test_charts_are_drawn_anew(tmp_path):
    draw_all(tmp_path)
    assert len(list(tmp_path.glob("*.svg"))) == len(CHARTS) * len(TEXT)


EXAMPLES: list[str] = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_library_and_the_service_examples_run():
    engine, _, service, _ = EXAMPLES  # the second needs a model, the last a router
    names: dict = {}
    exec(engine, names)
    assert names["request"].state == "finished"
    assert names["slots"].tolist() == [5]
    said = "client.match([[1, 2, 3, 9], [7]]).lengths"
    exec(service.replace(said, f"lengths = {said}"), names)
    assert names["lengths"] == [3, 0]
