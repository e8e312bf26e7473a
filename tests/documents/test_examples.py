"""Every example runs as its first lines say, and shows what it is there to show."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from radixkv import PrefixCache
from radixkv.router import Router
from radixkv.router.server import RouterServer
from radixkv.service import CacheServer, Client
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
# Those of others' engines: tests/hosts runs them.
ELSEWHERE = {"gateway.py", "mini_sglang.py"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str) -> list[str]:
    """What the example prints, in a process of its own."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def server() -> Iterator[CacheServer]:
    """Of an engine's cache, which holds the tokens 0 to 19."""
    cache = PrefixCache(64)
    request = cache.admit(range(20))
    assert request is not None
    cache.finish(request, up_to=20)
    with CacheServer(cache, "127.0.0.1:0") as server:
        yield server


def test_each_example_is_run_here_or_in_an_engine():
    here = set(re.findall(r'(?:run|load)\("(\w+)"', Path(__file__).read_text("utf-8")))
    assert {f"{name}.py" for name in here} | ELSEWHERE == {
        path.name for path in EXAMPLES.glob("*.py")
    }


def test_the_engine_shares_retracts_resumes_and_answers_as_without_a_cache():
    assert len((EXAMPLES / "engine.py").read_text("utf-8").splitlines()) <= 100
    (line,) = run("engine")
    computed, asked, retracted = map(int, re.findall(r"\d+", line))
    assert 0 < computed < asked / 2
    assert retracted > 0
    engine = load("engine")
    small, large = (
        [engine.Job([*range(40), 7, turn, turn + 1], 16) for turn in range(12)] for _ in "ab"
    )
    tight = engine.Engine(engine.ToyModel(160), PrefixCache(160))
    tight.run(small)
    alone = engine.Engine(engine.ToyModel(160), PrefixCache(160), max_batch=1)
    for job in large:
        alone.run([job])
        alone.cache.reset()  # nothing is shared
    assert [job.answer for job in small] == [job.answer for job in large]
    assert tight.retracted > 0
    assert tight.cache.check_integrity() == []
    assert tight.cache.stats().live_requests == 0


def test_a_hugging_face_model_shares_the_system_prompt(tiny_model):
    lines = run("huggingface", str(tiny_model))
    cached = [int(line.split()[0]) for line in lines if line.endswith("prompt tokens cached")]
    assert cached[0] == 0
    assert min(cached[1:]) > 50


def test_a_remote_engine_finds_what_it_stored():
    with CacheServer(PrefixCache(1000), "127.0.0.1:0", alone=True) as server:
        lines = run("remote_engine", server.address)
    assert [int(line.split()[0]) for line in lines] == [0, 3, 4]


def test_the_async_client_asks_at_once_and_follows(server):
    matched, refused, followed = run("async_client", server.address)
    assert matched == "301 tokens of 100 prompts cached"
    assert refused.startswith("InvalidTokensError: ")
    assert re.fullmatch(r"revision \d+: [1-9]\d* events", followed)


def test_the_router_sends_a_prompt_to_the_server_that_holds_it(server):
    with CacheServer(PrefixCache(64), "127.0.0.1:0") as other:
        lines = run("router", other.address, server.address)
    assert [line.split(", ")[0] for line in lines[:4]] == [
        f"to {server.address}: 20 tokens there"
    ] * 4
    assert all(line.endswith("current, load 0") for line in lines[4:])


def test_decode_of_rows_that_share_runs_by_the_reference(capsys):
    load("gpu_decode").main("reference", "cpu", shared=32)
    assert "(16, 32, 128) of 16 rows over 32 shared tokens" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_decode_of_rows_that_share_takes_the_tree_on_a_card():
    (line,) = run("gpu_decode")
    assert "4096 shared tokens: tree by" in line


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples/node with its packages."""
    if shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(EXAMPLES / "node", folder / "examples" / "node")
    shutil.copytree(ROOT / "proto", folder / "proto")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        command, cwd=folder / "examples" / "node", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"npm does not get the packages: {done.stderr.strip().splitlines()[-1]}")
    return folder / "examples" / "node"


def test_a_client_in_node_asks_a_router(server, node_modules):
    with Router() as router, Client(server.address) as client:
        router.follow("a", client)
        with RouterServer(router, "127.0.0.1:0") as routing:
            wait_until(lambda: router.workers()[0].view.state == "current")
            done = subprocess.run(
                ["node", "client.mjs", routing.address],
                cwd=node_modules,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        held, sent, refused = done.stdout.splitlines()
        assert held == "a holds 4 tokens"
        assert sent.startswith("send it to a: ")
        assert refused.startswith("3: sequences must be 1 to 1024 prompts")
        assert router.workers()[0].load == 0  # it named the pick as ended
