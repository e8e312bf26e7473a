"""A server in a process of its own, with tokens, and a client whose waits are measured."""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from radixkv import Namespace
from radixkv.service import Client
from tests.e2e.alone import Alone
from tests.support.floods import memory_mib

OTHER = Namespace(salt="other")
TENANT = Namespace(salt="tenant")

# "tenant" is the attacker, "other" the neighbour that must not notice.
TOKENS = """
[[token]]
name = "engine"
role = "data"
token = "engine"
{engine}

[[token]]
name = "tenant"
role = "data"
token = "tenant"
salt = "tenant"
{tenant}

[[token]]
name = "other"
role = "data"
token = "other"
salt = "other"

[[token]]
name = "watch"
role = "watch"
token = "watch"

[[token]]
name = "operator"
role = "admin"
token = "operator"
"""


class Served:
    """`radixkv serve --slots N`. metrics: the address of its metrics, if it serves any."""

    def __init__(self, alone: Alone, metrics: str) -> None:
        self.address, self.metrics = alone.address, metrics
        self._pid = alone.process.pid

    def client(self, token: str) -> Client:
        """A client with that token, which waits out a busy machine."""
        return Client(self.address, token=token, timeout_s=100)

    @property
    def memory_mib(self) -> float:
        return memory_mib(self._pid)


@contextmanager
def served(
    num_slots: int, *, tenant: str = "", engine: str = "", metrics: bool = False
) -> Iterator[Served]:
    """A server; tenant, engine: lines for the entries of these tokens."""
    with tempfile.TemporaryDirectory(prefix="radixkv-") as folder:
        file = Path(folder) / "tokens.toml"
        file.write_text(TOKENS.format(tenant=tenant, engine=engine))
        arguments = ["--slots", str(num_slots), "--tokens", str(file)]
        if metrics:
            arguments += ["--metrics", "127.0.0.1:0"]
        alone = Alone(*arguments)
        try:
            yield Served(alone, alone.said("metrics") if metrics else "")
        finally:
            alone.process.kill()
            alone.process.communicate()


class Waits:
    """Seconds that each call of a client took."""

    def __init__(self) -> None:
        self.samples: list[float] = []

    @property
    def p99_ms(self) -> float:
        return 1000 * statistics.quantiles(self.samples, n=100, method="inclusive")[98]

    @property
    def median_ms(self) -> float:
        return 1000 * statistics.median(self.samples)


def measured(server: Served, seconds: float, pause_s: float = 0.002) -> Waits:
    """Matches of the neighbour, one after another."""
    waits = Waits()
    with server.client("other") as client:
        client.match([1], namespace=OTHER)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            client.match([1], namespace=OTHER)
            waits.samples.append(time.perf_counter() - began)
            time.sleep(pause_s)
    return waits


@contextmanager
def beside(what: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own meanwhile: what this package's module `what` does as a program, which
    prints a line once it is at work. What it takes to start is not measured.
    """
    command = [sys.executable, "-m", f"bench.hostile.{what}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), f"{what} ended at once"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def highest_memory(server: Served) -> Iterator[list[float]]:
    """The list gets the most MiB that the server takes meanwhile beyond what it took before."""
    before, growth, stopping = server.memory_mib, [0.0], threading.Event()

    def look() -> None:
        while not stopping.wait(0.05):
            growth[0] = max(growth[0], server.memory_mib - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield growth
    finally:
        stopping.set()
        looking.join()
