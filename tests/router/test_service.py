"""RouterService over real sockets, as a gateway in another language would ask it."""

import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from radixkv import Namespace, errors
from radixkv.router import ConsistentHashing, Router
from radixkv.router.server import RouterServer
from radixkv.rpc import codec
from radixkv.service import CacheServer, Client
from radixkv.v1 import router_pb2
from radixkv.v1.router_pb2_grpc import RouterServiceStub
from radixkv.v1.types_pb2 import ContentSpan, TokenSequence
from tests.support.followers import Worker, catch_up, is_current
from tests.support.router import DEADLINE_S, packed, pick, refusal
from tests.support.waiting import wait_until


@pytest.fixture
def router():
    with Router() as router:
        for name in "ab":
            router.add_worker(name, address=f"unix:/{name}")
        yield router


@pytest.fixture(params=["tcp", "unix"])
def server(router, request, tmp_path):
    address = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/run/router.sock"
    with RouterServer(router, address) as server:
        yield server


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return RouterServiceStub(channel)


@pytest.fixture
def filled(router):
    workers = Worker("a"), Worker("b")
    workers[0].hold([1, 2, 3, 4])
    workers[1].hold([1, 2], Namespace())
    workers[1].hold([7, 8, 9], Namespace(salt="x"))
    for worker in workers:
        catch_up(router.index, worker)
    return workers


def test_pick(stub, filled):
    first, second = pick(stub, packed(1, 2, 3, 9), TokenSequence(ids=[5]))
    assert (first.worker, first.matched_length, first.best_length) == ("a", 3, 3)
    assert first.reason == "longest match"
    assert (second.matched_length, second.reason) == (0, "no cached prefix")
    assert second.pick_id != first.pick_id > 0


def test_pick_in_a_namespace(stub, filled):
    (found,) = pick(stub, packed(7, 8, 9), namespace=codec.write_namespace(Namespace(salt="x")))
    assert (found.worker, found.matched_length) == ("b", 3)
    assert pick(stub, packed(7, 8, 9))[0].best_length == 0


def test_pick_with_loads_of_the_callers(stub, filled):
    loads = [router_pb2.WorkerLoad(worker="a", load=60), router_pb2.WorkerLoad(worker="b")]
    assert pick(stub, packed(1, 2, 3), loads=loads)[0].worker == "b"
    alone = [router_pb2.WorkerLoad(worker="b", load=60)]
    assert pick(stub, packed(1, 2, 3), loads=alone)[0].worker == "b"
    even = [router_pb2.WorkerLoad(worker="a"), router_pb2.WorkerLoad(worker="b")]
    placed = [p.worker for p in pick(stub, *[packed(n) for n in (70, 71, 72, 73)], loads=even)]
    assert sorted(placed) == ["a", "a", "b", "b"], "each adds to the load of its worker"


def test_keys_go_with_sequences(server, router, stub, monkeypatch):
    monkeypatch.setattr(router, "policy", ConsistentHashing())
    where = {}
    for _ in range(3):
        for key in ("one", "two", "three", "four"):
            (found,) = pick(stub, packed(int.from_bytes(key.encode(), "big") % 999), keys=[key])
            assert where.setdefault(key, found.worker) == found.worker
            stub.Pick(router_pb2.PickRequest(finished_pick_ids=[found.pick_id]))
    assert set(where.values()) == {"a", "b"}


def test_finished_picks_are_load_no_longer(router, stub):
    picks = pick(stub, packed(1), packed(2), packed(3), cost=2)
    assert sum(status.load for status in router.workers()) == 6
    done = [p.pick_id for p in picks[:2]]
    assert list(stub.Pick(router_pb2.PickRequest(finished_pick_ids=[*done, *done, 99])).picks) == []
    assert sum(status.load for status in router.workers()) == 2
    pick(stub, packed(4), finished_pick_ids=[picks[2].pick_id])
    assert sum(status.load for status in router.workers()) == 1


def test_lookup(stub, filled):
    def lookup(sequence, **how):
        request = router_pb2.LookupRequest(sequence=sequence, **how)
        return [(m.worker, m.matched_length) for m in stub.Lookup(request).matches]

    assert lookup(packed(1, 2, 3)) == [("a", 3), ("b", 2)]
    assert lookup(packed(8)) == []
    spans = [ContentSpan(start=1, length=2, id=b"cat")]
    assert lookup(TokenSequence(ids=[1, 2, 3], content=spans)) == [("a", 1), ("b", 1)]


def test_list_workers(stub, router, filled):
    answer = stub.ListWorkers(router_pb2.ListWorkersRequest())
    assert (answer.policy, answer.distinct_tokens) == ("cache-aware", 7)
    a, b = answer.workers
    log = filled[0].cache.events
    assert (a.worker, a.address, a.num_tokens, a.state) == ("a", "unix:/a", 4, "current")
    assert (a.applied.epoch, a.applied.revision) == (log.epoch, log.revision)
    assert (a.is_here, a.trust, a.load, a.last_error, b.num_tokens) == (True, 1, 0, "", 5)
    router.index.lose("b")
    b = stub.ListWorkers(router_pb2.ListWorkersRequest()).workers[1]
    assert (b.state, b.trust) == ("behind", 0.5)


REFUSALS = {
    "no sequences": (router_pb2.PickRequest(), "INVALID_ARGUMENT", "sequences"),
    "no tokens": (
        router_pb2.PickRequest(sequences=[packed(1), packed()]), "INVALID_TOKENS", "sequences[1]",
    ),
    "a negative id": (
        router_pb2.PickRequest(sequences=[packed(1, -2)]), "INVALID_TOKENS", "sequences[0]",
    ),
    "both encodings": (
        router_pb2.PickRequest(sequences=[TokenSequence(packed=b"1234", ids=[1])]),
        "INVALID_TOKENS", "sequences[0]",
    ),
    "too many": (
        router_pb2.PickRequest(sequences=[packed(1)] * 1025), "BATCH_TOO_LARGE", "sequences",
    ),
    "keys without sequences": (
        router_pb2.PickRequest(sequences=[packed(1)], keys=["a", "b"]), "INVALID_ARGUMENT", "keys",
    ),
    "a worker twice": (
        router_pb2.PickRequest(
            sequences=[packed(1)], loads=[router_pb2.WorkerLoad(worker="a")] * 2
        ),
        "INVALID_ARGUMENT", "loads",
    ),
    "an unknown worker": (
        router_pb2.PickRequest(sequences=[packed(1)], loads=[router_pb2.WorkerLoad(worker="z")]),
        "INVALID_ARGUMENT", None,
    ),
    "a negative load": (
        router_pb2.PickRequest(
            sequences=[packed(1)], loads=[router_pb2.WorkerLoad(worker="a", load=-1)]
        ),
        "INVALID_ARGUMENT", None,
    ),
    "a cost that is none": (
        router_pb2.PickRequest(sequences=[packed(1)], cost=-1), "INVALID_ARGUMENT", None,
    ),
    "a cost whose sum is infinite": (
        router_pb2.PickRequest(sequences=[packed(1)] * 2, cost=1e308), "INVALID_ARGUMENT", None,
    ),
    "too many that are finished": (
        router_pb2.PickRequest(sequences=[packed(1)], finished_pick_ids=[1] * 4097),
        "BATCH_TOO_LARGE", "finished_pick_ids",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "reason", "field"), REFUSALS.values(), ids=REFUSALS)
def test_what_can_never_work_is_refused_and_places_nothing(router, stub, request_, reason, field):
    code, given, metadata = refusal(lambda: stub.Pick(request_))
    assert (code, given) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert metadata.get("field") == field
    assert sum(status.load for status in router.workers()) == 0


def test_the_largest_load_is_one_for_a_batch_too(router, stub):
    loads = [router_pb2.WorkerLoad(worker="a", load=1e12)]
    assert len(pick(stub, packed(1), packed(2), loads=loads)) == 2


def test_no_worker_is_tried_again_later(router, stub):
    for name in "ab":
        router.remove_worker(name)
    code, reason, _ = refusal(lambda: pick(stub, packed(1)))
    assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "NO_WORKERS")


def test_garbage_and_what_is_not_served(channel):
    call = channel.unary_unary("/radixkv.v1.RouterService/Pick")
    assert refusal(lambda: call(b"\xff" * 50))[1] == "INVALID_ARGUMENT"
    other = channel.unary_unary("/radixkv.v1.InfoService/GetStats")
    assert refusal(lambda: other(b""))[1] == "UNSUPPORTED"


def test_health_and_reflection(channel, server):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "radixkv.v1.RouterService"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    listing = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=DEADLINE_S)
    names = {service.name for service in next(listing).list_services_response.service}
    assert "radixkv.v1.RouterService" in names


def test_it_listens_where_it_may(router):
    with pytest.raises(errors.ListenError, match="open to the network"):
        RouterServer(router, "0.0.0.0:0")
    server = RouterServer(router, "127.0.0.1:0")
    with server, pytest.raises(errors.ListenError, match="taken"):
        RouterServer(router, server.address).start()
    server.stop()
    with pytest.raises(errors.ServiceError, match="started before"):
        server.start()


def test_a_router_over_real_servers():
    """Caches that work, their servers, a router that watches them, and who asks it."""
    workers = [Worker(name) for name in "ab"]
    with Router() as router, RouterServer(router, "127.0.0.1:0") as front:
        servers = [CacheServer(worker.cache, "127.0.0.1:0").start() for worker in workers]
        clients = [Client(server.address) for server in servers]
        for worker, client in zip(workers, clients, strict=True):
            router.follow(worker.name, client)
        with grpc.insecure_channel(front.address) as channel:
            stub = RouterServiceStub(channel)
            workers[0].hold([1, 2, 3])
            workers[1].hold([4, 5, 6])
            for worker in workers:
                wait_until(lambda worker=worker: is_current(router, worker))
            assert [p.worker for p in pick(stub, packed(1, 2), packed(4, 5))] == ["a", "b"]
            servers[1].stop()
            clients[1].close()
            wait_until(lambda: not router.workers()[1].is_here)
            assert {p.worker for p in pick(stub, packed(4, 5), packed(9))} == {"a"}
        router.close()
        for client in clients:
            client.close()
        servers[0].stop()


class SlowClient:
    """A real client whose watch hands on nothing while `may_go` is clear."""

    def __init__(self, client):
        self.client, self.may_go = client, threading.Event()
        self.may_go.set()

    def server_info(self, **how):
        return self.client.server_info(**how)

    def watch(self, *, after):
        return SlowStream(self.client.watch(after=after), self.may_go)


class SlowStream:
    def __init__(self, stream, may_go):
        self.stream, self.may_go = stream, may_go

    def __iter__(self):
        for update in self.stream:
            self.may_go.wait()
            yield update

    def close(self):
        self.stream.close()


def test_a_watch_that_lags_is_shown_and_weighed():
    """Its worker is asked where it is by another way than the watch."""
    worker = Worker("a", num_slots=1_024)
    with (
        Router(probe_every_s=0.02) as router,
        RouterServer(router, "127.0.0.1:0") as front,
        CacheServer(worker.cache, "127.0.0.1:0") as server,
        Client(server.address) as client,
        grpc.insecure_channel(front.address) as channel,
    ):
        slow = SlowClient(client)
        router.follow("a", slow)
        stub = RouterServiceStub(channel)

        def status():
            (worker,) = stub.ListWorkers(
                router_pb2.ListWorkersRequest(), timeout=DEADLINE_S
            ).workers
            return worker

        worker.hold([1, 2, 3])
        wait_until(lambda: is_current(router, worker))
        wait_until(lambda: status().lag_revisions == 0)
        reported = status().applied.revision
        slow.may_go.clear()
        for n in range(10, 210):
            worker.hold([n])
        made = worker.cache.events.revision - reported
        wait_until(lambda: status().lag_revisions == made)
        assert made >= 200
        assert (status().trust, status().state) == (0.5, "current")
        slow.may_go.set()
        wait_until(lambda: (status().lag_revisions, status().trust) == (0, 1))
        assert status().work_tokens > 190
        router.close()


def test_a_worker_that_is_gone_is_picked_no_more_until_it_is_back(caplog, tmp_path):
    """Its watch only goes silent, for it tries again by itself."""
    a, b = Worker("a"), Worker("b")
    where = f"unix:{tmp_path}/b.sock"
    with (
        Router(probe_every_s=0.02) as router,
        CacheServer(a.cache, "127.0.0.1:0") as here,
        Client(here.address) as to_a,
        Client(where) as to_b,
    ):
        with CacheServer(b.cache, where):
            router.follow("a", to_a)
            router.follow("b", to_b)
            b.hold([1, 2, 3])
            wait_until(lambda: is_current(router, a) and is_current(router, b))
            assert router.pick([1, 2, 3]).worker == "b"
        wait_until(lambda: not router.workers()[1].is_here)
        assert "no server answers" in router.workers()[1].last_error
        wait_until(lambda: router.pick([1, 2, 3]).worker == "a")
        with CacheServer(b.cache, where):
            wait_until(lambda: router.workers()[1].is_here)
            wait_until(lambda: router.pick([1, 2, 3]).worker == "b")
            assert router.workers()[1].last_error is None
    said = [r.getMessage() for r in caplog.records if r.name == "radixkv.router.feeding"]
    # Whether its watch ends with a word of its own is a matter of time.
    heads = [line.split(";")[0] for line in said]
    assert [head for head in heads if head.startswith("worker b is ")] == [
        "worker b is gone",
        "worker b is back",
    ]


def test_a_worker_that_cannot_be_probed_is_picked_nevertheless(caplog):
    class Odd(SlowClient):
        def server_info(self, **how):
            if how:
                raise OSError("no such thing")
            return super().server_info()

    worker = Worker("a")
    with (
        CacheServer(worker.cache, "127.0.0.1:0") as server,
        Client(server.address) as client,
        Router(probe_every_s=0.01) as router,
    ):
        router.follow("a", Odd(client))
        worker.hold([1, 2, 3])
        wait_until(lambda: is_current(router, worker))
        wait_until(lambda: "worker a cannot be probed" in caplog.text)
        asked = caplog.text.count("cannot be probed")
        assert router.pick([1, 2]).worker == "a"
        router.remove_worker("a")
        assert asked == caplog.text.count("cannot be probed") == 1
