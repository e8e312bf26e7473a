"""`radixkv serve` without a model: a cache for engines in other processes, as operators run it."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv import errors
from radixkv.service import Client, InsertCall

SERVING = health_pb2.HealthCheckResponse.SERVING


SIGNAL_IN_ANOTHER_THREAD = """
import signal, threading
from radixkv.cli.server_options import signalled

def kill():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

with signalled() as wait:
    threading.Timer(0.5, kill).start()
    wait()
"""


def test_a_signal_that_the_kernel_hands_to_another_thread_is_answered():
    """As it does where a stopped server is asked to end, and then goes on."""
    subprocess.run([sys.executable, "-c", SIGNAL_IN_ANOTHER_THREAD], check=True, timeout=30)


def fill(client: Client, tokens: list[int]):
    lease = client.lease(60, pool_id="p")
    lease.insert(InsertCall(tokens, lease.allocate(len(tokens)).slots))
    return lease


def test_an_engine_elsewhere_uses_it(serve, tmp_path):
    served = serve("--slots", "100", "--page-size", "1", "--listen", f"unix:{tmp_path}/run/x.sock")
    with Client(served.address, timeout_s=60) as client:
        info = client.server_info()
        assert (info.num_slots, info.pool_id) == (100, "")
        with fill(client, [1, 2, 3]):
            assert client.match([1, 2, 3, 4]).lengths == [3]
            assert client.server_info().pool_id == "p"
        assert client.match([1, 2, 3]).lengths == [0]
    assert served.end() == (
        0, "radixkv: cache cleared, pool 'p' with 3 tokens is gone: its last lease ended, of ''\n"
    )  # fmt: skip


def test_sigterm_drains(serve):
    """Balancers look away first; watches get where to resume; then it ends with 0."""
    served = serve("--drain-delay", "0.4")
    with Client(served.address, timeout_s=60) as client:
        lease = fill(client, [1, 2])
        health = health_pb2_grpc.HealthStub(client._channel)
        states = health.Watch(health_pb2.HealthCheckRequest(service="radixkv.v1.WatchService"))
        assert next(states).status == SERVING
        watch = client.watch()
        assert next(watch).revision == 1
        served.process.send_signal(signal.SIGTERM)
        assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert client.match([1, 2]).lengths == [2], "still served while balancers look away"
        with pytest.raises(grpc.RpcError) as cut:
            next(watch._stream)
        assert cut.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "resume after revision 1" in cut.value.details()
        states.cancel()
        watch.close()
        lease._closed.set()
    out, err = served.process.communicate(timeout=60)
    assert (served.process.returncode, out, err) == (0, "", "")


def test_a_second_signal_ends_it_at_once(serve):
    served = serve("--drain-delay", "100")
    with Client(served.address, timeout_s=60) as client:
        health = health_pb2_grpc.HealthStub(client._channel)
        states = health.Watch(health_pb2.HealthCheckRequest())
        next(states)
        served.process.send_signal(signal.SIGTERM)
        next(states)
        states.cancel()
        assert served.end()[0] == -signal.SIGTERM


def test_a_restart_is_another_epoch_and_watches_go_on(serve):
    first = serve()
    where = first.address
    with Client(where, timeout_s=60) as client, client.watch() as watch:
        lease = fill(client, [1, 2, 3])
        before = next(watch)
        first.process.kill()
        first.process.communicate()
        serve("--listen", where)
        after = next(update for update in watch if update.is_start)
        assert after.epoch != before.epoch
        assert after.events == ()
        assert client.match([1, 2, 3]).lengths == [0]
        with pytest.raises((errors.EpochMismatchError, errors.LeaseExpiredError)):
            lease.pin([1])
        lease.close()


def test_failed_calls_are_lines_of_json(serve, tmp_path):
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[[token]]\nname = "me"\nrole = "data"\ntoken = "my-secret"\n')
    served = serve("--log-json", "--tokens", str(tokens))
    with Client(served.address, timeout_s=60, token="my-secret") as client:
        client.match([1])
        with pytest.raises(errors.ForbiddenError):
            client.evict(1)
    code, err = served.end()
    (line,) = map(json.loads, err.splitlines())
    assert code == 0
    assert (
        line.items()
        >= {
            "level": "INFO",
            "method": "/radixkv.v1.PrefixCacheService/EvictPrefixes",
            "code": "PERMISSION_DENIED",
            "reason": "FORBIDDEN",
            "caller": "me",
        }.items()
    )
    assert line["ms"] > 0
    assert "my-secret" not in err


def test_figures_on_a_port_of_their_own(serve, tmp_path):
    tenants = tmp_path / "tenants.toml"
    tenants.write_text('blue = "salt"\n')
    served = serve("--metrics", "127.0.0.1:0", "--tenants", str(tenants))
    where = served.said("metrics")
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=30) as page:
        assert b"radixkv_free_slots" in page.read()
    assert served.end() == (0, "")


def test_without_leave_it_listens_to_this_machine_alone(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "radixkv", "serve", "--listen", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "open to the network" in done.stderr


def test_watch_and_top_end_with_ctrl_c(serve):
    served = serve()
    with Client(served.address, timeout_s=60) as client, fill(client, [1, 2, 3]):
        for command in (["watch", "--target"], ["top", "--every", "0.1"]):
            process = subprocess.Popen(
                [sys.executable, "-m", "radixkv", *command, served.address, "--json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            json.loads(process.stdout.readline())
            timer = threading.Timer(0.05, process.send_signal, [signal.SIGINT])
            timer.start()
            _, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, "")


def test_sighup_reads_the_tokens_again_and_ends_nothing(serve, tmp_path):
    file = tmp_path / "tokens.toml"
    entry = '[[token]]\nname = "x"\nrole = "data"\ntoken = "{}"\n'
    file.write_text(entry.format("old"))
    served = serve("--slots", "100", "--tokens", str(file))
    with (
        Client(served.address, token="old", timeout_s=60) as old,
        Client(served.address, token="new", timeout_s=60) as new,
    ):
        old.match([1])
        file.write_text(entry.format("new"))
        served.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 30
        while True:
            try:
                new.match([1])
                break
            except errors.UnauthenticatedError:
                assert time.monotonic() < end
        with pytest.raises(errors.UnauthenticatedError):
            old.match([1])
    assert served.end() == (0, "")
