"""Who may ask the router what, encryption, figures; and workers that ask who watches them."""

from importlib.metadata import version

import grpc
import pytest
import trustme

from radixkv import Namespace, PrefixCache, errors
from radixkv.router import Router
from radixkv.router import loads as loads_module
from radixkv.router.server import RouterServer
from radixkv.rpc import codec
from radixkv.service import CacheServer, Client, Tls
from radixkv.v1 import router_pb2
from radixkv.v1.router_pb2_grpc import RouterServiceStub
from tests.support.router import packed, refusal
from tests.support.service import TOKENS, figures, files_of, hold
from tests.support.waiting import wait_until

PICK = router_pb2.PickRequest(sequences=[packed(1, 2)])
PICK_OF_A = router_pb2.PickRequest(
    sequences=[packed(1, 2)], namespace=codec.write_namespace(Namespace(salt="a"))
)
LOOKUP = router_pb2.LookupRequest(sequence=packed(1, 2))
LOOKUP_OF_A = router_pb2.LookupRequest(sequence=packed(1, 2), namespace=PICK_OF_A.namespace)
LIST = router_pb2.ListWorkersRequest()


@pytest.fixture
def router():
    with Router() as router:
        router.add_worker("a")
        yield router


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    return file


def test_roles(router, tokens):
    with (
        RouterServer(router, "127.0.0.1:0", tokens=tokens) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = RouterServiceStub(channel)

        def ask(call, request, token):
            return call(request, metadata=[("authorization", f"Bearer {token}")], timeout=60)

        def why(call, request, token):
            return refusal(lambda: ask(call, request, token))[1]

        assert refusal(lambda: stub.Pick(PICK, timeout=60))[1] == "UNAUTHENTICATED"
        assert why(stub.Pick, PICK, "unknown") == "UNAUTHENTICATED"
        for call, request in ((stub.Pick, PICK), (stub.Lookup, LOOKUP)):
            for token in ("data-token", "admin-token"):
                ask(call, request, token)
            assert why(call, request, "watch-token") == "FORBIDDEN"
            assert why(call, request, "a-token") == "FORBIDDEN"
        ask(stub.Pick, PICK_OF_A, "a-token")
        ask(stub.Lookup, LOOKUP_OF_A, "a-token")
        for token in ("data-token", "watch-token", "admin-token"):
            assert len(ask(stub.ListWorkers, LIST, token).workers) == 1
        assert why(stub.ListWorkers, LIST, "a-token") == "FORBIDDEN"


def test_encryption(router, tmp_path):
    authority = trustme.CA()
    ours = files_of(authority, tmp_path / "server", "127.0.0.1")
    theirs = files_of(authority, tmp_path / "client", "gateway.example")
    with RouterServer(router, "127.0.0.1:0", tls=ours) as server:
        with grpc.secure_channel(server.address, theirs.channel_credentials()) as channel:
            assert RouterServiceStub(channel).Pick(PICK, timeout=60).picks[0].worker == "a"
        without = Tls(ca=theirs.ca).channel_credentials()
        with grpc.secure_channel(server.address, without) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                RouterServiceStub(channel).Pick(PICK, timeout=60)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_figures(router):
    with RouterServer(router, "127.0.0.1:0", metrics="127.0.0.1:0") as server:
        with grpc.insecure_channel(server.address) as channel:
            RouterServiceStub(channel).Pick(PICK, timeout=60)
        seen = figures(server)
        assert seen["radixkv_router_workers", ""] == 1
        assert seen["radixkv_router_load", ""] == 1
        assert seen["radixkv_calls_started_total", "/radixkv.v1.RouterService/Pick"] == 1


def test_workers_that_ask_who_watches_them(router, tokens):
    cache = PrefixCache(16)
    hold(cache, [1, 2, 3])
    with CacheServer(cache, "127.0.0.1:0", tokens=tokens) as server:
        clients = {
            name: Client(server.address, token=f"{name}-token", timeout_s=60)
            for name in ("watch", "data")
        }
        for name, client in clients.items():
            router.follow(name, client)

        def statuses():
            return {status.view.worker: status for status in router.workers()}

        wait_until(lambda: statuses()["watch"].view.state == "current")
        wait_until(lambda: statuses()["data"].last_error)
        assert "may not call Watch" in statuses()["data"].last_error
        assert router.pick([1, 2, 3]).worker == "watch"
        router.close()
        for client in clients.values():
            client.close()


def test_a_tokens_file_that_is_none(router, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="tokens file"):
        RouterServer(router, "127.0.0.1:0", tokens=tmp_path / "none.toml")


def test_figures_of_picks_by_worker_and_reason(router):
    router.add_worker("b")
    with (
        RouterServer(router, "127.0.0.1:0", metrics="127.0.0.1:0") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        cache = PrefixCache(64)
        hold(cache, [1, 2, 3])
        router.apply("b", cache.events.read(0, 0, 1 << 20))
        RouterServiceStub(channel).Pick(
            router_pb2.PickRequest(sequences=[packed(1, 2, 3, 4)]), timeout=60
        )
        found = figures(server)
        assert found["radixkv_router_picks_total", "b,longest match"] == 1
        assert found["radixkv_router_prompt_tokens_total", "b"] == 4
        assert found["radixkv_router_matched_tokens_total", "b"] == 3
        assert ("radixkv_build_info", version("radixkv")) in found


def test_a_tenant_moves_and_ends_no_pick_of_another(router, tokens):
    """Loads and prices are for callers that see all tenants; a pick is ended by its owner alone."""
    router.add_worker("b")
    with (
        RouterServer(router, "127.0.0.1:0", tokens=tokens) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = RouterServiceStub(channel)

        def ask(request, token):
            return stub.Pick(request, metadata=[("authorization", f"Bearer {token}")], timeout=60)

        def loads():
            return {status.view.worker: status.load for status in router.workers()}

        for unfair in ({"cost": 1e12}, {"loads": [{"worker": "a", "load": 1e12}]}):
            priced = router_pb2.PickRequest(
                sequences=[packed(1)], namespace=PICK_OF_A.namespace, **unfair
            )
            assert refusal(lambda request=priced: ask(request, "a-token"))[1] == "FORBIDDEN"
        picks = ask(router_pb2.PickRequest(sequences=[packed(1), packed(2)]), "data-token").picks
        before = loads()
        assert sum(before.values()) == 2
        ids = [pick.pick_id for pick in picks]
        guesses = router_pb2.PickRequest(
            finished_pick_ids=[*ids, *range(1, 4000)], namespace=PICK_OF_A.namespace
        )
        for token in ("a-token", "other-data-token"):
            ask(guesses, token)
            assert loads() == before
        ask(router_pb2.PickRequest(finished_pick_ids=ids), "data-token")
        assert sum(loads().values()) == 0
        many = router_pb2.PickRequest(sequences=[packed(at) for at in range(200)])
        goes_to = [pick.worker for pick in ask(many, "data-token").picks]
        assert (goes_to.count("a"), goes_to.count("b")) == (100, 100)


def test_ids_of_picks_are_not_to_be_guessed(router):
    ids = [router.pick([1]).id for _ in range(100)]
    assert len(set(ids)) == 100
    assert min(ids) > 1 << 32


def test_open_picks_of_a_tenant_are_limited(router, tokens):
    tokens.write_text(TOKENS.replace('salt = "a"', 'salt = "a"\npicks = 3'))
    with (
        RouterServer(router, "127.0.0.1:0", tokens=tokens) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = RouterServiceStub(channel)

        def ask(request):
            return stub.Pick(request, metadata=[("authorization", "Bearer a-token")], timeout=60)

        found = [ask(PICK_OF_A).picks[0].pick_id for _ in range(3)]
        assert refusal(lambda: ask(PICK_OF_A))[1] == "OVERLOADED"
        again = router_pb2.PickRequest(
            sequences=PICK_OF_A.sequences,
            namespace=PICK_OF_A.namespace,
            finished_pick_ids=found[:1],
        )
        assert len(ask(again).picks) == 1


def test_of_too_many_open_picks_the_oldest_count_as_finished(router, monkeypatch):
    monkeypatch.setattr(loads_module, "MAX_OPEN_PICKS", 3)
    picks = [router.pick([1], owner="me") for _ in range(5)]
    assert router.num_open("me") == 3
    assert [status.load for status in router.workers()] == [3]
    for pick in picks:
        router.finish(pick)
    assert router.num_open("me") == 0
    assert [status.load for status in router.workers()] == [0]
