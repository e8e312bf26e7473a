"""A tenant that calls as often as it can, limited to 5 % of what the server does: its neighbour's
calls a second, with it and without, in turn.

As a program it is the tenant: `python -m bench.hostile.callers ADDRESS`.
"""

import signal
import statistics
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from bench.hostile.served import OTHER, TENANT, Served, beside, served
from bench.report import Claim
from radixkv.errors import OverloadedError
from radixkv.service import Client

SHARE, ROUNDS, SECONDS, THREADS = 0.05, 40, 0.5, 4
PROMPT = list(range(200))


def call_always(address: str) -> None:
    """Matches in several threads, whatever the server says."""

    def calls() -> None:
        with Client(address, token="tenant", timeout_s=30, coalesce=False) as client:
            while True:
                with suppress(OverloadedError):
                    client.match(PROMPT, namespace=TENANT)

    for _ in range(THREADS):
        threading.Thread(target=calls).start()
    print("calling", flush=True)


def calls_per_s(server: Served) -> float:
    """Of the neighbour, from two threads."""
    done = [0, 0]

    def calls(at: int) -> None:
        with server.client("other") as client:
            began = time.perf_counter()
            while time.perf_counter() < began + SECONDS:
                client.match(PROMPT, namespace=OTHER)
                done[at] += 1

    threads = [threading.Thread(target=calls, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / SECONDS


def run() -> tuple[dict[str, Any], list[Claim]]:
    with served(1_000) as server:
        most = statistics.median(calls_per_s(server) for _ in range(3))
    alone, with_tenant = [], []
    limit = f"calls_per_s = {SHARE * most:.1f}"
    with served(1_000, tenant=limit) as server, beside("callers", server.address) as tenant:
        for _ in range(ROUNDS):
            tenant.send_signal(signal.SIGSTOP)
            alone.append(calls_per_s(server))
            tenant.send_signal(signal.SIGCONT)
            with_tenant.append(calls_per_s(server))
    kept = statistics.median(with_tenant) / statistics.median(alone)
    figures = {
        "server_calls_per_s": round(most),
        "tenant_limit": round(SHARE * most, 1),
        "samples_alone": alone,
        "samples_with_tenant": with_tenant,
        "kept": round(kept, 3),
    }
    print(figures, flush=True)
    return figures, [Claim("neighbour's calls a second, of those alone", kept, "at least", 0.8)]


if __name__ == "__main__":
    call_always(sys.argv[1])
