"""Floods by one client that shows no token: memory stays, and others are answered meanwhile."""

import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv.rpc.limits import MAX_OPEN_STREAMS_A_CONNECTION
from radixkv.service import Client
from tests.support.floods import FLOODS, flood, memory_mib

MOST_GROWTH_MIB = 32
SECONDS = 1.5

TOKENS = """
[[token]]
name = "engine"
role = "data"
token = "engine"
"""


@pytest.fixture
def served(serve, tmp_path):
    (tmp_path / "tokens.toml").write_text(TOKENS)
    return serve("--slots", "1000", "--tokens", str(tmp_path / "tokens.toml"))


@pytest.mark.parametrize("make", FLOODS.values(), ids=FLOODS)
def test_a_flood_over_one_connection_takes_no_memory_and_no_calls_of_others(served, make):
    pid = served.process.pid
    with Client(served.address, token="engine", timeout_s=30) as client:
        client.match([1])
        before, most = memory_mib(pid), 0.0
        stopping = threading.Event()
        flooding = threading.Thread(target=flood, args=(served.address, make, stopping))
        flooding.start()
        end = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end:
                assert client.match([1]).lengths == [0]
                most = max(most, memory_mib(pid))
        finally:
            stopping.set()
            flooding.join()
        assert most - before < MOST_GROWTH_MIB


def _is_open(watch):
    """Else it is refused: by the server, or by HTTP/2 where too many came at once."""
    try:
        return next(watch).status == health_pb2.HealthCheckResponse.SERVING
    except grpc.RpcError:
        return False


def test_watches_of_health_are_limited(served):
    """4,000 of them over four connections: each keeps some, the rest is refused with a reason."""
    pid = served.process.pid
    with Client(served.address, token="engine", timeout_s=30) as client:
        client.match([1])
        before = memory_mib(pid)
        own = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(served.address, own) for _ in range(4)]
        watches = [
            health_pb2_grpc.HealthStub(channels[at % 4]).Watch(health_pb2.HealthCheckRequest())
            for at in range(4_000)
        ]
        assert 0 < sum(map(_is_open, watches)) <= 4 * MAX_OPEN_STREAMS_A_CONNECTION
        assert memory_mib(pid) - before < MOST_GROWTH_MIB
        assert client.match([1]).lengths == [0]
        for channel in channels:
            channel.close()
