"""Made-up workloads share what their structure says, and nothing else."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.lab.logs.packed import read_packed, write_packed
from radixkv.lab.logs.reading import read_log
from radixkv.lab.logs.workloads import WORKLOADS, generate, save
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting


def as_lists(log):
    return [
        (request.session, request.turn, request.ts, request.token_ids.tolist()) for request in log
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_same_seed_makes_the_same_log(name):
    once, again = generate(name, requests=60, seed=3), generate(name, requests=60, seed=3)
    assert as_lists(once) == as_lists(again)
    assert as_lists(once) != as_lists(generate(name, requests=60, seed=4))


@pytest.mark.parametrize("name", WORKLOADS)
def test_requests_come_by_time_and_turns_in_order(name):
    log = generate(name, requests=200)
    assert len(log) == 200
    assert (np.diff(log.times) >= 0).all()
    turns = {}
    for request in log:
        assert request.turn == turns.get(request.session, -1) + 1
        turns[request.session] = request.turn


def test_a_chat_finds_all_of_its_dialogue():
    log = generate("chat", requests=300)
    found = replay(log, Setting(outputs=True))
    known = {}
    for request, cached in zip(log, found.cached_tokens, strict=True):
        if request.session in known:
            assert cached == known[request.session]
        known[request.session] = len(request.token_ids) + len(request.outputs[0])


def test_a_few_shot_question_finds_its_examples():
    log = generate("few-shot", requests=300)
    cached = replay(log).cached_tokens
    for session in range(log.sessions.max() + 1):
        in_session = cached[log.sessions == session]
        assert (in_session[1:] >= in_session[1:].max() - 1).all()  # a token may agree by chance


def test_an_agent_finds_its_history():
    log = generate("agents", requests=200)
    cached = replay(log, Setting(outputs=True)).cached_tokens
    assert all(
        hit > request.turn * 90 for request, hit in zip(log, cached, strict=True) if request.turn
    )


def test_a_search_extends_what_it_has():
    log = generate("tree-search", requests=200)
    cached = replay(log).cached_tokens
    assert (cached[log.lengths > 900] > 300).all()


def test_what_is_saved_is_read_again(tmp_path):
    log = generate("retrieval", requests=20)
    for suffix in ("", ".xz", ".gz", ".zst"):
        path = tmp_path / f"log.jsonl{suffix}"
        save(log, path)
        again = read_log(path)
        assert as_lists(again) == as_lists(log)
        assert again[3].outputs[0].tolist() == log[3].outputs[0].tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "poker"}, "workload must be one of chat, few-shot"),
        ({"name": "chat", "requests": 0}, "requests must be .* got 0"),
        (
            {"name": "chat", "requests": 10**20},
            "requests must be an int from 1 to 1000000; got 1000*",
        ),
        ({"name": "chat", "seed": -1}, "seed must be .* got -1"),
    ],
)
def test_what_cannot_be_made(wrong, message):
    with pytest.raises(InvalidArgumentError, match=message):
        generate(**{"requests": 1, **wrong})


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        save(generate("chat", requests=1), tmp_path / "none" / "log.jsonl")


def lines(*whole):
    """These, and then what goes wrong."""
    yield from whole
    raise InvalidArgumentError("no more")


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz", ".zst"])
def test_what_was_there_stays_until_all_is_written(tmp_path, suffix):
    path = tmp_path / f"log.jsonl{suffix}"
    write_packed(path, [b"old"])
    with pytest.raises(InvalidArgumentError, match="no more"):
        write_packed(path, lines(b"new"))
    assert read_packed(path) == b"old"
    write_packed(path, [b"new"])
    assert read_packed(path) == b"new"
    assert [*tmp_path.iterdir()] == [path]


def test_what_was_there_stays_where_the_packer_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl.zst"
    write_packed(path, [b"old"])
    with monkeypatch.context() as patch:
        for name in ("compression.zstd", "backports.zstd"):
            patch.setitem(sys.modules, name, None)
        with pytest.raises(BackendUnavailableError, match=r"needs backports\.zstd"):
            write_packed(path, [b"new"])
    assert read_packed(path) == b"old"


def test_a_pipe_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for where in (path, Path("/dev/fd", str(reader))):  # as /dev/stdout is one
        write_packed(where, [b"new"])
        assert os.read(reader, 9) == b"new"
    os.close(reader)
    assert path.is_fifo()


def test_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "log", tmp_path / "link"
    path.touch()
    link.symlink_to(path)
    write_packed(link, [b"new"])
    assert (link.is_symlink(), path.read_bytes()) == (True, b"new")
