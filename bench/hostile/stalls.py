"""What walks everything, in a cache of 10 million tokens: how long another client's matches wait.

As a program it walks, over and over: `python -m bench.hostile.stalls ADDRESS METRICS NAME`.
"""

import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from bench.hostile.served import TENANT, Waits, beside, highest_memory, measured, served
from bench.report import Claim
from radixkv.service import Client, InsertCall
from radixkv.v1.admin_pb2 import DumpTreeRequest
from radixkv.v1.admin_pb2_grpc import AdminServiceStub

LEAVES, TOKENS, BATCH, SEED = 100_000, 100, 1_000, 1
SECONDS, AT_ONCE, PAUSE_S = 6.0, 24, 0.02
# Times the p99 alone: 20 ms stands for 8, 50 ms for 20.
LIMITS = {
    "scrape": 8,
    "24 GetStats": 8,
    "snapshot": 8,
    "DumpTree": 8,
    "DumpTree with tokens": 8,
    "CheckIntegrity": 20,
}


# ---- what walks ----


def scrape(_: str, metrics: str) -> None:
    urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60).read()


def get_stats(address: str, _: str) -> None:
    """Of its own namespace, which any tenant may ask for."""
    with (
        Client(address, token="tenant", timeout_s=60) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        for done in [threads.submit(client.stats, TENANT) for _ in range(AT_ONCE)]:
            done.result()


def take_snapshot(address: str, _: str) -> None:
    with Client(address, token="watch", timeout_s=60) as client:
        watch = client.watch()
        next(watch)
        watch.close()


def dump(address: str, _: str, wants_tokens: bool = False) -> None:
    with grpc.insecure_channel(address) as channel:
        messages = AdminServiceStub(channel).DumpTree(
            DumpTreeRequest(want_tokens=wants_tokens),
            metadata=(("authorization", "Bearer operator"),),
            timeout=120,
        )
        assert sum(len(message.nodes) for message in messages) >= LEAVES


def dump_tokens(address: str, metrics: str) -> None:
    dump(address, metrics, wants_tokens=True)


def check(address: str, _: str) -> None:
    with Client(address, token="operator", timeout_s=120) as client:
        assert client.check() == []


WALKS: dict[str, Callable[[str, str], None]] = dict(
    zip(LIMITS, (scrape, get_stats, take_snapshot, dump, dump_tokens, check), strict=True)
)


def walk_always(address: str, metrics: str, name: str) -> None:
    WALKS[name](address, metrics)
    print("walking", flush=True)
    while True:
        WALKS[name](address, metrics)
        time.sleep(PAUSE_S)


# ---- who waits ----


def fill(client: Client) -> None:
    """Leaves that no two have a token in common, all in the tenant's namespace."""
    rng = np.random.default_rng(SEED)
    with client.lease(300, pool_id="p") as lease:
        for first in range(0, LEAVES, BATCH):
            slots = lease.allocate(BATCH * TOKENS).slots.reshape(BATCH, TOKENS)
            ids = rng.integers(0, 2**30, (BATCH, TOKENS))
            ids[:, 0] = np.arange(first, first + BATCH)
            lease.insert([InsertCall(*each) for each in zip(ids, slots, strict=True)], TENANT)


def run() -> tuple[dict[str, Any], list[Claim]]:
    with (
        served(LEAVES * TOKENS, metrics=True) as server,
        server.client("engine") as engine,
        engine.lease(300, pool_id="p"),
    ):
        fill(engine)
        alone, waits, growth = Waits(), dict[str, Waits](), dict[str, float]()
        for name in WALKS:
            alone.samples += measured(server, SECONDS / 2).samples
            with (
                highest_memory(server) as grown,
                beside("stalls", server.address, server.metrics, name),
            ):
                waits[name] = measured(server, SECONDS)
            growth[name] = grown[0]
            print(f"{name:22} {shown(waits[name])} +{grown[0]:.0f} MiB", flush=True)
        print(f"{'alone':22} {shown(alone)}", flush=True)
    figures = {
        "leaves": LEAVES, "tokens": LEAVES * TOKENS, "alone_p99_ms": round(alone.p99_ms, 2),
        "samples_alone_ms": in_ms(alone),
        **{
            name: {
                "p99_ms": round(waits[name].p99_ms, 2), "times_alone": round(ratio, 2),
                "growth_mib": round(growth[name], 1), "samples_ms": in_ms(waits[name]),
            }
            for name in WALKS
            if (ratio := waits[name].p99_ms / alone.p99_ms)
        },
    }  # fmt: skip
    claims = [
        Claim(f"{name}: p99, times alone", waits[name].p99_ms / alone.p99_ms, "at most", limit)
        for name, limit in LIMITS.items()
    ]
    taken = growth["CheckIntegrity"] * 2**20 / 1e6
    return figures, [*claims, Claim("CheckIntegrity: growth in MB", taken, "at most", 200)]


def in_ms(waits: Waits) -> list[float]:
    return [1000 * each for each in waits.samples]


def shown(waits: Waits) -> str:
    longest = 1000 * max(waits.samples)
    return (
        f"match p50 {waits.median_ms:.2f} p99 {waits.p99_ms:.2f} longest {longest:.1f} ms of "
        f"{len(waits.samples)}"
    )


if __name__ == "__main__":
    walk_always(*sys.argv[1:])
