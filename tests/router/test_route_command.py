"""`radixkv route`, in a process of its own, over servers here."""

import json
import os
import signal
import subprocess
import sys

import grpc
import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.service import CacheServer
from radixkv.v1 import router_pb2
from radixkv.v1.router_pb2_grpc import RouterServiceStub
from tests.support.followers import Worker
from tests.support.router import packed, pick
from tests.support.waiting import wait_until


@pytest.fixture
def workers():
    return Worker("a"), Worker("b")


@pytest.fixture
def servers(workers, tmp_path):
    addresses = "127.0.0.1:0", f"unix:{tmp_path}/b.sock"
    servers = [
        CacheServer(worker.cache, address).start()
        for worker, address in zip(workers, addresses, strict=True)
    ]
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def start():
    """Starts `radixkv route` with these arguments."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "radixkv", "route", "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_routes_until_it_is_told_to_stop(workers, servers, start, number):
    workers[0].hold([1, 2, 3])
    workers[1].hold([4, 5, 6])
    process = start("--worker", f"a={servers[0].address}", "--worker", servers[1].address, "--json")
    told = json.loads(process.stdout.readline())
    assert told["policy"] == "cache-aware"
    assert told["workers"] == {"a": servers[0].address, servers[1].address: servers[1].address}
    with grpc.insecure_channel(told["listening"]) as channel:
        stub = RouterServiceStub(channel)

        def states():
            return [w.state for w in stub.ListWorkers(router_pb2.ListWorkersRequest()).workers]

        wait_until(lambda: states() == ["current", "current"])
        places = [p.worker for p in pick(stub, packed(1, 2), packed(4, 5))]
        assert places == ["a", servers[1].address]
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_it_starts_before_its_workers_do(workers, start, tmp_path):
    address = f"unix:{tmp_path}/later.sock"
    process = start("--worker", f"a={address}", "--policy", "least-load")
    never, line = sorted(process.stderr.readline() for _ in range(2))[::-1]
    assert never == (
        "radixkv: worker a: never reached so far; trying again: "
        f"no server answers at {address}: no such socket\n"
    )
    assert line.startswith("radixkv: listening on 127.0.0.1:")
    assert line.endswith(f", least-load to a ({address})\n")
    where = line.split()[3].rstrip(",")
    with grpc.insecure_channel(where) as channel:
        stub = RouterServiceStub(channel)

        def state():
            (worker,) = stub.ListWorkers(router_pb2.ListWorkersRequest()).workers
            return worker

        wait_until(lambda: state().last_error)
        assert state().state == "waiting"
        with CacheServer(workers[0].cache, address):
            workers[0].hold([1, 2, 3])
            wait_until(lambda: state().state == "current" and state().num_tokens == 3)
            assert state().last_error == ""


WRONG = {
    "no worker": ((), "--worker must be given"),
    "no name": (
        ("--worker", "=127.0.0.1:1"),
        "NAME=ADDRESS or ADDRESS; got '=127.0.0.1:1'",
    ),
    "no address": (("--worker", "a="), "must be NAME=ADDRESS or ADDRESS; got 'a='"),
    "twice": (("--worker", "a=x:1", "--worker", "a=y:1"), "got 'a' twice"),
    "policy": (("--worker", "a=x:1", "--policy", "nearest"), "must be one of cache-aware"),
    "address": (("--worker", "a=x:1", "--listen", "nowhere"), "host:port or unix:path"),
    "open": (("--worker", "a=x:1", "--listen", "0.0.0.0:0"), "(--tls-cert FILE --tls-key FILE"),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG)
def test_what_it_cannot_do_is_told_in_one_line(arguments, says):
    done = CliRunner().invoke(app, ["route", *arguments])
    assert done.exit_code in (1, 2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
