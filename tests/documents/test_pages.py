"""The Python of README and docs runs, block after block, and does what its comments say.

What a page takes as given (an address where a server answers, a pool, a model) is in `GIVEN`.
"""

import ast
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from radixkv import PrefixCache

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# An expression, and a comment that may begin with what it gives: a literal, or an array's shape.
SAYS = re.compile(r"^(?P<expression>\S.*?)  # (?P<comment>.*)$")

PAGES = {
    path.relative_to(ROOT).as_posix(): BLOCK.findall(path.read_text("utf-8"))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
# Compared with the files that they are excerpts of, in tests/unit/test_extending.py.
PAGES = {name: blocks for name, blocks in PAGES.items() if blocks and "extending" not in name}


class Given:
    """What a page takes as given: names, and other text in place of the page's."""

    def __init__(self, stack: ExitStack, model: Path) -> None:
        self.stack, self.model = stack, model
        self.names: dict[str, Any] = {}
        self.instead: dict[str, str] = {}

    def a_model(self) -> None:
        self.instead['"smollm2"'] = repr(str(self.model))

    def a_server(self) -> None:
        from radixkv.service import CacheServer

        cache = PrefixCache(64)
        server = self.stack.enter_context(CacheServer(cache, "127.0.0.1:0", alone=True))
        self.instead["127.0.0.1:50051"] = server.address

    def a_router(self) -> None:
        from radixkv.prompts import ModelPrompts
        from radixkv.router import Router
        from radixkv.router.server import RouterServer

        router = self.stack.enter_context(Router())
        router.add_worker("a")
        prompts = ModelPrompts(self.model)
        server = self.stack.enter_context(RouterServer(router, "127.0.0.1:0", prompts=prompts))
        self.instead["127.0.0.1:50061"] = server.address

    def clients(self) -> None:
        from radixkv.service import CacheServer, Client

        server = self.stack.enter_context(CacheServer(PrefixCache(64), "127.0.0.1:0"))
        client = self.stack.enter_context(Client(server.address))
        self.names |= {"clients": {"a": client}, "token_ids": [1, 2, 3]}

    def a_batch(self) -> None:
        import torch

        from radixkv.memory.kv_pool import MHATokenToKVPool

        cache = PrefixCache(32)
        running = [cache.admit([1, 2, 3]), cache.admit([1, 2, 4, 5])]
        q, k, v = (torch.randn(2, heads, 8) for heads in (4, 2, 2))
        self.names |= {"running": running, "num_layers": 2, "q": q, "k": k, "v": v}
        self.names["pool"] = MHATokenToKVPool(32, 2, 2, 8, "float32")
        self.instead['"tree", pool, q_heads=32'] = '"reference", pool'

    def a_model_on_a_card(self) -> None:
        """Without a card, its dtype and the reference backend stand for it."""
        import torch
        from transformers import AutoModelForCausalLM

        self.names["model"] = AutoModelForCausalLM.from_pretrained(self.model)
        if not torch.cuda.is_available():
            self.instead |= {".cuda().bfloat16()": ".bfloat16()", '"tree"': '"reference"'}
            self.instead[".explain()"] = ""


GIVEN: dict[str, list[Callable[[Given], None]]] = {
    "README.md": [Given.a_model, Given.a_router],
    "docs/engine.md": [Given.a_batch],
    "docs/gpu.md": [Given.a_model_on_a_card],
    "docs/huggingface.md": [Given.a_model],
    "docs/router.md": [Given.clients, Given.a_router],
    "docs/service.md": [Given.a_server],
}


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, tiny_model):
    with ExitStack() as stack:
        given = Given(stack, tiny_model)
        for prepare in GIVEN.get(page, []):
            prepare(given)
        for block in PAGES[page]:
            for text, instead in given.instead.items():
                block = block.replace(text, instead)
            run(block, given.names)


def test_what_a_comment_says_is_compared():
    run("[1, 2][0]  # 1: the first\n", {})
    with pytest.raises(AssertionError):
        run("with open('/dev/null'):\n    [1, 2][0]  # 2\n", {})


def run(block: str, names: dict[str, Any]) -> None:
    """Run a block; an expression with a comment that begins with a literal must give that."""
    names["_agree"] = agree
    exec("\n".join(checked(line) for line in block.splitlines()), names)


def checked(line: str) -> str:
    found = SAYS.match(line.strip())
    if found is None or (wanted := literal(found["comment"])) is None:
        return line
    try:
        ast.parse(found["expression"], mode="eval")
    except SyntaxError:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}_agree({found['expression']}, {wanted!r})"


def literal(comment: str) -> tuple[Any] | None:
    """What the comment begins with, in a tuple, as None is a literal too."""
    ends = [len(comment), *(found.start() for found in re.finditer(r"[:;]| int32", comment))]
    for end in ends:
        try:
            return (ast.literal_eval(comment[:end].strip()),)
        except (SyntaxError, ValueError):
            continue
    return None


def agree(found: Any, wanted: tuple[Any]) -> None:
    if isinstance(found, np.ndarray):
        found = found.shape
    if isinstance(found, str) and wanted[0].endswith("..."):
        found = found[: len(wanted[0]) - 3] + "..."
    assert found == wanted[0]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
