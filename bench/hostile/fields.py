"""A tenant that stores tokens under the longest names that are taken: memory, and the event log."""

from typing import Any

from bench.hostile.served import served
from bench.report import Claim
from radixkv import Namespace
from radixkv.service import InsertCall

SLOTS, FIELD_BYTES = 60, 256


def run() -> tuple[dict[str, Any], list[Claim]]:
    with (
        served(2_000) as server,
        server.client("engine") as engine,
        engine.lease(300, pool_id="p"),
        server.client("tenant") as tenant,
        tenant.lease(300, pool_id="p") as lease,
        server.client("operator") as operator,
    ):
        # What any first call takes is not this one's.
        lease.insert(InsertCall([0], lease.allocate(1).slots), Namespace(salt="tenant"))
        before = server.memory_mib
        for at in range(SLOTS):
            space = Namespace("tenant", "x" * FIELD_BYTES, f"{at:0{FIELD_BYTES}}")
            lease.insert(InsertCall([at], lease.allocate(1).slots), space)
        cached = server.memory_mib - before
        operator.evict(2_000)
        evicted = server.memory_mib - before
    figures = {"slots": SLOTS, "cached_mib": round(cached, 2), "evicted_mib": round(evicted, 2)}
    print(figures, flush=True)
    most = max(cached, evicted)
    return figures, [Claim("60 slots under the longest fields, MiB", most, "at most", 2)]
