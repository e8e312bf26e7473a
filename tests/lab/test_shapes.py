"""Small files of the shapes that logs have: each read right, or refused in words of the file.

`shapes/expected.json` has what is in each, as text that was written by hand beside it: tokens are
bytes, and chats are rendered by `shapes/template.jinja`.
"""

import json
from pathlib import Path

import pytest

from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.formats import FORMATS
from radixkv.lab.logs.reading import Reading, read_log

SHAPES = Path(__file__).with_name("shapes")
EXPECTED = json.loads((SHAPES / "expected.json").read_text("utf-8"))


def read(name, expected):
    how = {name: tuple(value) if isinstance(value, list) else value
           for name, value in expected.get("options", {}).items()}  # fmt: skip
    return read_log(
        SHAPES / name,
        Reading(tokenizer="bytes", chat_template=SHAPES / "template.jinja", **how),
    )


def text_of(token_ids):
    return bytes(token_ids.tolist()).decode()


@pytest.mark.parametrize("name", [name for name, each in EXPECTED.items() if "error" not in each])
def test_a_file_is_read_right(name):
    expected = EXPECTED[name]
    log = read(name, expected)
    requests = [*log]
    if "format" in expected:
        assert log.about.format == expected["format"]
    if "prompts" in expected:
        assert [text_of(each.token_ids) for each in requests] == expected["prompts"]
        outputs = [[*map(text_of, each.outputs)] for each in requests]
        assert outputs == expected.get("outputs", [[] for _ in requests])
    else:
        assert [each.length for each in requests] == expected["lengths"]
        outputs = [[*map(len, each.outputs)] for each in requests]
        assert outputs == expected.get("outputs", [[] for _ in requests])
    if "sessions" in expected:
        assert [each.session for each in requests] == expected["sessions"]
    if "ts" in expected:
        assert [each.ts for each in requests] == pytest.approx(expected["ts"])


@pytest.mark.parametrize("name", [name for name, each in EXPECTED.items() if "error" in each])
def test_a_file_is_refused_in_its_own_words(name):
    with pytest.raises(InvalidArgumentError, match=EXPECTED[name]["error"]) as caught:
        read(name, EXPECTED[name])
    assert "\n" not in str(caught.value)


def test_every_file_and_every_format_is_tried():
    assert {path.name for path in SHAPES.iterdir()} == {
        *EXPECTED,
        "expected.json",
        "template.jinja",
    }
    read_formats = {read(name, each).about.format for name, each in EXPECTED.items()
                    if "error" not in each}  # fmt: skip
    assert read_formats == {*FORMATS}


def test_the_page_of_formats_has_each_of_them():
    page = (Path(__file__).parents[2] / "docs" / "logs.md").read_text("utf-8")
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} - {
        "--format"
    } == {*FORMATS}
