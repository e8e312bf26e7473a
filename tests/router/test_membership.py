"""Workers that come and go: by lists that are looked at again, and by an admin's calls."""

import socket
from typing import Any

import pytest

from radixkv.errors import (
    ForbiddenError,
    InvalidArgumentError,
    RadixKVError,
    UnsupportedError,
)
from radixkv.router import Router
from radixkv.router.membership import DnsName, Membership, WorkersFile
from radixkv.router.server import RouterServer
from radixkv.service import CacheServer, Client, RouterClient
from tests.support.followers import Worker
from tests.support.waiting import wait_until


@pytest.fixture
def servers():
    """Two caches served at one port of two addresses, as pods of a headless service are."""
    first = CacheServer(Worker("a").cache, "127.0.0.1:0").start()
    port = first.address.rpartition(":")[2]
    second = CacheServer(Worker("b").cache, f"127.0.0.2:{port}").start()
    yield first, second
    for server in (first, second):
        server.stop()


@pytest.fixture
def router():
    with Router(probe_every_s=0.05) as router:
        yield router


def names(router: Router) -> list[str]:
    return [status.view.worker for status in router.workers()]


def states(router: Router) -> dict[str, str]:
    return {status.view.worker: status.view.state for status in router.workers()}


@pytest.fixture
def resolved(monkeypatch):
    """What the DNS says of "pods": a list of addresses that the test changes."""
    found: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: Any, *how: Any, **more: Any) -> Any:
        if host != "pods":
            return real(host, port, *how, **more)
        if not found:
            raise socket.gaierror("Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return found


def test_the_addresses_of_a_name_are_the_workers_and_are_looked_up_again(router, servers, resolved):
    first, second = (server.address for server in servers)
    port = first.rpartition(":")[2]
    resolved += ["127.0.0.1"]
    with Membership(router, Client, [DnsName(f"pods:{port}")], every_s=0.05) as members:
        members.start()
        assert names(router) == [first]
        resolved += ["127.0.0.2", "127.0.0.2"]
        wait_until(lambda: states(router) == {first: "current", second: "current"})
        resolved.remove("127.0.0.1")
        wait_until(lambda: names(router) == [second])
        assert router.pick([1, 2, 3]).worker == second


def test_a_name_that_cannot_be_looked_up_leaves_its_workers(router, servers, resolved, caplog):
    first = servers[0].address
    resolved += ["127.0.0.1"]
    with Membership(router, Client, [DnsName(f"pods:{first.rpartition(':')[2]}")]) as members:
        members.start()
        resolved.clear()
        for _ in range(3):
            members.look()
        assert names(router) == [first]
        assert caplog.text.count("stay as they were: Name or service not known") == 1


def test_a_real_name_is_looked_up():
    assert "127.0.0.1:5" in DnsName("localhost:5").read()
    for wrong in ("nowhere", ":5", "host:port", "host:99999"):
        with pytest.raises(InvalidArgumentError, match="must be HOST:PORT"):
            DnsName(wrong)


def test_a_file_is_read_again_and_a_broken_one_changes_nothing(router, servers, tmp_path, caplog):
    first, second = (server.address for server in servers)
    file = tmp_path / "workers"
    file.write_text(f"a={first}  # the first\n\n# none\n")
    with Membership(router, Client, [WorkersFile(file)], every_s=0.05) as members:
        members.start()
        assert names(router) == ["a"]
        file.write_text(f"a={first}\nb={second}\n")
        wait_until(lambda: states(router) == {"a": "current", "b": "current"})
        file.write_text("=\n")
        wait_until(lambda: "NAME=ADDRESS or ADDRESS; got '='" in caplog.text)
        assert names(router) == ["a", "b"]
        file.write_text(f"a={second}\n")  # another server under that name
        wait_until(lambda: [s.address for s in router.workers()] == [second])
        file.unlink()
        members.look()
        assert names(router) == ["a"]


def test_what_lists_do_not_name_they_do_not_remove(router, servers, tmp_path):
    first, second = (server.address for server in servers)
    file = tmp_path / "workers"
    file.write_text(f"{first}\n")
    with Membership(router, Client, [WorkersFile(file)]) as members:
        members.add("own", second)
        members.start()
        file.write_text("")
        members.look()
        assert names(router) == ["own"]


@pytest.fixture
def served(router, servers, tmp_path):
    """A router's server with roles, and clients of it by role."""
    tokens = tmp_path / "tokens.toml"
    roles = ("admin", "data", "watch")
    tokens.write_text(
        "".join(f'[[token]]\nname = "{r}"\nrole = "{r}"\ntoken = "{r}"\n' for r in roles)
    )
    members = Membership(router, Client)
    with members, RouterServer(router, "127.0.0.1:0", members=members, tokens=tokens) as server:
        clients = {role: RouterClient(server.address, token=role, timeout_s=30) for role in roles}
        yield clients
        for client in clients.values():
            client.close()


def test_an_admin_adds_and_removes_workers(served, router, servers):
    admin, data = served["admin"], served["data"]
    first, second = (server.address for server in servers)
    admin.add_worker(first, "a")
    admin.add_worker(second)
    wait_until(lambda: states(router) == {"a": "current", second: "current"})
    assert {worker.worker: worker.address for worker in data.workers()} == {
        "a": first, second: second
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="got 'a', which was added before"):
        admin.add_worker(second, "a")
    with pytest.raises(InvalidArgumentError, match="host:port"):
        admin.add_worker("nowhere")
    admin.remove_worker("a")
    assert [worker.worker for worker in data.workers()] == [second]
    with pytest.raises(InvalidArgumentError, match="got 'a'"):
        admin.remove_worker("a")


@pytest.mark.parametrize("role", ["data", "watch"])
def test_others_may_not(served, servers, role):
    with pytest.raises(ForbiddenError):
        served[role].add_worker(servers[0].address)
    with pytest.raises(ForbiddenError):
        served[role].remove_worker("a")


def test_a_listed_worker_that_an_admin_removed_stays_away_until_the_list_lacks_it(
    router, servers, tmp_path
):
    file = tmp_path / "workers"
    file.write_text(f"a={servers[0].address}\n")
    with Membership(router, Client, [WorkersFile(file)]) as members:
        members.start()
        members.remove("a")
        members.look()
        assert names(router) == []
        file.write_text("")
        members.look()
        file.write_text(f"a={servers[0].address}\n")
        members.look()
        assert names(router) == ["a"]


def test_a_router_whose_program_has_its_workers_takes_none(router):
    with RouterServer(router, "127.0.0.1:0") as server, RouterClient(server.address) as client:
        for call in (lambda: client.add_worker("x:1"), lambda: client.remove_worker("a")):
            with pytest.raises(UnsupportedError, match="the program of this router"):
                call()


def test_a_worker_that_is_a_router_is_named_in_the_error(router):
    with (
        Router() as other,
        RouterServer(other, "127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        router.follow("a", client)
        wait_until(lambda: router.workers()[0].last_error)
        assert "'a' must be the server of a cache" in str(router.workers()[0].last_error)
        assert "such as another router" in str(router.workers()[0].last_error)
        wait_until(lambda: not router.workers()[0].is_here)
        router.close()


def test_a_listed_address_that_is_none_does_not_stop_the_others(router, servers, tmp_path, caplog):
    file = tmp_path / "workers"
    file.write_text(f"a=nowhere\nb={servers[0].address}\n")
    with Membership(router, Client, [WorkersFile(file)]) as members:
        members.start()
        assert names(router) == ["b"]
        assert "worker a cannot be added" in caplog.text
        with pytest.raises(RadixKVError):
            members.add("c", "nowhere")
