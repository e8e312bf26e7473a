"""What is written is there whole or not at all: tokenized logs, made-up logs, reports."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from radixkv.atomic_files import PartialFolder, replacing
from radixkv.cli import app
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs import reading
from radixkv.lab.logs.reading import Reading, read_log
from radixkv.lab.logs.store import Writer

BYTES = Reading(tokenizer="bytes")
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("RADIXKV_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "log.jsonl"
    path.write_text('{"prompt": "abcd"}\n{"prompt": "abce"}\n')
    return path


def prompts(log):
    return [bytes(request.token_ids.tolist()).decode() for request in log]


def cut_values(folder):
    os.truncate(folder / "values.i32", 20)


def cut_index(folder):
    os.truncate(folder / "index.npz", 20)


def no_about(folder):
    (folder / "about.json").unlink()


def other_about(folder):
    kept = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps(kept | {"sessions": []}))


def nothing(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def a_file(folder):
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.parametrize("damage", [cut_values, cut_index, no_about, other_about, nothing, a_file])
def test_a_damaged_copy_is_made_again(log, damage):
    folder = read_log(log, BYTES).folder
    damage(folder)
    heard = []
    assert prompts(read_log(log, BYTES, progress=heard.append)) == ["abcd", "abce"]
    assert heard
    heard.clear()
    assert prompts(read_log(log, BYTES, progress=heard.append)) == ["abcd", "abce"]
    assert heard == []
    assert [*reading.kept_logs().iterdir()] == [folder]


KILLED = """
import os, signal
from pathlib import Path
from radixkv.atomic_files import PartialFolder
partial = PartialFolder(Path({target!r}))
(partial.path / "values.i32").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed(log):
    target = reading.kept_logs() / "key"
    code = KILLED.format(target=str(target))
    ended = subprocess.run([sys.executable, "-c", code], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len([*target.parent.iterdir()]) == 1
    folder = read_log(log, BYTES).folder
    assert [*target.parent.iterdir()] == [folder]


def test_what_another_is_writing_stays(log):
    writing = PartialFolder(reading.kept_logs() / "key")
    begun = reading.kept_logs() / ".new-abc"
    begun.mkdir()
    read_log(log, BYTES)
    assert writing.path.is_dir()
    assert begun.is_dir()
    writing.remove()
    assert not writing.path.exists()


def test_what_was_hardly_begun_is_removed_after_a_day(log):
    begun = reading.kept_logs() / ".new-abc"
    begun.mkdir(parents=True)
    long_ago = time.time() - 100_000
    os.utime(begun, (long_ago, long_ago))
    read_log(log, BYTES)
    assert not begun.exists()


def test_who_comes_second_takes_what_is_there(log):
    folder = read_log(log, BYTES).folder
    writer = Writer(folder)
    found = writer.finish(read_log(log, BYTES).about)
    assert prompts(found) == ["abcd", "abce"]
    assert [*folder.parent.iterdir()] == [folder]


LIMITED = """
import resource, signal, sys
from radixkv.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.argv = ["radixkv", *sys.argv[1:]]
main()
"""


def with_little_room(*words):
    """The command, where a file has room for 20 kB; coverage would need more."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, words)],
        env={name: value for name, value in os.environ.items() if "COVERAGE" not in name},
        check=False, capture_output=True, text=True,
    )  # fmt: skip


def test_no_room_for_a_tokenized_log(log):
    log.write_text("".join(json.dumps({"prompt": f"{at} " * 50}) + "\n" for at in range(200)))
    result = with_little_room("lab", "replay", log, "--tokenizer", "bytes")
    assert result.returncode == 2
    assert result.stderr.startswith(f"radixkv: {reading.kept_logs()}")
    assert "cannot be written: File too large; RADIXKV_CACHE_DIR" in result.stderr
    assert result.stderr.count("\n") == 1
    assert [*reading.kept_logs().iterdir()] == []


@pytest.mark.parametrize("name", ["made.jsonl", "made.jsonl.gz", "made.jsonl.zst"])
def test_no_room_for_a_made_up_log(tmp_path, name):
    out = tmp_path / name
    out.write_text("as it was")
    result = with_little_room("lab", "generate", "chat", out, "--requests", 100)
    assert (result.returncode, result.stderr) == (
        2, f"radixkv: {out} cannot be written: File too large\n"
    )  # fmt: skip
    assert out.read_text() == "as it was"
    assert [*tmp_path.iterdir()] == [out]


@pytest.mark.parametrize("where", ["file", "file/in", "/proc/none"])
def test_a_cache_folder_that_cannot_be(log, tmp_path, monkeypatch, where):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RADIXKV_CACHE_DIR", str(tmp_path / where))
    with pytest.raises(InvalidArgumentError, match=r"cannot be written: .*; RADIXKV_CACHE_DIR"):
        read_log(log, BYTES)


def test_what_is_interrupted_leaves_a_file_as_it_was(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("as it was")
    link.symlink_to(path)
    with pytest.raises(KeyboardInterrupt), replacing(link) as file:  # noqa: PT012
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "as it was"
    with replacing(link) as file:
        file.write(b"whole")
    assert (link.is_symlink(), path.read_text()) == (True, "whole")
    assert {*tmp_path.iterdir()} == {path, link}
    with replacing(tmp_path / "new") as file:
        file.write(b"new")
    assert (tmp_path / "new").stat().st_mode == path.stat().st_mode


def test_what_is_no_file_is_written_where_it_is():
    made = subprocess.run(
        [sys.executable, "-m", "radixkv", "lab", "generate", "chat", "/dev/stdout", "--requests=1"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert made.stdout.startswith('{"session": "session 0"')
    with replacing(reading.Path("/dev/null")) as file:
        file.write(b"a")
    assert reading.Path("/dev/null").is_char_device()


def test_a_report_does_not_replace_its_log(log, tmp_path):
    before = log.read_text()
    link = tmp_path / "link.html"
    link.symlink_to(log)
    for out in (log, link):
        result = CliRunner().invoke(
            app, ["lab", "report", str(log), "--tokenizer", "bytes", "--out", str(out)]
        )
        assert result.exit_code == 2
        assert result.stderr == f"radixkv: --out must be another file than the log; got {out}\n"
    assert log.read_text() == before


@FULL
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_an_output_that_is_full(log, tmp_path, options):
    for words in (["replay", log, "--tokenizer", "bytes"], ["generate", "chat", tmp_path / "m"]):
        with open("/dev/full", "w") as full:
            result = subprocess.run(
                [sys.executable, "-m", "radixkv", "lab", *map(str, words), *options],
                check=False, stdout=full, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert result.returncode == 1
        assert result.stderr.endswith("radixkv: No space left on device\n")
