"""Real servers at work, watches cut at random, one killed: at each pause the index agrees."""

import json
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from radixkv.router import Router
from radixkv.service import Client
from tests.support.waiting import wait_until

ENGINE = Path(__file__).parent / "engine.py"
ROOT = Path(__file__).parents[2]


class Server:
    """A worker's process; it may be killed and started again at its address."""

    def __init__(self, address: str, seed: int) -> None:
        self.address, self._seed = address, seed
        self.start()

    def start(self) -> None:
        self._seed += 1
        self._process = subprocess.Popen(
            [sys.executable, str(ENGINE), self.address, str(self._seed)],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.is_up = False

    def wait_until_up(self) -> None:
        if not self.is_up:
            assert self._read() == "up\n"
            self.is_up = True

    def work(self, calls: int) -> None:
        """Asks for so many calls; `reported` waits for them."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"work {calls}\n")
        self._process.stdin.flush()

    def reported(self):
        return json.loads(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Proxy:
    """Passes TCP connections on to a unix socket, until it cuts them all in the middle."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            self._ends += (near, far)
            try:
                far.connect(self._path)
            except OSError:
                _cut(near)
                continue
            for pair in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=_pass_on, args=pair))
                self._threads[-1].start()

    def cut(self) -> None:
        _cut(*self._ends)

    def close(self) -> None:
        _cut(self._listener)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
    except OSError:
        pass
    _cut(source, target)


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def servers(tmp_path):
    servers = [Server(f"unix:{tmp_path}/{at}.sock", 100 * at) for at in range(4)]
    for server in servers:
        server.wait_until_up()
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def proxies(servers):
    proxies = [Proxy(server.address.removeprefix("unix:")) for server in servers]
    yield proxies
    for proxy in proxies:
        proxy.close()


def until_agreed(router, worker, reported) -> None:
    wait_until(lambda: router.index.position(worker) == tuple(reported["position"]), worker)
    held = {
        str(number): [run.parent_run, run.parent_offset, run.codes.tolist(), repr(run.namespace)]
        for number, run in router.index.runs(worker).items()
    }
    assert held == reported["runs"]


def test_at_each_pause_the_index_equals_every_servers_resident_set(servers, proxies):
    rng = random.Random(2026)
    clients = [Client(proxy.address) for proxy in proxies]
    with Router() as router:
        for at, client in enumerate(clients):
            router.add_worker(str(at), lambda after, client=client: client.watch(after=after))
        for pause in range(8):
            for server in servers:
                server.work(400)
            for _ in range(6):
                time.sleep(rng.uniform(0.0, 0.05))
                rng.choice(proxies).cut()
                if rng.random() < 0.3:
                    router._feeders[str(rng.randrange(4))]._stream.close()
            for at, server in enumerate(servers):
                until_agreed(router, str(at), server.reported())
            assert router.index.check_integrity() == []
            assert all(status.view.num_unknown == 0 for status in router.workers())
            if pause % 3 == 1:
                killed = servers[pause % 4]
                killed.kill()
                killed.start()
                killed.wait_until_up()
        held = router.index.total_size
        assert 0 < held < sum(status.view.num_tokens for status in router.workers())
        for at in range(4):
            router.remove_worker(str(at))
        assert router.index.total_size == 0
    for client in clients:
        client.close()
