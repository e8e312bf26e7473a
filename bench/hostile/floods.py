"""Floods of HTTP/2 frames by a client without a token: memory, and a neighbour's waits.

As a program it is the flood: `python -m bench.hostile.floods ADDRESS NAME`.
"""

import sys
import threading
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.hostile.served import beside, highest_memory, measured, served
from bench.report import Claim
from tests.support.floods import FLOODS, flood

SECONDS = 4.0
HEALTH = "health watches"


def watch_health(address: str) -> None:
    """4,000 streams that take no token, over four connections."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(address, own) for _ in range(4)]
    stubs = [health_pb2_grpc.HealthStub(channel) for channel in channels]
    watches = [stubs[at % 4].Watch(health_pb2.HealthCheckRequest()) for at in range(4_000)]
    for watch in watches:
        with suppress(grpc.RpcError):
            next(watch)
    threading.Event().wait()


def run() -> tuple[dict[str, Any], list[Claim]]:
    figures: dict[str, Any] = {}
    claims = []
    for name in [*FLOODS, HEALTH]:
        with served(1_000) as server:
            alone = measured(server, SECONDS / 2)
            with highest_memory(server) as growth, beside("floods", server.address, name):
                flooded = measured(server, SECONDS)
            # On both sides of it, as the load of a shared machine changes.
            alone.samples += measured(server, SECONDS / 2).samples
        figures[name] = {
            "growth_mib": round(growth[0], 1),
            "p99_ms": round(flooded.p99_ms, 1),
            "alone_p99_ms": round(alone.p99_ms, 1),
        }
        print(f"{name:20} {figures[name]}", flush=True)
        claims.append(Claim(f"{name}: growth in MiB", growth[0], "at most", 32))
        ratio = flooded.p99_ms / alone.p99_ms
        claims.append(Claim(f"{name}: p99, times alone", ratio, "at most", 20))
    return figures, claims


if __name__ == "__main__":
    print("flooding", flush=True)
    if sys.argv[2] == HEALTH:
        watch_health(sys.argv[1])
    else:
        flood(sys.argv[1], FLOODS[sys.argv[2]], threading.Event())
