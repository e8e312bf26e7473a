"""Leases in a large pool: what a page of them takes, and 12,000 that end at once.

As a program it takes leases of one slot: `python -m bench.hostile.leases ADDRESS NUMBER SECONDS`,
all to end so many seconds from then, and prints a line when it has them.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.hostile.served import measured, served
from bench.report import Claim
from radixkv.errors import RadixKVError
from radixkv.service import Client
from radixkv.service.client import lease_calls
from radixkv.service.client.lease_calls import LeaseRef

FEW, MANY, LEASES, ENDING, TTL_S = 10_000, 10_000_000, 1_000, 12_000, 180.0
ROUNDS = 40
FREE = "leases = 16000"


def take(address: str, number: int, until: float) -> None:
    """Leases of one slot each, which end together."""
    with Client(address, token="tenant", timeout_s=100) as client:
        for _ in range(number):
            ttl_s = max(1.0, until - time.monotonic())
            info = client.send(lease_calls.grant(ttl_s, "", "p"))
            client.send(lease_calls.allocate(LeaseRef(info.id, info.epoch), 1))


@contextmanager
def holding(num_slots: int) -> Iterator[Client]:
    """A client that has 1,000 leases in a pool of that many slots."""
    with (
        served(num_slots, tenant=FREE) as server,
        server.client("engine") as engine,
        engine.lease(300, pool_id="p"),
        server.client("tenant") as client,
    ):
        take(server.address, LEASES, time.monotonic() + 200)
        yield client


def list_ms() -> dict[str, float]:
    """Of one ListLeases of 1,000 leases in a small pool and in a large one: medians in turn."""
    took: dict[str, list[float]] = {f"{FEW:,} slots": [], f"{MANY:,} slots": []}
    with holding(FEW) as few, holding(MANY) as many:
        for _ in range(ROUNDS):
            for samples, client in zip(took.values(), (few, many), strict=True):
                began = time.perf_counter()
                assert len(client.leases().leases) == LEASES
                samples.append(1000 * (time.perf_counter() - began))
    return {name: statistics.median(samples) for name, samples in took.items()}


def ends() -> dict[str, Any]:
    """A neighbour's waits before and while 12,000 leases of a tenant end, and whether an engine's
    lease of the default 10 s, renewed by its client, lives on."""
    with (
        served(MANY, tenant=FREE) as server,
        server.client("engine") as engine,
        engine.lease(pool_id="p") as lease,
    ):
        alone = measured(server, 3)
        until = time.monotonic() + TTL_S
        subprocess.run(
            [sys.executable, "-m", "bench.hostile.leases", server.address, str(ENDING), str(TTL_S)],
            check=True,
        )
        time.sleep(max(0.0, until - time.monotonic() - 2))
        ending = measured(server, 12)
        try:
            lease.check()
            lives = True
        except RadixKVError:
            lives = False
        with server.client("operator") as operator:
            left = operator.stats().num_leases
    return {
        "alone_p99_ms": round(alone.p99_ms, 2), "ending_p99_ms": round(ending.p99_ms, 2),
        "longest_ms": round(1000 * max(ending.samples), 1), "engine_lives": lives,
        "leases_left": left,
    }  # fmt: skip


def run() -> tuple[dict[str, Any], list[Claim]]:
    listed = list_ms()
    few, many = listed.values()
    figures = {"ListLeases, ms": {key: round(ms, 2) for key, ms in listed.items()}, "ends": ends()}
    print(figures, flush=True)
    ended = figures["ends"]
    return figures, [
        Claim("ListLeases at 10 M slots, times 10,000", many / few, "at most", 1.2),
        Claim(
            "12,000 leases end: p99, times alone",
            ended["ending_p99_ms"] / ended["alone_p99_ms"],
            "at most",
            8,
        ),
        Claim("leases that are left", ended["leases_left"], "at most", 1),
        Claim("the engine's lease lives", ended["engine_lives"], "at least", 1),
    ]


if __name__ == "__main__":
    address, number, seconds = sys.argv[1:]
    take(address, int(number), time.monotonic() + float(seconds))
