"""What a log says is shown as it is, and commands no terminal."""

import json

import pytest
from typer.testing import CliRunner

from radixkv.cli import app

ESC = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"
NAMES = ["[/red]", "[bold]x[/bold]", ESC]


@pytest.fixture
def log(tmp_path):
    rows = [
        {"session": name, "tenant": name, "prompt": f"{ESC}{at} {turn}"}
        for at, name in enumerate(NAMES)
        for turn in range(2)
    ]
    path = tmp_path / "[log].jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def shown(*words):
    result = CliRunner().invoke(app, ["lab", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", ["replay", "explain", "sweep"])
def test_names_and_texts(log, command):
    result = shown(command, log, "--tokenizer", "bytes", "--namespace", "tenant")
    assert not set(result) & {"\x1b", "\x07", "\x9b", "\u202e"}
    if command == "replay":
        assert "[/red]" in result
        assert "[bold]x[/bold]" in result
        assert "␛]0;owned␇␛[31m\\x9b2J\\u202e" in result
    if command == "explain":
        assert "␛]0;owned␇" in result
    else:
        assert "[log].jsonl" in result


def test_what_a_chat_template_says(log, tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text("{{ raise_exception(messages[0].content) }}")
    log.write_text(json.dumps({"messages": [{"role": "user", "content": ESC}]}))
    result = CliRunner().invoke(
        app,
        ["lab", "replay", str(log), "--tokenizer", "bytes", "--chat-template", str(template)],
    )
    assert result.exit_code == 2
    assert "the chat template raised: ␛]0;owned␇" in result.stderr
    assert "\x1b" not in result.stderr


def test_the_name_of_a_made_up_log(tmp_path):
    assert "[bold].jsonl" in shown("generate", "chat", tmp_path / "[bold].jsonl")


def test_ids_that_are_no_bytes(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"prompt": [104, 105]}\n{"prompt": [104, 70000]}\n')
    found = json.loads(shown("explain", path, "--tokenizer", "bytes", "--json"))["findings"]
    assert {each["here"] for each in found} == {"hi", "70000"}
    shown("report", path, "--tokenizer", "bytes", "--jobs", 1, "--out", tmp_path / "out.html")
    assert "70000" in (tmp_path / "out.html").read_text()
