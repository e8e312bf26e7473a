"""What the documents point to is there: links and paths."""

import re
from pathlib import Path

import pytest

from bench.imports import read_sources, room_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for folder in ("", "bench", "docs", "tests/cases") for path in (ROOT / folder).glob("*.md")
)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# A path from the root in backticks; NAME stands for any name.
PATH = re.compile(r"`((?:radixkv|kernels|tests|bench|proto|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
ANCHOR = re.compile(r"\]\(([\w./-]*\.md)?#([\w-]+)\)")
IMAGE = re.compile(r'(?:src|srcset)="([^"]+)"')


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_paths_and_links_of_a_document_exist(document):
    text = document.read_text("utf-8")
    wanted = [ROOT / path for path in PATH.findall(text) if "NAME" not in path]
    wanted += [document.parent / path for path in LINK.findall(text) + IMAGE.findall(text)]
    assert [str(path.relative_to(ROOT)) for path in wanted if not path.exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_headings_that_a_document_links_to_exist(document):
    for path, anchor in ANCHOR.findall(document.read_text("utf-8")):
        assert anchor in anchors(document.parent / path if path else document), path


def anchors(document: Path) -> set[str]:
    """As GitHub and mkdocs name the headings of a document."""
    headings = HEADING.findall(document.read_text("utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_drawing_of_the_rooms_has_each_of_them_and_stays_short():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    drawing = text.split("## Rooms")[1].split("| room |")[0]
    rooms = {room_of(path) for path in read_sources(ROOT)} - {"radixkv", "__main__"} | {"v1"}
    assert rooms - set(re.findall(r"\w+", drawing)) == set()
    assert len(text.splitlines()) <= 120


def test_a_missing_path_and_a_missing_link_are_found():
    text = "see `radixkv/nowhere.py`, [a page](docs/none.md), [a site](https://example.org/x)"
    assert PATH.findall(text) == ["radixkv/nowhere.py"]
    assert LINK.findall(text) == ["docs/none.md"]
