"""A change that fails with an error that is not ours: sound caches go on, others are not served."""

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv import PrefixCache, errors
from radixkv.service import CacheServer, InsertCall
from tests.support.service import connect
from tests.support.waiting import wait_until


@pytest.fixture
def cache():
    return PrefixCache(64)


@pytest.fixture
def server(cache):
    with CacheServer(cache, "127.0.0.1:0", alone=True) as server:
        yield server


def fails_with(error, *, breaks):
    def store(self, borrower, inserts, namespace, **_):
        if breaks:
            self.borrower_of[inserts[0].slots[0]] = 0
        raise error

    return store


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a bug")], ids=["memory", "bug"])
def test_service_is_refused_where_a_failed_change_broke_the_cache(
    server, cache, monkeypatch, breaks, error
):
    with connect(server.address) as client, client.lease(60, pool_id="p") as lease:
        slots = lease.allocate(3).slots
        with monkeypatch.context() as patch:
            patch.setattr(type(cache.loans), "store", fails_with(error, breaks=breaks))
            with pytest.raises(errors.ServiceError, match="internal error"):
                lease.insert(InsertCall([1, 2, 3], slots))
        if not breaks:
            lease.insert(InsertCall([1, 2, 3], slots))
            assert client.match([1, 2, 3]).lengths == [3]
            return
        with pytest.raises(errors.CacheCorruptedError):
            client.match([1, 2, 3])
        assert client.check(timeout_s=60)[0] == f"a call failed with {error!r}"
        wait_until(lambda: _status(server) == health_pb2.HealthCheckResponse.NOT_SERVING)


def _status(server):
    import grpc

    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return stub.Check(health_pb2.HealthCheckRequest(), timeout=60).status


def test_a_cache_that_refuses_its_calls_is_not_serving(server, cache):
    cache.transactions.refuse("memory ran out")
    with connect(server.address) as client:
        with pytest.raises(errors.CacheCorruptedError):
            client.match([1, 2, 3])
        assert client.check(timeout_s=60) == ["memory ran out"]
    wait_until(lambda: _status(server) == health_pb2.HealthCheckResponse.NOT_SERVING)
