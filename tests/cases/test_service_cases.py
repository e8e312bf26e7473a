"""Faults that users of such services reported, retold over gRPC.

`README.md` here says where the other cases of services are tested.
"""

import socket
import struct
import time

from radixkv import PrefixCache
from radixkv.rpc.channel_options import CLIENT_OPTIONS, SERVER_OPTIONS
from radixkv.service import CacheServer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, 0, 0) + payload


def frames_in(data: bytes) -> list[tuple[int, int]]:
    """(type, flags) of every whole frame."""
    found = []
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4]))
        data = data[9 + size :]
    return found


def test_B29_pings_of_an_idle_subscriber_close_nothing():
    """Far more often than a client would: each is answered, and no GOAWAY ever comes."""
    with CacheServer(PrefixCache(4), "127.0.0.1:0") as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.settimeout(30)
            raw.sendall(PREFACE + frame(SETTINGS, b""))
            seen = b""
            for number in range(8):
                raw.sendall(frame(PING, number.to_bytes(8, "big")))
                time.sleep(0.02)
            while sum(kind == PING for kind, _ in frames_in(seen)) < 8:
                data = raw.recv(65_536)
                assert data, "the server hung up"
                seen += data
    answers = frames_in(seen)
    assert [flags for kind, flags in answers if kind == PING] == [1] * 8
    assert GOAWAY not in [kind for kind, _ in answers]


def test_B29_the_server_allows_what_the_client_does():
    client, server = dict(CLIENT_OPTIONS), dict(SERVER_OPTIONS)
    allowed = server["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert client["grpc.keepalive_time_ms"] >= allowed
    assert client["grpc.keepalive_permit_without_calls"]
    assert server["grpc.keepalive_permit_without_calls"]
