"""The server beside the scheduler: what it answers is what the cache holds."""

import socket

import pytest

from radixkv.cache.events import Cleared
from radixkv.cache.runs import follow, runs_of
from radixkv.errors import ListenError, UnsupportedError
from radixkv.service import Client
from radixkv.tree import Namespace
from tests.integrations.sglang.tenants import ADAPTER


@pytest.fixture
def beside(scheduler, monkeypatch):
    """A scheduler with a server beside its cache, and a client of that."""
    from radixkv.integrations.sglang import plugin

    monkeypatch.setenv("RADIXKV_SGLANG_LISTEN", "127.0.0.1:0")
    host = scheduler(num_slots=200)
    plugin._serve_beside(host.cache)
    with Client(host.cache.server.address) as client:
        yield host, client
    host.cache.server.stop()


def test_it_answers_what_the_scheduler_would_find(beside):
    host, client = beside
    host.run(range(50), cache_salt="tenant", lora_id=ADAPTER)
    space = Namespace(salt="tenant", adapter=ADAPTER)
    assert client.match([*range(50)], space).lengths == [50]
    assert client.match([*range(60)], space, probe=True).lengths == [50]
    assert client.match([*range(50)]).lengths == [0]


def test_its_figures_are_the_engines(beside):
    host, client = beside
    host.run(range(50))
    host.run(range(50))
    stats = client.stats()
    assert (stats.free_slots, stats.evictable_size, stats.protected_size) == (150, 50, 0)
    assert (stats.lookup_tokens, stats.hit_tokens) == (100, 49)
    host.run(range(100, 280))
    assert client.stats().evicted_tokens == 30


def test_a_watcher_sees_what_comes_and_goes(beside):
    host, client = beside
    with client.watch() as watch:
        runs = {}
        for at, update in enumerate(watch):
            follow(update, runs)
            if at == 0:  # the snapshot, of nothing
                host.run(range(80))
                host.run([*range(40), *range(200, 290)])
                host.run(range(300, 390))
                wanted = runs_of(host.cache.tree.walk())
            if shown(runs) == shown(wanted):
                break
        host.cache.reset()
        assert next(watch).events[0].change == Cleared()


def shown(runs):
    return {number: run.codes.tolist() for number, run in runs.items()}


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.match([1], want_slots=True),
        lambda client: client.evict(1),
        lambda client: client.clear(),
    ],
)
def test_what_is_the_engines_alone_is_refused(beside, ask):
    _, client = beside
    with pytest.raises(UnsupportedError, match="engine is SGLang, which does not serve"):
        ask(client)


def test_a_port_that_is_taken_ends_the_start_with_one_line(scheduler, monkeypatch):
    from radixkv.integrations.sglang import plugin

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("RADIXKV_SGLANG_LISTEN", f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ListenError) as caught:
            plugin._serve_beside(scheduler().cache)
    assert "\n" not in str(caught.value)


def test_there_is_none_where_none_is_asked_for(scheduler):
    from radixkv.integrations.sglang import plugin

    host = scheduler()
    plugin._serve_beside(host.cache)
    assert not hasattr(host.cache, "server")
