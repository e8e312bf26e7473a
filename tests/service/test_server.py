"""Where a server listens, how it starts and stops, and what it tells tools."""

import os
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from radixkv import PrefixCache, errors
from radixkv.rpc.address import is_local
from radixkv.service import CacheServer
from tests.support.service import SlowCache, connect, hold

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class SlowToForget(PrefixCache):  # type: ignore[misc]
    """A cache that waits, as it is reset, until it is let go."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.is_inside, self.go = threading.Event(), threading.Event()

    def reset(self, force: bool = False) -> None:
        self.is_inside.set()
        assert self.go.wait(timeout=60)
        super().reset(force)


def test_health_answers_while_a_small_call_has_much_to_do():
    """Another pool is named: all of a large cache is forgotten."""
    cache = SlowToForget(64)
    with (
        CacheServer(cache, "127.0.0.1:0", alone=True) as server,
        connect(server.address) as client,
        grpc.insecure_channel(server.address) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        client.lease(60, pool_id="p")
        other = pool.submit(client.lease, 60, pool_id="q", replaces_pool=True)
        assert cache.is_inside.wait(timeout=60)
        health = health_pb2_grpc.HealthStub(channel)
        try:
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        finally:
            cache.go.set()
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert other.result().pool_id == "q"


def test_a_port_of_0_is_filled_in(cache):
    with CacheServer(cache, "127.0.0.1:0") as server:
        host, port = server.address.split(":")
        assert host == "127.0.0.1"
        assert int(port) > 0


def test_ipv6_loopback(cache):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with CacheServer(cache, "[::1]:0") as server, connect(server.address) as client:
        assert client.match([1]).lengths == [0]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("0.0.0.0:0", "open to the network"),
        ("[::]:0", "open to the network"),
        ("example.com:80", "open to the network"),
        ("localhost", "host:port or unix:path"),
        ("127.0.0.1:http", "host:port or unix:path"),
        (":0", "host:port or unix:path"),
        ("127.0.0.1:70000", "host:port or unix:path"),
        ("127.0.0.2.3:80", "open to the network"),
        ("unix:/dev/null", "taken"),
        ("unix:/dev/null/folder/cache.sock", "Not a directory"),
        (f"unix:/tmp/{'x' * 200}", "taken, or not an address"),
    ],
)
def test_where_it_cannot_listen(cache, address, says):
    with pytest.raises(errors.ListenError, match=says) as caught, CacheServer(cache, address):
        pass
    assert caught.value.details["address"] == address


def test_a_server_that_could_not_start_may_be_stopped_and_started(cache, server):
    other = CacheServer(cache, server.address)
    with pytest.raises(errors.ListenError, match="taken"):
        other.start()
    other.stop()
    server.stop()
    with other, connect(other.address) as client:
        assert client.match([1]).lengths == [0]


def test_a_taken_address_is_not_shared(cache, server, client):
    hold(cache, [1, 2])
    with pytest.raises(errors.ListenError, match="taken"):
        CacheServer(PrefixCache(4), server.address).start()
    assert client.match([1, 2]).lengths == [2]


def test_an_open_address_takes_leave_and_has_no_reflection(cache):
    with CacheServer(cache, "0.0.0.0:0", insecure=True) as server:
        port = server.address.rpartition(":")[2]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.RpcError) as refused:
                services_by_reflection(channel, "grpc.reflection.v1alpha.ServerReflection")
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with connect(f"127.0.0.1:{port}") as client:
            assert client.match([1]).lengths == [0]


def test_local_addresses():
    local = ["127.0.0.1:1", "127.8.0.1:1", "localhost:1", "[::1]:1", "unix:/x", "unix:x"]
    open_ones = ["0.0.0.0:1", "10.0.0.1:1", "[::]:1", "example.com:1", "1", ""]
    assert [is_local(address) for address in local] == [True] * 6
    assert [is_local(address) for address in open_ones] == [False] * 6


def test_a_unix_socket_is_its_users_own(cache, tmp_path):
    path = tmp_path / "deep" / "run" / "cache.sock"
    with CacheServer(cache, f"unix:{path}"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_socket_left_behind_is_taken_over(cache, tmp_path):
    path = tmp_path / "cache.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    with CacheServer(cache, f"unix:{path}") as server, connect(server.address) as client:
        assert client.match([1]).lengths == [0]


def test_two_servers_of_one_cache(cache, tmp_path, caplog):
    hold(cache, [1, 2])
    with (
        CacheServer(cache, "127.0.0.1:0") as one,
        CacheServer(cache, f"unix:{tmp_path}/cache.sock") as other,
    ):
        for _ in range(20):
            for server in (one, other):
                with connect(server.address) as client:
                    assert client.match([1, 2]).lengths == [2]
    assert caplog.text == ""


def test_stop_is_idempotent_and_final(cache, address):
    server = CacheServer(cache, address)
    server.stop()
    server.start()
    with pytest.raises(errors.ServiceError, match="started before"):
        server.start()
    server.stop()
    server.stop()
    with connect(server.address) as client, pytest.raises(errors.ServiceUnavailableError):
        client.match([1])


def test_stopping_lets_a_call_under_way_finish():
    cache = SlowCache(8)
    with (
        CacheServer(cache, "127.0.0.1:0") as server,
        connect(server.address) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        health = health_pb2_grpc.HealthStub(client._channel)
        states = health.Watch(
            health_pb2.HealthCheckRequest(service="radixkv.v1.PrefixCacheService")
        )
        assert next(states).status == SERVING
        call = pool.submit(client.match, [1, 2])
        assert cache.is_inside.wait(timeout=60)
        stopping = pool.submit(server.stop, 60)
        assert next(states).status == NOT_SERVING
        states.cancel()
        assert not stopping.done()
        cache.go.set()
        assert call.result().lengths == [0]
        stopping.result()


def test_a_grace_of_0_cuts_calls_off():
    cache = SlowCache(8)
    with (
        CacheServer(cache, "127.0.0.1:0") as server,
        connect(server.address) as client,
        ThreadPoolExecutor(2) as pool,
    ):
        call = pool.submit(client.match, [1, 2])
        assert cache.is_inside.wait(timeout=60)
        stopping = pool.submit(server.stop, 0)
        with pytest.raises(errors.ServiceError):
            call.result()
        cache.go.set()
        stopping.result()


def services_by_reflection(channel, name: str) -> set[str]:
    method = channel.stream_stream(
        f"/{name}/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (response,) = method(iter([request]), timeout=10)
    return {service.name for service in response.list_services_response.service}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(channel, version):
    assert services_by_reflection(channel, f"grpc.reflection.{version}.ServerReflection") >= {
        "radixkv.v1.PrefixCacheService",
        "radixkv.v1.InfoService",
        "grpc.health.v1.Health",
    }


def test_health_of_what_is_not_there(channel):
    with pytest.raises(grpc.RpcError) as refused:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="x"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_an_abandoned_server_does_not_keep_the_process(tmp_path):
    import subprocess
    import sys

    script = (
        "from radixkv import PrefixCache; from radixkv.service import CacheServer\n"
        "CacheServer(PrefixCache(4), '127.0.0.1:0').start(); print('up')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert (done.returncode, done.stdout) == (0, "up\n"), done.stderr


@pytest.mark.parametrize("path", ["/" + "b" * 300, "/a/\udcff.sock", "/a/a\0b"])
def test_socket_paths_that_cannot_be(cache, path):
    with pytest.raises(errors.ListenError, match="cannot listen on"):
        CacheServer(cache, f"unix:{path}").start()
