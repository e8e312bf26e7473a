"""Our router before two SGLang servers with our cache: picks follow what is cached."""

import random
import time
from contextlib import ExitStack

import pytest
import requests

from radixkv.router import Router
from radixkv.service import Client
from tests.hosts.sglang.engines import VOCABULARY, Server, free_port, tiny_model

SETTLE_S, LEFT_WITHIN_S = 20, 15


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two servers by name, and the addresses where ours answer beside them."""
    folder = tmp_path_factory.mktemp("fleet")
    model, servers, addresses = tiny_model(folder / "model"), {}, {}
    try:
        for name in ("a", "b"):
            addresses[name] = f"127.0.0.1:{free_port()}"
            servers[name] = Server(model, folder / name, RADIXKV_SGLANG_LISTEN=addresses[name])
            servers[name].wait()  # one after the other: a start takes all there is of the machine
        yield servers, addresses
    finally:
        for server in servers.values():
            server.kill()


def ask(server, ids):
    """How many tokens the engine found cached."""
    body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 2, "temperature": 0}}
    answer = requests.post(f"{server.address}/generate", json=body, timeout=60)
    return answer.json()["meta_info"]["cached_tokens"]


def test_picks_follow_what_is_cached_and_leave_who_is_killed(fleet):
    servers, addresses = fleet
    rng = random.Random(1)
    with ExitStack() as stack:
        router = stack.enter_context(Router(gone_after_s=2.0))
        clients = {
            name: stack.enter_context(Client(address)) for name, address in addresses.items()
        }
        for name, client in clients.items():
            router.follow(name, client, address=addresses[name])
        families = [[rng.randrange(VOCABULARY) for _ in range(100)] for _ in range(6)]
        picked, warm = set(), 0
        for at in range(60):
            ids = families[at % 6] + [rng.randrange(VOCABULARY) for _ in range(5)]
            pick = router.pick(ids)
            # It knows what the engine is about to find, to the token.
            assert ask(servers[pick.worker], ids) == pick.matched_length
            router.finish(pick)
            picked.add(pick.worker)
            warm += pick.matched_length >= 100
            settle(router, clients)
        assert picked == {"a", "b"}
        assert warm >= 45  # each family is computed once, or twice where loads are evened out
        stats = clients["a"].stats()
        assert stats.hit_tokens > 0
        assert stats.free_slots + stats.evictable_size + stats.allocated_slots == 1200

        servers["a"].kill()
        until = time.monotonic() + LEFT_WITHIN_S
        while any(router.pick(families[n] + [1]).worker == "a" for n in range(6)):
            assert time.monotonic() < until
            time.sleep(0.2)


def settle(router, clients):
    """Wait until the router knows what the engines hold."""
    until = time.monotonic() + SETTLE_S
    while any(
        status.view.revision < clients[status.view.worker].stats().revision
        for status in router.workers()
    ):
        assert time.monotonic() < until
        time.sleep(0.01)
