"""The command as users and programs start it: processes, pipes, signals."""

import json
import os
import signal
import subprocess
import sys

import pytest

import radixkv
from radixkv import PrefixCache
from radixkv.service import CacheServer

COMMAND = [sys.executable, "-m", "radixkv"]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture
def server():
    with CacheServer(PrefixCache(64), "127.0.0.1:0") as server:
        yield server


def test_an_error_is_one_line_and_no_traceback():
    done = run("stats", "--target", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("radixkv: no server answers at 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-"])
def test_a_standard_stream_may_be_closed(server, closed):
    command = f"exec {' '.join(COMMAND)} match --ids 1 --target {server.address} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_json_is_all_that_is_printed(server):
    done = run("match", "--target", server.address, "--ids", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["matches"][0]["matched_length"] == 0


def test_a_pipe_gets_no_colours_and_no_folded_lines(server):
    done = run("doctor")
    assert "\x1b" not in done.stdout
    assert any(sys.executable in line for line in done.stdout.splitlines())


def watch_stats(server, *arguments: str, stdout=subprocess.PIPE) -> subprocess.Popen:
    command = [*COMMAND, "stats", "--watch", "--every", "0.1", "--target", server.address]
    return subprocess.Popen(
        [*command, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True
    )


def test_watching_ends_with_ctrl_c(server):
    watch = watch_stats(server, "--json")
    looks = [json.loads(watch.stdout.readline()) for _ in range(3)]
    assert [look["num_slots"] for look in looks] == [64] * 3
    watch.send_signal(signal.SIGINT)
    _, err = watch.communicate(timeout=60)
    assert (watch.returncode, err) == (0, "")


def test_top_in_a_pipe_prints_a_table_a_look(server):
    command = [*COMMAND, "top", server.address, "--every", "0.1"]
    top = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = 0
    while seen < 3:
        seen += server.address in top.stdout.readline()
    top.send_signal(signal.SIGINT)
    _, err = top.communicate(timeout=60)
    assert (top.returncode, err) == (0, "")


def test_watch_waits_if_asked_and_goes_on_where_it_was(tmp_path):
    address = f"unix:{tmp_path}/x.sock"
    command = [*COMMAND, "watch", "--target", address, "--wait", "--json"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stderr.readline() == (
        f"radixkv: no server answers at {address}: no such socket; waiting for it\n"
    )
    cache = PrefixCache(64)
    for stored in range(2):
        with CacheServer(cache, address):
            cache.finish(done := cache.admit([stored]), up_to=done.length)
            assert json.loads(watch.stdout.readline())["tokens"] == [stored]
        assert watch.stderr.readline().startswith(
            f"radixkv: the watch of {address} was cut after revision {stored + 1}; trying again: "
        )
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=60)
    assert watch.returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["lab", "--help"], ["serve", "--help"]])
def test_a_full_disk_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, "radixkv: No space left on device\n")


def test_watching_on_a_terminal_draws_again_and_again(server):
    ours, theirs = os.openpty()
    watch = watch_stats(server, stdout=theirs)
    os.close(theirs)
    shown = ""
    while shown.count("evictable") < 3:
        shown += os.read(ours, 4096).decode()
    watch.send_signal(signal.SIGINT)
    _, err = watch.communicate(timeout=60)
    os.close(ours)
    assert (watch.returncode, err) == (0, "")
    assert "\x1b[" in shown


def test_the_version_needs_neither_torch_nor_grpc():
    code = (
        "import sys; from radixkv.cli import app\n"
        "try: app(['--version'])\n"
        "finally: print(sorted({'grpc', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"radixkv {radixkv.__version__}\n[]\n"


def test_a_reader_that_goes_away_is_no_traceback(server):
    watch = watch_stats(server, "--json")
    watch.stdout.readline()
    watch.stdout.close()
    assert watch.wait(timeout=60) != 0
    with watch.stderr as err:
        assert "Traceback" not in err.read()
