"""Floods by one client that shows no token: memory stays, and others are answered meanwhile."""

import re
import socket
import struct
import threading
import time
from itertools import count
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv.rpc.limits import MAX_OPEN_STREAMS_A_CONNECTION
from radixkv.service import Client

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 1, 2, 3, 4, 6, 8, 9
MOST_GROWTH_MIB = 32
SECONDS = 1.5

TOKENS = """
[[token]]
name = "engine"
role = "data"
token = "engine"
"""


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header(name: bytes, value: bytes) -> bytes:
    """Not indexed, with a new name."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


MATCH = b"".join(
    header(name, value)
    for name, value in {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/radixkv.v1.PrefixCacheService/MatchPrefix",
        b":authority": b"x",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }.items()
)


def rapid_reset(stream: int) -> bytes:
    """Streams that are opened and reset at once: CVE-2023-44487."""
    cancel = struct.pack(">I", 8)
    return frame(HEADERS, 4, stream, MATCH) + frame(RESET, 0, stream, cancel)


# What one client sends over and over, by the number of a stream that it has not used.
FLOODS = {
    "rapid reset": rapid_reset,
    "pings": lambda _: frame(PING, payload=bytes(8)),
    "settings": lambda _: frame(SETTINGS),
    "priorities": lambda _: frame(PRIORITY, 0, 1, bytes(5)),
    "windows": lambda _: frame(WINDOW, payload=struct.pack(">I", 1)),
    "headers that go on": lambda at: (
        frame(HEADERS, 0, at, MATCH) + 64 * frame(CONTINUATION, 0, at, header(b"x", 100 * b"y"))
    ),
}


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found
    return int(found[1]) / 1024


def flood(address: str, make, stopping: threading.Event) -> None:
    host, port = address.split(":")
    while not stopping.is_set():
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                threading.Thread(target=_read, args=(connection,), daemon=True).start()
                connection.sendall(PREFACE + frame(SETTINGS))
                for first in count(1, 200):
                    connection.sendall(b"".join(make(first + 2 * n) for n in range(100)))
                    if stopping.wait(0.001):
                        return
        except OSError:
            pass  # the server cut it off


def _read(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


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
