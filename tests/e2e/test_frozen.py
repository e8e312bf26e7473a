"""Clients that are killed, frozen and woken, or cut off: others go on, none is overwritten.

The "K/V" is shared memory that every client really writes to.
"""

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from radixkv import PrefixCache, errors
from radixkv.service import CacheServer, Client, InsertCall
from tests.e2e.fleet import PROCESSES
from tests.support.waiting import wait_until

NUM_SLOTS, TTL_S, GRACE_S = 64, 1.0, 0.8
POOL = "pool of boot 1"


@pytest.fixture
def cache() -> PrefixCache:
    return PrefixCache(NUM_SLOTS)


@pytest.fixture
def server(cache: PrefixCache, tmp_path: Path) -> Iterator[CacheServer]:
    with CacheServer(cache, f"unix:{tmp_path}/x.sock", alone=True, lease_grace_s=GRACE_S) as server:
        yield server


@pytest.fixture
def client(server: CacheServer) -> Iterator[Client]:
    with Client(server.address, timeout_s=30) as client:
        yield client


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    memory = SharedMemory(create=True, size=4 * (NUM_SLOTS + 1))
    yield memory
    memory.close()
    memory.unlink()


def kv_of(memory: SharedMemory) -> Any:
    return np.ndarray(NUM_SLOTS + 1, np.uint32, buffer=memory.buf)


def engine(address: str, name: str, reports: Any, work: Any, pool: str) -> None:
    """Stores a prefix, pins it, then writes to slots of its own what it gets to write."""
    memory = SharedMemory(name)
    kv = kv_of(memory)
    client = Client(address, timeout_s=30)
    lease = client.lease(TTL_S, "frozen", pool)
    slots = lease.allocate(4).slots
    lease.insert(InsertCall([1, 2, 3, 4], slots))
    lease.pin([1, 2, 3, 4], leave_last_token=False)
    own = lease.allocate(20).slots
    reports.put(own.tolist())
    while True:
        value = work.get()
        try:
            for slot in own:
                lease.check()
                kv[slot] = value
        except errors.LeaseExpiredError:
            reports.put(value)


@pytest.fixture
def start(server: CacheServer, memory: SharedMemory) -> Iterator[Callable[..., Any]]:
    started = []

    def start(pool: str = POOL) -> "Engine":
        reports, work = PROCESSES.SimpleQueue(), PROCESSES.SimpleQueue()
        arguments = (server.address, memory.name, reports, work, pool)
        process = PROCESSES.Process(target=engine, args=arguments, daemon=True)
        process.start()
        started.append(process)
        return Engine(process, reports, work, reports.get())

    yield start
    for process in started:
        process.kill()
        process.join()


class Engine(NamedTuple):
    """A process: what it reports, what it is given to write, its own slots."""

    process: Any
    reports: Any
    work: Any
    own: list[int]


def is_over(client: Client) -> Callable[[], bool]:
    """Whether the engine's lease has ended and its grace is over."""

    def said() -> bool:
        stats = client.stats()
        return (stats.protected_size, stats.num_pins, stats.waiting_slots) == (0, 0, 0)

    return said


def test_a_woken_client_with_work_queued_writes_into_no_slots_of_others(client, start, memory):
    with client.lease(30, "other rank", POOL) as other:
        process, reports, work, own = start()
        kv = kv_of(memory)
        work.put(1)
        wait_until(lambda: bool((kv[own] == 1).all()), "it writes")
        os.kill(process.pid, signal.SIGSTOP)
        for value in range(100, 120):
            work.put(value)
        assert client.match([1, 2, 3, 4], timeout_s=10).lengths == [4], "others do not wait"
        wait_until(is_over(client), "its lease ends, although it says nothing")
        taken = other.allocate(NUM_SLOTS - 4).slots
        assert set(own) <= set(taken.tolist())
        kv[taken] = 2
        os.kill(process.pid, signal.SIGCONT)
        assert [reports.get() for _ in range(20)] == list(range(100, 120)), "it refuses all of it"
        assert (kv[taken] == 2).all()
        assert client.check() == []


def test_its_slots_go_to_no_one_while_it_may_still_write(client, start, memory):
    """Between its end and the end of its grace no one else has them."""
    with client.lease(30, "other rank", POOL) as other:
        process, _, _, own = start()
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: client.stats().waiting_slots == len(own), "the lease ends")
        taken = other.allocate(NUM_SLOTS - len(own)).slots
        assert set(own).isdisjoint(taken.tolist())
        with pytest.raises(errors.OutOfSlotsError):
            other.allocate(1)
        wait_until(is_over(client), "the grace ends")
        assert len(other.allocate(len(own)).slots) == len(own)


def test_B21_a_killed_client_holds_nothing_for_long(client, start):
    """kill -9, with pins and slots held."""
    with client.lease(30, "other rank", POOL):
        process, *_ = start()
        assert client.stats().protected_size == 4
        assert client.evict(4) == 0
        process.kill()
        wait_until(is_over(client), "its lease ends")
        assert client.evict(4) == 4
        assert client.stats().free_slots == NUM_SLOTS


def test_an_engine_that_dies_takes_its_pool_along(client, start, cache):
    """It comes back with another pool: nothing of the old contents is ever matched."""
    process, *_ = start()
    assert client.match([1, 2, 3, 4]).lengths == [4]
    epoch = client.stats().epoch
    process.kill()
    boot_2 = (30, "the engine of boot 2", "pool of boot 2")
    with pytest.raises(errors.LiveRequestsError):
        client.lease(*boot_2)
    with client.lease(*boot_2, replaces_pool=True) as lease:
        assert lease.epoch != epoch
        assert client.match([1, 2, 3, 4]).lengths == [0]
        assert len(lease.allocate(NUM_SLOTS).slots) == NUM_SLOTS
    process, *_ = start()
    process.kill()
    wait_until(lambda: client.server_info().pool_id == "", "the pool is gone with its engine")
    assert client.match([1, 2, 3, 4]).lengths == [0]


def test_a_server_that_is_frozen_costs_its_clients_their_leases(tmp_path, memory):
    """By their own clocks, without a word from it."""
    from tests.e2e.fleet import serve

    ready = PROCESSES.Event()
    address = f"unix:{tmp_path}/frozen.sock"
    process = PROCESSES.Process(target=serve, args=(address, ready), daemon=True)
    process.start()
    assert ready.wait(60)
    with Client(address, timeout_s=30) as client:
        lease = client.lease(TTL_S, pool_id="p")
        lease.allocate(4)
        os.kill(process.pid, signal.SIGSTOP)

        def has_ended() -> bool:
            try:
                lease.check()
            except errors.LeaseExpiredError:
                return True
            return False

        wait_until(has_ended, "the lease ends by our clock")
        process.kill()
        process.join()
