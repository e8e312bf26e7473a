"""What happens around a server: its log's disk is full, clocks jump, a client is killed."""

import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from radixkv import PrefixCache, errors
from radixkv.rpc.limits import LEASE_GRACE_S
from radixkv.service import CacheServer, Client
from radixkv.service.client import lease_calls
from radixkv.service.client.lease_calls import LeaseRef
from tests.support.waiting import wait_until

SERVE = [sys.executable, "-m", "radixkv", "serve", "--slots", "100", "--log-json"]


def into_a_full_device(stack: ExitStack, folder: Path, command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(command, stderr=stack.enter_context(Path("/dev/full").open("w")))


def into_a_file_that_may_not_grow(
    stack: ExitStack, folder: Path, command: list[str]
) -> subprocess.Popen:
    """As on a disk that fills up later: the first line still fits."""
    log = stack.enter_context((folder / "log").open("w"))
    return subprocess.Popen(
        command, stderr=log, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
    )


@pytest.mark.parametrize("start", [into_a_full_device, into_a_file_that_may_not_grow])
def test_a_server_goes_on_when_its_log_cannot_be_written(start, tmp_path):
    """Calls fail and are logged, in vain; the next ones are answered, and it ends as always."""
    socket = tmp_path / "cache.sock"
    with ExitStack() as stack:
        process = start(stack, tmp_path, [*SERVE, "--listen", f"unix:{socket}"])
        try:
            wait_until(lambda: socket.exists() or process.poll() is not None)
            assert process.poll() is None
            with Client(f"unix:{socket}", timeout_s=60) as client:
                for number in range(50):
                    with pytest.raises(errors.LeaseNotFoundError):
                        client.lease_info(number + 1)
                assert client.match([1]).lengths == [0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def jumping_clock(tmp_path, monkeypatch):
    """Processes started from now on have it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "jumping_clock.so"
    source = Path(__file__).with_name("jumping_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    looks = "import time; a = time.time(); time.sleep(0.1); print(abs(time.time() - a) > 1e7)"
    assert subprocess.check_output([sys.executable, "-c", looks]) == b"True\n"


def test_a_wall_clock_that_jumps_ends_no_lease_and_keeps_none(jumping_clock, serve):
    """As by NTP, a machine that slept, an operator; here by years, in both directions."""
    served = serve("--slots", "100")
    with (
        Client(served.address, timeout_s=60) as client,
        client.lease(2, pool_id="p") as lease,
    ):
        lease.allocate(10)
        lost = client.send(lease_calls.grant(1, pool_id="p"))  # never renewed
        client.send(lease_calls.allocate(LeaseRef(lost.id, lost.epoch), 20))
        assert client.stats().allocated_slots == 30
        wait_until(lambda: client.stats().num_leases == 1)
        wait_until(lambda: client.stats().free_slots == 90)
        lease.check()
        info = client.lease_info(lease.id)
        assert 0 < info.remaining_s <= 2
        assert info.num_slots == 10
        assert client.check() == []


INSERT_FOREVER = """
import sys
from radixkv.service import Client, InsertCall

client = Client(sys.argv[1], timeout_s=60)
lease = client.lease(1, pool_id="engine")
print("inserting", flush=True)
for number in range(1_000_000):
    slots = lease.allocate(40).slots
    lease.insert([InsertCall([number, at], slots[2 * at : 2 * at + 2]) for at in range(15)])
    lease.allocate(5)
    if number % 10 == 9:
        lease.free(lease.holdings().slots)
"""


def test_slots_of_a_client_killed_in_its_inserts_come_back():
    """kill -9 at random moments, one after the other: the pool is whole each time."""
    rng = random.Random(4)
    cache = PrefixCache(2_000)
    with (
        CacheServer(cache, "127.0.0.1:0", alone=True) as server,
        Client(server.address, timeout_s=60) as client,
        client.lease(60, pool_id="engine"),
    ):
        for _ in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", INSERT_FOREVER, server.address],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "inserting\n"
            time.sleep(rng.uniform(0.05, 0.3))
            process.kill()
            process.communicate()
            client.match([1, 2])
        wait_until(lambda: client.stats().num_leases == 1)
        wait_until(lambda: client.stats().waiting_slots == 0, timeout_s=60 + LEASE_GRACE_S)
        stats = client.stats()
        assert stats.allocated_slots == stats.num_pins == 0
        assert stats.free_slots + stats.evictable_size == 2_000
        assert client.check() == []
