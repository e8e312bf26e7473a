"""Who may call what: tokens, roles, salts; encryption of both sides."""

import logging
import threading
import time
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv import Namespace, PrefixCache, errors
from radixkv.rpc import auth
from radixkv.rpc.method_table import SERVICES
from radixkv.service import AsyncClient, CacheServer, Client, InsertCall, Tls
from radixkv.v1.info_pb2 import GetServerInfoRequest
from radixkv.v1.info_pb2_grpc import InfoServiceStub
from tests.support.service import TOKENS, details, files_of, hold, refusal
from tests.support.waiting import wait_until

A, B = Namespace(salt="a"), Namespace(salt="b")


@pytest.fixture
def tokens(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    return file


@pytest.fixture
def server_options(tokens):
    return {"tokens": tokens, "alone": True}


@pytest.fixture
def connected(server):
    """A client with a token."""
    clients = []

    def connect(token):
        clients.append(Client(server.address, token=token, timeout_s=60))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


CALLS = {
    "match": (lambda c: c.match([1]), {"data", "admin"}),
    "lease": (lambda c: c.lease(60, pool_id="p").close(), {"data", "admin"}),
    "leases": (lambda c: c.leases(), {"data", "admin"}),
    "server_info": (lambda c: c.server_info(), {"data", "watch", "admin"}),
    "stats": (lambda c: c.stats(), {"data", "watch", "admin"}),
    "watch": (lambda c: next(c.watch()), {"watch", "admin"}),
    "evict": (lambda c: c.evict(1), {"admin"}),
    "clear": (lambda c: c.clear(), {"admin"}),
    "check": (lambda c: c.check(), {"admin"}),
}


@pytest.mark.parametrize("role", ["data", "watch", "admin"])
@pytest.mark.parametrize(("call", "allowed"), CALLS.values(), ids=CALLS)
def test_what_each_role_may_call(connected, role, call, allowed):
    client = connected(f"{role}-token")
    if role in allowed:
        call(client)
        return
    with pytest.raises(errors.ForbiddenError, match=f"role {role} may not call") as caught:
        call(client)
    assert caught.value.details["code"] == "PERMISSION_DENIED"


@pytest.mark.parametrize("call", [call for call, _ in CALLS.values()], ids=CALLS)
@pytest.mark.parametrize("token", [None, "wrong", ""])
def test_nothing_is_answered_without_a_token_that_is_known(cache, connected, token, call):
    hold(cache, [1])
    before = (cache.stats(), cache.events.position())
    with pytest.raises(errors.UnauthenticatedError) as caught:
        call(connected(token))
    assert caught.value.details["code"] == "UNAUTHENTICATED"
    assert (cache.stats(), cache.events.position()) == before


@pytest.mark.parametrize("value", ["data-token", "Basic data-token", "Bearer", "bearer x y"])
def test_what_is_no_bearer_token(server, value):
    with grpc.insecure_channel(server.address) as channel:
        stub = InfoServiceStub(channel)
        metadata = [("authorization", value)]
        error = refusal(lambda: stub.GetServerInfo(GetServerInfoRequest(), metadata=metadata))
        assert details(error)[0].reason == "UNAUTHENTICATED"
        metadata = [("authorization", "bearer data-token")]
        assert stub.GetServerInfo(GetServerInfoRequest(), metadata=metadata).num_slots == 64


def test_health_asks_for_no_token(server):
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", *SERVICES):
            stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)


def test_a_tenants_token_sees_that_tenant_alone(cache, connected):
    hold(cache, [1, 2, 3], A)
    hold(cache, [4, 5, 6], B)
    tenant, engine = connected("a-token"), connected("data-token")
    assert tenant.match([1, 2, 3], A).lengths == [3]
    guesses = (B, Namespace(), Namespace(salt=""), Namespace(salt="unused"), Namespace(adapter="a"))
    answers = set()
    for namespace in guesses:
        for prompt in ([1, 2, 3], [4, 5, 6], [7]):
            with pytest.raises(errors.ForbiddenError) as caught:
                tenant.match(prompt, namespace)
            answers.add((str(caught.value), tuple(sorted(caught.value.details.items()))))
    assert len(answers) == 1, "whether there is such a namespace does not show"
    assert tenant.stats(A).evictable_size == 3
    for call in (lambda: tenant.stats(), lambda: tenant.stats(B)):
        with pytest.raises(errors.ForbiddenError):
            call()
    assert engine.match([4, 5, 6], B).lengths == [3]


def test_a_tenants_token_stores_for_that_tenant_and_names_no_pool(connected):
    tenant, engine = connected("a-token"), connected("data-token")
    with pytest.raises(errors.ForbiddenError, match="may not name a pool"):
        tenant.lease(60, pool_id="mine")
    with engine.lease(60, pool_id="p"), tenant.lease(60, pool_id="p") as lease:
        slots = lease.allocate(2).slots
        with pytest.raises(errors.ForbiddenError):
            lease.insert(InsertCall([1, 2], slots), B)
        with pytest.raises(errors.ForbiddenError):
            lease.pin([1, 2], B)
        lease.insert(InsertCall([1, 2], slots), A)


def test_leases_are_their_owners_own(connected):
    one, other, admin = map(connected, ("data-token", "other-data-token", "admin-token"))
    with one.lease(60, pool_id="p") as lease:
        (pin,) = lease.pin([1]).matches
        assert other.leases().leases == []
        for call in (
            lambda: other.lease_info(lease.id),
            lambda: other.revoke_lease(lease.id, lease.epoch),
        ):
            with pytest.raises(errors.LeaseNotFoundError):
                call()
        assert [each.id for each in one.leases().leases] == [lease.id]
        assert [each.id for each in admin.leases().leases] == [lease.id]
        assert admin.lease_info(lease.id).num_pins == 1
        assert lease.release([pin.pin_id]) == 1
        assert admin.revoke_lease(lease.id, lease.epoch) == (0, 0)


def test_request_ids_of_others_are_others(connected, server):
    """Nobody reads somebody else's answer by guessing its id."""
    from radixkv.service.client import lease_calls

    one, other = connected("data-token"), connected("other-data-token")
    call = lease_calls.grant(60)
    first, second, again = one._call(call), other._call(call), one._call(call)
    assert first.id == again.id != second.id


def until_refused(client):
    """The file is read in a thread, so the calls of the next moments may still be taken."""

    def is_refused() -> bool:
        try:
            client.match([1])
        except errors.UnauthenticatedError:
            return True
        return False

    wait_until(is_refused)


def test_a_reload_reads_the_file_at_once(server, connected, tokens):
    engine = connected("data-token")
    engine.match([1])
    tokens.write_text('[[token]]\nname = "x"\nrole = "data"\ntoken = "new-token"\n')
    server.reload()
    until_refused(engine)


def test_a_long_file_is_read_beside_the_calls(tmp_path, cache):
    """10,000 tokens: parsing takes a second, in which other calls go on."""
    file = tmp_path / "tokens.toml"
    entry = '[[token]]\nname = "n{0}"\nrole = "data"\ntoken = "t{0}"\n'
    file.write_text("".join(map(entry.format, range(10_000))))
    known = auth.TokenFile(file)
    file.write_text(entry.format("new"))
    known.reload()
    caller = threading.get_ident()
    read_by, asked = [], threading.Event()
    read = auth._read

    def slow_read(path):
        read_by.append(threading.get_ident())
        assert asked.wait(60)
        return read(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "_read", slow_read)
        assert known.principal([("authorization", "Bearer t9999")]).name == "n9999"
        asked.set()
        known._reading.join()
    assert known.principal([("authorization", "Bearer tnew")]).name == "nnew"
    assert read_by
    assert caller not in read_by


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    connected, tokens, monkeypatch, caplog
):
    monkeypatch.setattr(auth, "_LOOK_EVERY_S", 0.0)
    engine = connected("data-token")
    engine.match([1])
    tokens.write_text('[[token]]\nname = "x"\nrole = "data"\ntoken = ["new-token", "next"]\n')
    until_refused(engine)
    fresh = connected("new-token")
    fresh.match([1])
    connected("next").match([1])
    for broken in ("[[token", '[[token]]\nname = "x"\nrole = "data"\ntoken = 5\n', ""):
        tokens.write_text(broken)
        fresh.match([1])
    tokens.unlink()
    while "tokens stay as they were" not in caplog.text:
        fresh.match([1])
    assert "new-token" not in caplog.text


BROKEN = {
    "no TOML": "token = ",
    "no tokens": "",
    "no name": '[[token]]\nrole = "data"\ntoken = "t"',
    "no role": '[[token]]\nname = "x"\nrole = "root"\ntoken = "t"',
    "a salt for an admin": '[[token]]\nname = "x"\nrole = "admin"\ntoken = "t"\nsalt = "a"',
    "one token twice": 2 * '[[token]]\nname = "x"\nrole = "data"\ntoken = "secret"\n',
    "one name twice": "".join(
        f'[[token]]\nname = "x"\nrole = "data"\ntoken = "{n}"\nsalt = "{n}"\n' for n in "ab"
    ),
    "a token with a space at its end": '[[token]]\nname = "x"\nrole = "data"\ntoken = "t "',
    "a limit of 0": '[[token]]\nname = "x"\nrole = "data"\ntoken = "t"\nleases = 0',
    "a limit that is text": '[[token]]\nname = "x"\nrole = "data"\ntoken = "t"\nslots = "9"',
    "a token that is no text": '[[token]]\nname = "x"\nrole = "data"\ntoken = 5',
    "a list that is none": "token = 5",
    "lists in lists": f"token = {'[' * 5000}",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_read_at_first(cache, tmp_path, text):
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(errors.InvalidArgumentError, match=r"tokens file .*tokens\.toml") as caught:
        CacheServer(cache, tokens=file)
    assert "secret" not in str(caught.value)
    if text.startswith("[["):
        assert "entry 1 must be a [[token]]" in str(caught.value) or "twice" in str(caught.value)
    with pytest.raises(errors.InvalidArgumentError, match="No such file"):
        CacheServer(cache, tokens=tmp_path / "nothing")


def test_a_file_without_an_end_is_refused(cache):
    with pytest.raises(errors.InvalidArgumentError, match="must be at most 16777216 bytes"):
        CacheServer(cache, tokens=Path("/dev/zero"))


def test_logs_have_no_tokens_ids_nor_salts(connected, caplog):
    caplog.set_level(logging.DEBUG, "radixkv")
    client = connected("a-token")
    with pytest.raises(errors.ForbiddenError):
        client.match([271828], Namespace(salt="salt-of-b"))
    with pytest.raises(errors.UnauthenticatedError):
        connected("my-secret").match([1])
    (first, second) = [r for r in caplog.records if r.name.startswith("radixkv.rpc")]
    assert (first.method, first.code, first.reason, first.caller) == (
        "/radixkv.v1.PrefixCacheService/MatchPrefix",
        "PERMISSION_DENIED",
        "FORBIDDEN",
        "tenant-a",
    )
    assert first.ms > 0
    assert first.peer
    assert second.reason == "UNAUTHENTICATED"
    for record in (first, second):
        shown = str(vars(record))
        assert not any(word in shown for word in ("271828", "salt-of-b", "a-token", "my-secret"))


# ---- encryption ----


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def server_files(authority, tmp_path):
    return files_of(authority, tmp_path / "server", "127.0.0.1")


@pytest.fixture
def client_files(authority, tmp_path):
    return files_of(authority, tmp_path / "client", "engine.example")


def ask(address, tls):
    with Client(address, tls=tls, timeout_s=5) as client:
        return client.match([1, 2]).lengths


def test_an_encrypted_connection(cache, server_files, client_files):
    hold(cache, [1, 2])
    one_way = Tls(server_files.certificate, server_files.key)
    with CacheServer(cache, "127.0.0.1:0", tls=one_way) as server:
        assert ask(server.address, Tls(ca=client_files.ca)) == [2]
        with pytest.raises(errors.ServiceUnavailableError):
            ask(server.address, None)
        with pytest.raises(errors.ServiceUnavailableError):
            ask(server.address, Tls())
        other = trustme.CA()
        strange = files_of(other, client_files.ca.parent.parent / "strange", "127.0.0.1")
        with pytest.raises(errors.ServiceUnavailableError):
            ask(server.address, Tls(ca=strange.ca))


def test_both_sides_show_a_certificate(cache, server_files, client_files, tmp_path):
    with CacheServer(cache, "127.0.0.1:0", tls=server_files) as server:
        assert ask(server.address, client_files) == [0]
        with pytest.raises(errors.ServiceUnavailableError):
            ask(server.address, Tls(ca=client_files.ca))
        strange = files_of(trustme.CA(), tmp_path / "strange", "engine.example")
        with pytest.raises(errors.ServiceUnavailableError):
            ask(server.address, Tls(strange.certificate, strange.key, client_files.ca))
        assert cache.stats().lookup_tokens == 2


async def test_the_async_client_encrypts_too(cache, server_files, client_files, tokens):
    with CacheServer(cache, "127.0.0.1:0", tls=server_files, tokens=tokens) as server:
        tls = {"tls": client_files, "timeout_s": 60}
        async with AsyncClient(server.address, token="data-token", **tls) as client:
            assert (await client.match([1])).lengths == [0]
        async with AsyncClient(server.address, token="unknown", **tls) as client:
            with pytest.raises(errors.UnauthenticatedError):
                await client.match([1])


def test_with_encryption_an_address_may_be_open(server_files):
    with CacheServer(PrefixCache(4), "0.0.0.0:0", tls=server_files):
        pass
    with pytest.raises(errors.ListenError, match="give it TLS"):
        CacheServer(PrefixCache(4), "0.0.0.0:0")


def test_a_new_certificate_is_taken_at_the_next_connection(cache, server_files, tmp_path):
    """The next authority's clients get in, without a restart; a broken file changes nothing."""
    after = trustme.CA()
    issued = files_of(after, tmp_path / "after", "127.0.0.1")
    one_way = Tls(server_files.certificate, server_files.key)
    with CacheServer(cache, "127.0.0.1:0", tls=one_way) as server:
        assert ask(server.address, Tls(ca=server_files.ca)) == [0]
        one_way.key.unlink()
        assert ask(server.address, Tls(ca=server_files.ca)) == [0]
        time.sleep(0.01)
        one_way.key.write_bytes(issued.key.read_bytes())
        one_way.certificate.write_bytes(issued.certificate.read_bytes())
        assert ask(server.address, Tls(ca=issued.ca)) == [0]


def test_files_that_are_not_there(cache, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="No such file"):
        CacheServer(cache, tls=Tls(tmp_path / "x", tmp_path / "y"))
    with pytest.raises(
        errors.InvalidArgumentError, match="certificate and key must be given for a server"
    ):
        CacheServer(cache, tls=Tls())
    with pytest.raises(errors.InvalidArgumentError, match="No such file"):
        Client(tls=Tls(ca=tmp_path / "x"))


def test_files_that_are_no_pem_are_named_on_both_sides(cache, tmp_path, server_files, client_files):
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    good = server_files.certificate
    for certificate, key in ((bad, bad), (good, bad), (good, client_files.key)):
        named = f"{certificate} and {key} must be a certificate and its key"
        with pytest.raises(errors.InvalidArgumentError, match=named):
            CacheServer(cache, "127.0.0.1:0", tls=Tls(certificate, key))
        with pytest.raises(errors.InvalidArgumentError, match=named):
            Client("127.0.0.1:1", tls=Tls(certificate, key))
    with pytest.raises(errors.InvalidArgumentError, match=r"bad\.pem must have certificates"):
        Client("127.0.0.1:1", tls=Tls(ca=bad))


@pytest.mark.parametrize("half", ["certificate", "key"])
def test_a_client_shows_a_certificate_and_its_key_or_neither(tmp_path, half):
    """gRPC would end the process."""
    (tmp_path / "half.pem").write_text("half")
    with pytest.raises(
        errors.InvalidArgumentError, match="certificate and key must be given together"
    ):
        Client("127.0.0.1:1", tls=Tls(**{half: tmp_path / "half.pem"}))
