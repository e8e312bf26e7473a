"""`radixkv route`, in a process of its own, over servers here."""

import json
import os
import signal
import socket
import subprocess
import sys

import grpc
import pytest
from typer.testing import CliRunner

from radixkv.cli import app
from radixkv.service import CacheServer, Client, InsertCall, RouterClient, Text
from radixkv.v1 import router_pb2
from radixkv.v1.router_pb2_grpc import RouterServiceStub
from tests.support.followers import Worker
from tests.support.router import packed, pick
from tests.support.tiny_model import ids, save_tiny_tokenizer
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


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_tiny_tokenizer(folder)
    return folder


def test_lists_of_servers_are_followed_and_prompts_may_be_text(
    workers, servers, start, tmp_path, model
):
    workers[0].hold(ids("hello there"))
    file = tmp_path / "workers"
    file.write_text(f"b={servers[1].address}\n")
    process = start(
        "--workers-dns", servers[0].address, "--workers-file", str(file), "--look-every", "0.1",
        "--model", str(model), "--json",
    )  # fmt: skip
    told = json.loads(process.stdout.readline())
    first = servers[0].address
    assert told["workers"] == {"b": servers[1].address, first: first}
    with RouterClient(told["listening"], timeout_s=30) as client:
        wait_until(lambda: [w.state for w in client.workers()] == ["current", "current"])
        pick = client.pick(Text("hello world"))
        assert (pick.worker, pick.matched_length, pick.prompt_length) == (first, 6, 11)
        file.write_text("")
        wait_until(lambda: [w.worker for w in client.workers()] == [first])
        client.remove_worker(first)
        assert client.workers() == []


def test_an_engine_is_followed_by_the_events_that_it_publishes(start, free_ports):
    """Of our own cache, which publishes as SGLang does; its gRPC server is not used."""
    pytest.importorskip("zmq")
    live, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    cache = subprocess.Popen(
        [sys.executable, "-m", "radixkv", "serve", "--slots", "256", "--listen", "127.0.0.1:0",
         "--kv-events", live, "--kv-events-replay", replay, "--kv-block-size", "4"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        address = cache.stderr.readline().split()[3].rstrip(",")
        with Client(address) as engine, engine.lease(pool_id="p") as lease:
            store(lease, [1, 2, 3, 4, 5, 6, 7, 8])
            process = start(
                "--events", f"engine={live},{replay}", "--events-block-size", "4", "--json"
            )
            told = json.loads(process.stdout.readline())
            assert told["workers"] == {"engine": live}
            with RouterClient(told["listening"], timeout_s=30) as client:
                wait_until(lambda: client.lookup([1, 2, 3, 4, 5, 6, 7, 8, 9]) == {"engine": 8})
                store(lease, [1, 2, 9, 9])  # begins as another block does
                wait_until(lambda: client.lookup([1, 2, 9, 9]) == {"engine": 4})
                assert client.pick([1, 2, 3, 4, 5]).worker == "engine"
                assert [w.state for w in client.workers()] == ["current"]
                cache.kill()
                wait_until(lambda: not client.workers()[0].is_here)
    finally:
        cache.kill()
        cache.communicate()


def store(lease, token_ids):
    slots = lease.allocate(len(token_ids)).slots
    lease.insert(InsertCall(token_ids, slots))


@pytest.fixture
def free_ports():
    def ports(number):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
        found = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        return found

    return ports


WRONG = {
    "no worker": ((), "a server must be named: --worker NAME=ADDRESS"),
    "no name": (
        ("--worker", "=127.0.0.1:1"),
        "NAME=ADDRESS or ADDRESS; got '=127.0.0.1:1'",
    ),
    "no address": (("--worker", "a="), "must be NAME=ADDRESS or ADDRESS; got 'a='"),
    "twice": (("--worker", "a=x:1", "--worker", "a=y:1"), "got 'a' twice"),
    "events without a name": (("--events", "tcp://x:1"), "--events must be NAME=tcp://HOST:PORT"),
    "no endpoint": (("--events", "a=x:1"), "got a=x:1"),
    "a DNS name without a port": (("--workers-dns", "pods"), "must be HOST:PORT; got 'pods'"),
    "no model": (("--worker", "a=x:1", "--model", "/nowhere"), "a folder with a tokenizer.json"),
    "no such engine": (
        ("--worker", "a=x:1", "--model", "{model}", "--engine", "x"),
        "one of sglang, vllm",
    ),
    "policy": (("--worker", "a=x:1", "--policy", "nearest"), "must be one of cache-aware"),
    "address": (("--worker", "a=x:1", "--listen", "nowhere"), "host:port or unix:path"),
    "open": (("--worker", "a=x:1", "--listen", "0.0.0.0:0"), "(--tls-cert FILE --tls-key FILE"),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG)
def test_what_it_cannot_do_is_told_in_one_line(arguments, says, model):
    arguments = [each.replace("{model}", str(model)) for each in arguments]
    done = CliRunner().invoke(app, ["route", *arguments])
    assert done.exit_code in (1, 2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
