"""The commands of README and docs are right: each is read by what it calls, and those of a page on
servers, logs and memory run in the page's order.

What takes minutes runs elsewhere: `make demo` in tests/e2e, engines of others in tests/hosts.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from radixkv import PrefixCache
from radixkv.cli import app
from radixkv.service import CacheServer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROGRAMS = r"(?:radixkv|make|\S*python3?|pytest|\S*pip)"
INDENTED = re.compile(rf"^    ((?:[A-Z_]+=\S+ )*(?:{PROGRAMS}|echo) .*)$", re.MULTILINE)
INLINE = re.compile(rf"`((?:[A-Z_]+=\S+ )*{PROGRAMS} [^`]+)`")
# Run by `make host-sglang`, and by hand where there is a card.
OF_OTHERS = ("sglang", "dynamo", "compute-sanitizer", "nvcc")


def commands_of(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    fenced = [block for kind, block in FENCE.findall(text) if kind == "console"]
    prose = FENCE.sub("", text).replace("\\\n", " ")
    found = [line[2:] for block in fenced for line in block.splitlines() if line[:2] == "$ "]
    inline = [" ".join(command.split()) for command in INLINE.findall(prose)]
    return found + INDENTED.findall(prose) + inline


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = {
    path.relative_to(ROOT).as_posix(): commands
    for path in DOCUMENTS
    if (commands := commands_of(path))
}


@pytest.mark.parametrize("page", COMMANDS)
def test_what_is_called_knows_the_commands_of_a_page(page):
    for command in COMMANDS[page]:
        words = shlex.split(command, comments=True)
        for part in split(words, "|"):
            check(part)


def test_a_wrong_command_is_found():
    for command in (
        "make nothing",
        "radixkv lab curve LOG --of x",
        "radixkv serv",
        "python -m bench.nothing",
        "pytest tests/nothing",
        "pip install '.[nothing]'",
    ):
        with pytest.raises(AssertionError):
            check(shlex.split(command))


def check(words: list[str]) -> None:
    while re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    program, arguments = Path(words[0]).name, words[1:]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets), words
    elif program == "radixkv":
        parse(typer.main.get_command(app), "radixkv", arguments)
    elif program == "pytest":
        assert all((ROOT / word).exists() for word in arguments), words
    elif program == "pip" or arguments[:2] == ["-m", "pip"]:
        check_installs(words)
    elif program.startswith("python") and arguments[0] == "-m":
        module = arguments[1]
        assert module.startswith(OF_OTHERS) or find_spec(module) is not None, words
    elif program.startswith("python"):
        assert (ROOT / arguments[0]).exists(), words


def parse(command: Any, name: str, arguments: list[str]) -> None:
    """The command and its options are known; runs nothing."""
    arguments = [word for word in arguments if word not in {"...", "COMMAND", "FILE..."}]
    commands = getattr(command, "commands", {})
    if commands and arguments:
        assert arguments[0] in commands, arguments
        parse(commands[arguments[0]], arguments[0], arguments[1:])
        return
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    given = {word for word in arguments if word.startswith("--")}
    assert given <= known, (name, given - known)


def check_installs(words: list[str]) -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])
    groups = set(PROJECT["dependency-groups"])
    for word in words:
        if word.startswith(".["):
            assert set(word[2:-1].split(",")) <= extras, words
    if "--group" in words:
        assert words[words.index("--group") + 1] in groups, words


def split(words: list[str], mark: str) -> Iterator[list[str]]:
    part: list[str] = []
    for word in [*words, mark]:
        if word == mark:
            yield part
            part = []
        else:
            part.append(word)


# ---- commands that run ----


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run, with what they name: a log, a tokenizer."""
    (tmp_path / "tokenizer.json").symlink_to(tiny_model / "tokenizer.json")
    rows = [{"prompt": f"You help us. Question {turn % 3}."} for turn in range(9)]
    (tmp_path / "LOG").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return tmp_path


def run(command: str) -> str:
    """What a command of a page prints, as a shell runs it."""
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def of_page(page: str, program: str) -> list[str]:
    found = [command for command in COMMANDS[page] if command.startswith(program)]
    assert found
    return found


def test_the_lab_answers_from_a_log(folder):
    commands = of_page("docs/lab.md", "radixkv lab ")
    for command in commands:
        if command != "radixkv lab advise":
            needs = {"--tokenizer FILE": "--tokenizer tokenizer.json"}
            if "--tokenizer" not in command and "generate" not in command:
                needs["LOG"] = "LOG --tokenizer tokenizer.json"
            if "generate" in command:
                needs["LOG"] = "MADE"
            for text, instead in needs.items():
                command = command.replace(text, instead)
            run(command)
    assert (folder / "report.html").stat().st_size > 1000
    assert (folder / "MADE").exists()


def test_the_plan_says_what_the_page_says(folder):
    (command,) = of_page("docs/lab.md", "radixkv plan")
    page = (ROOT / "docs/lab.md").read_text("utf-8")
    said = re.search(
        r"costs \(([\d,]+) bytes\), and that (\d+) requests .*?(\d+) where", page, re.DOTALL
    )
    assert said is not None
    printed = run(command)
    assert all(figure in printed for figure in said.groups())


@contextmanager
def started(command: str) -> Iterator[str]:
    """A server that a page starts, on a port of its own; its address."""
    with subprocess.Popen(
        f"exec {command} --listen 127.0.0.1:0", shell=True, stdin=subprocess.PIPE, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.match(r"radixkv: listening on ([^\s,]+)", line)
            assert found is not None, line
            yield found[1]
        finally:
            process.terminate()
            process.communicate(timeout=120)


def test_a_served_model_is_asked_what_is_cached(folder, tiny_model, monkeypatch):
    write, serve, *asked = (
        command.replace("smollm2", str(tiny_model))
        for command in COMMANDS["docs/service.md"]
        if re.match(r"echo|radixkv (serve --model|match|stats)", command)
    )
    run(write)
    with started(shlex.join(shlex.split(serve, comments=True))) as address:
        monkeypatch.setenv("RADIXKV_TARGET", address)
        assert all(run(command) for command in asked)


def test_a_server_alone_is_looked_after(folder, monkeypatch):
    (serve,) = (each for each in COMMANDS["docs/service.md"] if "serve --slots" in each)
    ends = {"radixkv top": "--once", "radixkv evict": "1"}
    with started(serve) as address:
        monkeypatch.setenv("RADIXKV_TARGET", address)
        for command in of_page("docs/operations.md", "radixkv"):
            if not re.match(r"radixkv (doctor|serve|route|watch)", command):
                run(f"{command} {ends.get(command, '')}")


def test_doctor_says_what_runs_here(folder):
    assert re.search(r"core .*(native|python)", run("radixkv doctor"))


def test_a_router_starts_before_two_servers(folder, tiny_model):
    (command,) = of_page("README.md", "radixkv route")
    with ExitStack() as stack:
        for address in ("10.0.0.1:50051", "10.0.0.2:50051"):
            server = stack.enter_context(CacheServer(PrefixCache(16), "127.0.0.1:0"))
            command = command.replace(address, server.address)
        command = command.replace("FOLDER", str(tiny_model))
        assert stack.enter_context(started(command)).startswith("127.0.0.1:")
