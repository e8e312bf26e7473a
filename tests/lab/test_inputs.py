"""Logs from several files and from standard input, fields by name, and what was left out."""

import io
import json
import sys

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.lab.logs.reading import Reading, read_log

BYTES = Reading(tokenizer="bytes")


def write(path, *rows):
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in rows))
    return path


def text_of(token_ids):
    return bytes(token_ids.tolist()).decode()


def prompts(log):
    return [text_of(each.token_ids) for each in log]


# ---- files ----


def test_several_files_are_one_log_in_their_order(tmp_path):
    one = write(tmp_path / "b.jsonl", {"prompt": "b", "session": "s"})
    two = write(tmp_path / "a.csv", "prompt,session", "a,s")
    log = read_log([one, two], BYTES)
    assert prompts(log) == ["b", "a"]
    assert [each.turn for each in log] == [0, 1]
    assert prompts(read_log(str(tmp_path / "*"), BYTES)) == ["a", "b"]


def test_a_bad_line_is_named_with_its_own_file(tmp_path):
    one = write(tmp_path / "one.jsonl", {"prompt": "a"})
    two = write(tmp_path / "two.jsonl", {"prompt": "a"}, {"prompt": 3})
    with pytest.raises(InvalidLogError, match=r"two\.jsonl, line 2: prompt must be text"):
        read_log([one, two], BYTES)


def test_a_pattern_that_no_file_matches(tmp_path):
    with pytest.raises(InvalidLogError, match=r"none-\*\.jsonl matches no file"):
        read_log(str(tmp_path / "none-*.jsonl"), BYTES)


def test_standard_input(monkeypatch):
    class Input:
        buffer = io.BytesIO(b'{"prompt": "abc"}\n')

    monkeypatch.setattr(sys, "stdin", Input)
    assert prompts(read_log("-", BYTES)) == ["abc"]


def test_the_command_reads_standard_input():
    run = CliRunner().invoke(
        app, ["lab", "replay", "-", "--tokenizer", "bytes", "--json"], input='{"prompt": "abc"}\n'
    )
    assert json.loads(run.stdout)["prompt_tokens"] == 3
    assert "read as text; 0 of 1 requests have answers" in run.stderr


def test_an_encoding_that_python_does_not_know(tmp_path):
    path = write(tmp_path / "log.jsonl", {"prompt": "a"})
    with pytest.raises(InvalidArgumentError, match="encoding must be known to Python"):
        read_log(path, Reading(tokenizer="bytes", encoding="klingon"))
    path.write_text('{"prompt": "a"}\n{"prompt": "é"}\n')
    with pytest.raises(InvalidArgumentError, match="is not in ascii after line 1"):
        read_log(path, Reading(tokenizer="bytes", encoding="ascii"))


def test_an_array_larger_than_a_piece(tmp_path):
    rows = [{"prompt": f"{at} " + "x" * 4000} for at in range(700)]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(rows, indent=1))
    log = read_log(path, BYTES)
    assert [len(each.token_ids) for each in log] == [len(row["prompt"]) for row in rows]


def test_an_array_that_is_cut(tmp_path):
    path = tmp_path / "log.json"
    path.write_text('[{"prompt": "a"},\n{"prompt": "b"')
    with pytest.raises(InvalidLogError, match="line 2: it is not a JSON object"):
        read_log(path, BYTES)
    log = read_log(path, Reading(tokenizer="bytes", skip_bad=True))
    assert (prompts(log), log.about.skipped) == (["a"], 1)


# ---- fields by name ----


@pytest.mark.parametrize("option", ["session", "namespace"])
def test_a_field_that_no_line_has_is_refused(tmp_path, option):
    path = write(tmp_path / "log.jsonl", {"prompt": "a", "who": "x"}, {"prompt": "b"})
    assert len(read_log(path, Reading(tokenizer="bytes", **{option: "who"}))) == 2
    with pytest.raises(InvalidArgumentError, match=r"got 'meta\.who', which no line has"):
        read_log(path, Reading(tokenizer="bytes", **{option: "meta.who"}))


def test_text_in_an_unknown_field_is_refused_unless_it_is_ignored(tmp_path):
    path = write(tmp_path / "log.jsonl", {"prompt": "a", "preamble": "You are a helpful thing."})
    how = ["lab", "replay", str(path), "--tokenizer", "bytes", "--json"]
    result = CliRunner().invoke(app, how)
    assert result.exit_code == 2
    assert "line 1: preamble holds text that this format does not put into prompts" in result.stderr
    assert json.loads(CliRunner().invoke(app, [*how, "--ignore-field", "preamble"]).stdout)


@pytest.mark.parametrize("wrong", [{"time_unit": "weeks"}, {"media_tokens": 0}, {"engine": "tgi"}])
def test_a_way_of_reading_that_there_is_not(tmp_path, wrong):
    path = write(tmp_path / "log.jsonl", {"messages": [{"role": "user", "content": "a"}]})
    with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
        read_log(path, Reading(tokenizer="bytes", **wrong))


# ---- what was left out ----


def test_lines_that_were_left_out_are_counted_by_reason_with_their_share(tmp_path):
    good = [{"prompt": "x" * 80}] * 6
    bad = ['{"prompt": "a\\ud800"}'] * 2 + [{"prompt": 3}] + ['{"prompt": "' + "y" * 300]
    path = write(tmp_path / "log.jsonl", *good, *bad)
    log = read_log(path, Reading(tokenizer="bytes", skip_bad=True))
    assert log.about.skipped == 4
    assert log.about.reasons == {
        "prompt must be text; got half a surrogate pair": 2,
        "prompt must be text that is not empty": 1,
        "it is not a JSON object": 1,
    }
    sizes = [len(line) for line in path.read_text().splitlines(keepends=True)]
    assert log.about.skipped_share == pytest.approx(sum(sizes[6:]) / sum(sizes))
    assert "left out 4 bad lines, 39.4% of the text (2 x prompt" in log.about.left_out()


def test_a_lone_surrogate_in_a_chat_is_a_bad_line_and_no_traceback(tmp_path):
    rows = ['{"messages": [{"role": "user", "content": "a\\ud83d"}]}']
    rows += [{"messages": [{"role": "user", "content": "fine"}]}]
    path = write(tmp_path / "log.jsonl", *rows)
    run = CliRunner().invoke(
        app, ["lab", "replay", str(path), "--tokenizer", "bytes", "--skip-bad", "--json"]
    )
    assert json.loads(run.stdout)["requests"] == 1
    assert "messages must be text; got half a surrogate pair" in run.stderr


def test_media_are_spans_by_their_hash(tmp_path):
    def asks(url, text):
        image = {"type": "image_url", "image_url": {"url": url}}
        return {"messages": [{"role": "user", "content": [image, {"type": "text", "text": text}]}]}

    path = write(tmp_path / "log.jsonl", asks("u", "a"), asks("u", "b"), asks("v", "a"))
    log = read_log(path, Reading(tokenizer="bytes", media_tokens=9))
    one, same, other = (each.token_ids.tolist() for each in log)
    start = len("<|im_start|>user\n")
    assert one[: start + 9] == same[: start + 9]
    assert len({*one[start : start + 9]}) == 1
    assert one[start] != other[start]
    assert min(one[start], other[start]) >= 2**30  # no tokenizer has such ids
    assert log.about.media == 3
    assert "3 pictures, sounds and files counted as 9 tokens each" in log.about.how_read(3)


# ---- templates ----


@pytest.fixture
def tokenizer(tmp_path):
    """A folder with a tokenizer that puts a start token before a text."""
    words = WordLevel({"[UNK]": 0, "<s>": 1, "Hi": 2, "tool": 3, "plain": 4}, unk_token="[UNK]")
    made = Tokenizer(words)
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens(["<s>"])
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def read_with(folder, config, *rows):
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    log = read_log(write(folder / "log.jsonl", *rows), Reading(tokenizer=folder))
    return [each.token_ids.tolist() for each in log], log.about


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TOOL = {"tools": [{"type": "function", "function": {"name": "f"}}]}


def test_text_begins_with_the_start_token_and_a_chat_with_what_its_template_writes(tokenizer):
    template = "{{ bos_token }} {{ messages[0].content }}"
    config = {"bos_token": {"content": "<s>"}, "chat_template": template}
    assert read_with(tokenizer, config, CHAT)[0] == [[1, 2]]
    assert read_with(tokenizer, config, {"prompt": "Hi", "outputs": ["Hi"]})[0] == [[1, 2]]


def test_one_of_several_named_templates(tokenizer):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tool"}]
    found, about = read_with(tokenizer, {"chat_template": named}, CHAT, CHAT | TOOL)
    assert found == [[4], [3]]
    assert about.template == "tokenizer_config.json"


def test_chatml_where_there_is_no_template_is_said(tokenizer):
    _, about = read_with(tokenizer, {}, CHAT)
    assert about.template.startswith("ChatML, since no template lies beside")
    assert "template: ChatML" in about.how_read(1)


def test_a_template_of_its_own_for_tools_in_a_folder(tokenizer):
    (tokenizer / "chat_template.jinja").write_text("plain")
    (tokenizer / "additional_chat_templates").mkdir()
    (tokenizer / "additional_chat_templates" / "tool_use.jinja").write_text("tool")
    assert read_with(tokenizer, {}, CHAT, CHAT | TOOL)[0] == [[4], [3]]
