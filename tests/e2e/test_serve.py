"""`radixkv serve`: a real (tiny) model answers, and its server says what is cached."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from radixkv.errors import ServiceError
from radixkv.service import Client
from tests.support.tiny_model import ids

SHARED = "The quick brown fox jumps over the lazy dog. "


class Serve:
    """A `radixkv serve` process on a port or socket of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "radixkv", "serve", *arguments]
        if "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1"),
        )

    def address(self) -> str:
        """Waits until it listens."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.fullmatch(r"radixkv: listening on (\S+), .* slots\n", line)
        assert found, line + self.process.stderr.read()
        return found[1]

    def ask(self, prompt: str):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(prompt + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Exit code and what else was printed, after a signal or by itself."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def serve() -> Iterator[type[Serve]]:
    started = []

    def start(*arguments: str) -> Serve:
        started.append(Serve(*arguments))
        return started[-1]

    yield start  # type: ignore[misc]
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.fixture
def model(tiny_model: Path) -> list[str]:
    return ["--model", str(tiny_model), "--max-new-tokens", "4"]


def test_what_a_router_asks_is_true(serve, model):
    served = serve(*model, "--json")
    address = served.address()
    prompt = ids(SHARED + "One")
    with Client(address, timeout_s=60) as client:
        assert client.match(prompt).lengths == [0]
        first = served.ask(SHARED + "One")
        assert (first["prompt_tokens"], first["cached_tokens"]) == (len(prompt), 0)
        assert client.match(prompt).lengths == [len(prompt)]
        second = served.ask(SHARED + "Two")
        assert second["cached_tokens"] == len(ids(SHARED))
        assert second["number"] == 2
        again = served.ask(SHARED + "One")
        assert again["cached_tokens"] == len(prompt) - 1
        assert again["tokens"] == first["tokens"]
        stats = client.stats()
        assert stats.protected_size == stats.allocated_slots == 0
        assert stats.evictable_size > len(prompt)
    assert served.end(signal.SIGTERM) == (0, "", "")


def test_it_goes_on_serving_after_the_last_prompt(serve, model, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("hello\n")
    served = serve(*model, "--prompts", str(file), "--json", "--listen", f"unix:{tmp_path}/s/x")
    address = served.address()
    served.process.stdout.readline()
    with Client(address, timeout_s=60) as client:
        assert client.match(ids("hello")).lengths == [5]
    assert served.end(signal.SIGINT) == (0, "", "")


def test_a_signal_drains_what_runs_and_leaves_what_waits(serve, model):
    served = serve(*model, "--json", "--max-batch", "1", "--max-new-tokens", "300")
    address = served.address()
    served.process.stdin.write("".join(f"{n}\n" for n in range(50)))
    served.process.stdin.flush()
    with Client(address, timeout_s=60) as client:
        while not client.stats().allocated_slots:
            pass
    code, out, err = served.end(signal.SIGTERM)
    assert code == 0
    answered = [json.loads(line) for line in out.splitlines()]
    assert all(len(answer["tokens"]) == 300 for answer in answered)
    assert 1 <= len(answered) < 50
    assert re.fullmatch(r"radixkv: \d+ prompts are not answered\n", err)


def test_a_second_signal_ends_it_at_once(serve, model):
    served = serve(
        *model, "--json", "--max-new-tokens", "4000", "--slots", "5000", "--grace", "100"
    )
    address = served.address()
    served.process.stdin.write("endless\n")
    served.process.stdin.flush()
    with Client(address, timeout_s=60) as client:
        while not client.stats().allocated_slots:
            pass
        served.process.send_signal(signal.SIGTERM)
        with suppress(ServiceError):
            while True:
                client.stats()
    assert served.end(signal.SIGTERM)[0] == -signal.SIGTERM


@pytest.mark.parametrize("command", [["serve", "--model", "x"], ["demo"]])
def test_without_torch_it_says_what_to_install(command):
    script = "import sys; sys.modules['torch'] = None; from radixkv.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *command],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "pip install '.[transformers]'" in done.stderr
    assert done.stderr.count("\n") == 1
