from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from radixkv import PrefixCache
from radixkv.cli import app
from radixkv.service import CacheServer


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache(64)


@pytest.fixture
def server(cache: PrefixCache) -> Iterator[CacheServer]:
    with CacheServer(cache, "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    """`radixkv` with these arguments, in this process."""
    monkeypatch.delenv("RADIXKV_TARGET", raising=False)

    def invoke(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input)

    return invoke
