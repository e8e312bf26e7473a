"""1,000 calls over a proxy that delays and cuts at random, whatever the caller does about it."""

import random
import time
from typing import Any

from bench.report import Claim
from radixkv import PrefixCache
from radixkv.service import CacheServer, Client
from tests.support.proxy import Proxy, take_at_random
from tests.support.service import hold

CALLS, SEED, LONGEST_S = 1_000, 5, 60.0


def run() -> tuple[dict[str, Any], list[Claim]]:
    figures: dict[str, Any] = {}
    claims = []
    for name, repeats in (("given up", False), ("repeated under its id", True)):
        cache = PrefixCache(4 * CALLS)
        hold(cache, [1, 2, 3])
        with (
            CacheServer(cache, "127.0.0.1:0", alone=True) as server,
            Client(server.address, timeout_s=60) as direct,
        ):
            proxy = Proxy(server.address)
            with Client(proxy.address) as client, client.lease(300, pool_id="p") as lease:
                rng = random.Random(SEED)
                known = take_at_random(
                    proxy, lease, [1, 2, 3], num_calls=CALLS, rng=rng, repeats=repeats
                )
                expected = len(known.slots), len(known.pin_ids)
                end = time.monotonic() + LONGEST_S
                while time.monotonic() < end:  # what was lost is given back beside the calls
                    info = direct.lease_info(lease.id)
                    if (info.num_slots, info.num_pins) == expected:
                        break
                    time.sleep(0.05)
                holdings = lease.holdings(timeout_s=60)
            proxy.close()
        unknown = len(set(holdings.slots.tolist()) - set(known.slots))
        unknown += len(set(holdings.pin_ids) - set(known.pin_ids))
        missing = len(set(known.slots) - set(holdings.slots.tolist()))
        missing += len(set(known.pin_ids) - set(holdings.pin_ids))
        figures[name] = {
            "calls": CALLS, "lost": known.num_lost, "unknown": unknown, "missing": missing,
            "violations": len(cache.check_integrity()),
        }  # fmt: skip
        print(f"{name:24} {figures[name]}", flush=True)
        claims.append(Claim(f"{name}: held and unknown", unknown, "at most", 0))
        claims.append(Claim(f"{name}: known and not held", missing, "at most", 0))
        claims.append(Claim(f"{name}: answers lost", known.num_lost, "at least", 1))
    return figures, claims
