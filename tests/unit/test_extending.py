"""docs/extending.md shows the files as they are, and each addition is one short file and a line."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
EXCERPTS = re.findall(r"^<!-- (\S+) -->\n```\w+\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
LINKED = re.findall(r"\]\(\.\./(\S+?)\)", PAGE)
TABLES = ("__init__.py", "table.hpp")
ADDED = [path for path in LINKED if not path.endswith(TABLES)]


@pytest.mark.parametrize(("path", "excerpt"), EXCERPTS, ids=[path for path, _ in EXCERPTS])
def test_an_excerpt_is_the_text_of_its_file(path, excerpt):
    assert excerpt.strip()
    assert excerpt in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("path", ADDED)
def test_what_is_added_is_one_file_of_at_most_60_lines(path):
    assert len((ROOT / path).read_text("utf-8").splitlines()) <= 60


def test_every_file_that_is_linked_is_shown():
    assert {path for path, _ in EXCERPTS} == set(LINKED)
    assert len(ADDED) == 4


@pytest.mark.parametrize(("path", "excerpt"), EXCERPTS, ids=[path for path, _ in EXCERPTS])
def test_a_table_takes_one_line(path, excerpt):
    if path.endswith(TABLES):
        (line,) = excerpt.splitlines()
        assert (ROOT / path).read_text("utf-8").splitlines().count(line) == 1


CODE = [
    path
    for folder, suffix in (("radixkv", ".py"), ("kernels", ".hpp"), ("kernels", ".cpp"))
    for path in (ROOT / folder).rglob(f"*{suffix}")
]


@pytest.mark.parametrize(
    ("name", "files"),
    [("HitsPerToken", LINKED[:4]), ("LMetric", LINKED[4:6]), ("sized_blocks", LINKED[6:])],
)
def test_only_its_file_and_the_table_know_it(name, files):
    knowing = {
        str(path.relative_to(ROOT)) for path in CODE if name in path.read_text("utf-8") + path.stem
    }
    assert knowing == set(files)
