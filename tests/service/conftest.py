from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from radixkv import PrefixCache
from radixkv.service import CacheServer, Client
from tests.support.service import connect


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache(64)


@pytest.fixture(params=["tcp", "unix"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/run/cache.sock"


@pytest.fixture
def server_options() -> dict[str, Any]:
    """How the server is started; a file of tests has its own."""
    return {}


@pytest.fixture
def server(
    cache: PrefixCache, address: str, server_options: dict[str, Any]
) -> Iterator[CacheServer]:
    with CacheServer(cache, address, **server_options) as server:
        yield server


@pytest.fixture
def client(server: CacheServer) -> Iterator[Client]:
    with connect(server.address) as client:
        yield client


@pytest.fixture
def channel(server: CacheServer) -> Iterator[grpc.Channel]:
    """What a client in another language has: gRPC's own limits, no library of ours."""
    with grpc.insecure_channel(server.address) as channel:
        yield channel
