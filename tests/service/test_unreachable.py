"""Clients of servers that are not there, or not as the client thinks."""

import time
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from radixkv import Namespace, PrefixCache, errors
from radixkv.service import CacheServer, Client, Tls


def refused(target: str, tls: Tls | None = None) -> errors.ServiceUnavailableError:
    with (
        Client(target, tls=tls, timeout_s=60) as client,
        pytest.raises(errors.ServiceUnavailableError) as refused,
    ):
        client.stats()
    return refused.value


NO_SERVER = {
    "port": ("127.0.0.1:1", "connection refused", True),
    "socket": ("unix:/nowhere/x.sock", "no such socket", True),
    "host": ("no-such-host.invalid:50051", "no such host", False),
}


@pytest.mark.parametrize(("target", "why", "is_unreachable"), NO_SERVER.values(), ids=NO_SERVER)
def test_an_unreachable_server_is_named_with_its_address_and_why(target, why, is_unreachable):
    error = refused(target)
    assert str(error) == f"no server answers at {target}: {why}"
    assert error.details["target"] == target
    assert error.details["is_unreachable"] == is_unreachable


NO_ADDRESSES = [
    *("", "nonsense", "localhost", "127.0.0.1:99999", "127.0.0.1:x", "http://a:1"),
    *("\udcff:1", "unix:/\udcff"),
]


@pytest.mark.parametrize("target", NO_ADDRESSES)
def test_what_is_no_address_is_refused_before_a_call(target):
    with pytest.raises(errors.InvalidArgumentError, match="must be host:port, as in"):
        Client(target)


@pytest.mark.parametrize("target", ["[::1]:50051", "dns:///cache:50051", "unix:relative.sock"])
def test_what_grpc_calls_addresses_are_taken(target):
    with Client(target) as client:
        assert client.target == target


@pytest.mark.parametrize("token", ["secret\n", "secr\u00e9t", "sec\0ret"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token):
    with pytest.raises(errors.InvalidArgumentError, match="newline at its end") as caught:
        Client("127.0.0.1:1", token=token)
    assert "sec" not in str(caught.value)


SURROGATE = Namespace(salt="\udcff")
UNSENDABLE = {
    "evict": (lambda client: client.evict(2**70), "num_tokens must"),
    "a lease": (lambda client: client.revoke_lease(2**64, 1), "lease_id must"),
    "a namespace": (lambda client: client.match([1], SURROGATE), "must fit in a message"),
    "a namespace to watch": (lambda client: client.watch(SURROGATE), "must fit in a message"),
    "a place": (lambda client: client.watch(after=(-1, 5)), "after must"),
    "an epoch": (lambda client: client.match([1], expected_epoch=-1), "expected_epoch must"),
    "a ttl": (lambda client: client.lease(float("nan")), "ttl_s must"),
    "an endless ttl": (lambda client: client.lease(float("inf")), "ttl_s must"),
    "a holder": (lambda client: client.lease(holder="\udcff"), "holder must"),
}


@pytest.mark.parametrize(("call", "message"), UNSENDABLE.values(), ids=UNSENDABLE)
def test_what_no_message_can_hold_is_refused_before_a_call(call, message):
    with (
        Client("127.0.0.1:1") as client,
        pytest.raises(errors.InvalidArgumentError, match=message),
    ):
        call(client)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def encrypted(authority, tmp_path):
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    tls = Tls(tmp_path / "cert.pem", tmp_path / "key.pem")
    with CacheServer(PrefixCache(8), "127.0.0.1:0", tls=tls) as server:
        yield server


def test_the_error_of_sides_that_do_not_agree_on_tls_names_what_is_wrong(
    authority, encrypted, tmp_path
):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours = Tls(ca=tmp_path / "ca.pem")
    assert "its certificate is for another host" in str(refused(encrypted.address, ours))
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    assert "not signed by the CA that was named" in str(refused(encrypted.address, ours))
    assert "does it take TLS?" in str(refused(encrypted.address))
    with CacheServer(PrefixCache(8), "127.0.0.1:0") as plain:
        error = refused(plain.address, ours)
    assert "it takes calls without TLS" in str(error)
    assert not error.details["is_unreachable"]


def test_when_a_server_started_is_the_same_instant_in_every_time_zone(monkeypatch):
    with CacheServer(PrefixCache(8), "127.0.0.1:0") as server, Client(server.address) as client:
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        try:
            started = client.server_info().start_time
            assert started.utcoffset() == timedelta(0)
            assert timedelta(0) <= datetime.now(UTC) - started < timedelta(minutes=10)
        finally:
            monkeypatch.undo()
            time.tzset()
