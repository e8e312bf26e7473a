"""Server processes and client processes that work at random, for tests of agreement.

Each server stands for one pool, whose clients are the engines of `engines.py`.
"""

import multiprocessing
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from radixkv import Namespace, PrefixCache
from radixkv.cache.runs import Runs, StoredRun
from radixkv.router import PrefixIndex
from radixkv.rpc.codec import write_namespace
from radixkv.service import CacheServer, Client, Watch
from radixkv.v1.admin_pb2 import DumpTreeRequest, DumpTreeResponse
from tests.e2e.engines import NUM_SLOTS, SALTS, STEPS, Engine
from tests.support.waiting import wait_until

# Forked from a process that has imported gRPC and never used it: quick, and safe.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["radixkv.service", "tests.e2e.fleet"])

GRACE_S = 1.0
NUM_LIVES = 64


@dataclass
class Order:
    """What the processes of a fleet share: whether to work, and what went wrong.

    lives: of each server's pool. counts: steps made. resting: clients that do nothing now.
    """

    lives: Any
    resting: Any
    go: Any = field(default_factory=PROCESSES.Event)
    end: Any = field(default_factory=PROCESSES.Event)
    wrong: Any = field(default_factory=PROCESSES.SimpleQueue)
    counts: Any = field(default_factory=lambda: PROCESSES.Array("q", len(STEPS)))


def serve(address: str, ready: Any) -> None:
    """A server alone, until it is killed."""
    with CacheServer(PrefixCache(NUM_SLOTS), address, alone=True, lease_grace_s=GRACE_S):
        ready.set()
        signal.pause()


def work(number: int, server: int, address: str, memory: str, order: Order, seed: int) -> None:
    """A client that works at random until the order ends, and rests while it says so."""
    shared = SharedMemory(memory)
    engine = Engine(address, shared, order.lives, server, random.Random(seed))
    try:
        while not order.end.is_set():
            order.resting[number] = not order.go.is_set()
            if not order.go.wait(0.05):
                continue
            step = engine.step()
            with order.counts.get_lock():
                order.counts[STEPS.index(step)] += 1
    except BaseException as error:
        order.wrong.put(f"client {number}: {type(error).__name__}: {error}")
    finally:
        order.resting[number] = True
        os._exit(0)  # no farewell: what it holds ends with its lease


class Fleet:
    """Servers, each with clients of its own, and a router's index that watches all of them."""

    def __init__(self, folder: Path, *, servers: int, clients: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.addresses = [f"unix:{folder}/{at}.sock" for at in range(servers)]
        self.order = Order(PROCESSES.Array("q", servers), PROCESSES.Array("b", clients))
        size = 4 * (NUM_SLOTS + 1) * NUM_LIVES
        self.memories = [SharedMemory(create=True, size=size) for _ in self.addresses]
        self.servers = [self._serve(address) for address in self.addresses]
        self.clients = [self._work(number) for number in range(clients)]
        self.asking = [Client(address, timeout_s=60.0) for address in self.addresses]
        self.index = PrefixIndex()
        self.watches = [self._watch(client) for client in self.asking]
        self.num_kills = self.num_cuts = self.num_pauses = 0

    def _serve(self, address: str) -> Any:
        ready = PROCESSES.Event()
        process = PROCESSES.Process(target=serve, args=(address, ready), daemon=True)
        process.start()
        assert ready.wait(60)
        return process

    def _work(self, number: int) -> Any:
        server = number % len(self.addresses)
        seed = self.rng.randrange(2**32)
        names = (self.addresses[server], self.memories[server].name)
        arguments = (number, server, *names, self.order, seed)
        process = PROCESSES.Process(target=work, args=arguments, daemon=True)
        process.start()
        return process

    def _watch(self, client: Client) -> Watch:
        watch = client.watch()
        self.index.add_worker(client.target)
        threading.Thread(target=self._mirror, args=(watch, client.target), daemon=True).start()
        return watch

    def _mirror(self, watch: Watch, worker: str) -> None:
        try:
            for update in watch:
                self.index.apply(worker, update)
        except BaseException as error:
            self.order.wrong.put(f"the watch of {worker}: {error!r}")

    # ---- what happens to it ----

    def run(self, seconds: float) -> None:
        """Let it work, with watches cut at random."""
        self.order.go.set()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.rng.uniform(0.0, 0.3))
            stream = self.rng.choice(self.watches)._stream
            if stream is not None:
                stream.cancel()
                self.num_cuts += 1

    def kill_a_server(self) -> None:
        """With -9, in the middle of its work; it is started again where it was."""
        at = self.rng.randrange(len(self.servers))
        self.servers[at].kill()
        self.servers[at].join()
        self.order.lives[at] += 1
        self.servers[at] = self._serve(self.addresses[at])
        self.num_kills += 1

    def kill_a_client(self) -> None:
        """With -9; another takes its place."""
        at = self.rng.randrange(len(self.clients))
        self.clients[at].kill()
        self.clients[at].join()
        self.clients[at] = self._work(at)

    def pause(self) -> None:
        """Nobody works: every server is whole, and the index has exactly what it has."""
        self.order.go.clear()
        wait_until(lambda: all(self.order.resting), "the clients rest")
        self.num_pauses += 1
        for client in self.asking:
            self._check(client)
        if not self.order.wrong.empty():
            raise AssertionError(self.order.wrong.get())

    def _check(self, client: Client) -> None:
        """While leases may still end, which changes nothing that is cached but the last one's."""
        assert client.check() == [], client.target

        def agrees() -> bool:
            before = client.stats()
            resident = dump(client)
            if client.stats().revision != before.revision:
                return False  # the last lease of a pool ended meanwhile
            place = self.index.position(client.target)
            if place != (before.epoch, before.revision):
                return False
            known = {(run.namespace, path) for run, path in paths(self.index.runs(client.target))}
            assert prefixes(known) == prefixes(resident), client.target
            return True

        wait_until(agrees, f"the index has all of {client.target}")

    def end(self) -> None:
        """The clients are gone without a word; when their leases have run out nothing is held."""
        self.order.go.clear()
        self.order.end.set()
        for process in self.clients[::2]:
            process.kill()
        for process in self.clients:
            process.join(60)

        def is_nothing_held(client: Client) -> bool:
            now = client.stats()
            held = (now.protected_size, now.allocated_slots, now.waiting_slots)
            return (*held, now.num_pins, now.num_leases) == (0, 0, 0, 0, 0)

        for client in self.asking:
            wait_until(partial(is_nothing_held, client), "leases run out")
            self._check(client)

    def close(self) -> None:
        """Whatever is left is killed."""
        for watch in self.watches:
            watch.close()
        for client in self.asking:
            client.close()
        for process in (*self.clients, *self.servers):
            process.kill()
            process.join()
        for memory in self.memories:
            memory.close()
            memory.unlink()

    def counts(self) -> dict[str, int]:
        """Steps that clients made."""
        return dict(zip(STEPS, self.order.counts, strict=True))


Path_ = tuple[int, ...]


def dump(client: Client) -> set[tuple[Namespace, Path_]]:
    """Every node of a server's tree as the prompt that it ends."""
    stub = client._channel.unary_stream(
        "/radixkv.v1.AdminService/DumpTree",
        request_serializer=DumpTreeRequest.SerializeToString,
        response_deserializer=DumpTreeResponse.FromString,
    )
    found = set()
    for salt in SALTS:
        namespace = Namespace(salt=salt)
        request = DumpTreeRequest(namespace=write_namespace(namespace), want_tokens=True)
        above: dict[int, Path_] = {0: ()}
        for node in (node for response in stub(request, timeout=60) for node in response.nodes):
            tokens = tuple(np.frombuffer(node.tokens, "<i4").tolist())
            above[node.node_id] = above[node.parent_id] + tokens
            found.add((namespace, above[node.node_id]))
    return found


def paths(runs: Runs) -> list[tuple[StoredRun, Path_]]:
    """Every run with the prompt that it ends."""

    def path(number: int, end: int) -> Path_:
        run = runs[number]
        above = path(run.parent_run, run.parent_offset) if run.parent_run else ()
        return above + tuple(run.codes[:end].tolist())

    return [(run, path(number, len(run.codes))) for number, run in runs.items()]


def prefixes(prompts: set[tuple[Namespace, Path_]]) -> set[tuple[Namespace, Path_]]:
    """Every token that is cached, as the prompt that it ends."""
    return {
        (namespace, prompt[:end])
        for namespace, prompt in prompts
        for end in range(1, len(prompt) + 1)
    }
