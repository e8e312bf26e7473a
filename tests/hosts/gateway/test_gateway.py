"""The gateway: a request goes where its prompt is cached, and its answer streams back."""

import asyncio
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from radixkv import PrefixCache
from radixkv.router import Router
from tests.hosts.gateway_example import GATEWAY, load_gateway
from tests.support import tiny_model


class Worker:
    """An engine that streams its name, and keeps what it was asked."""

    def __init__(self, name):
        self.name, self.asked = name, []
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request):
        self.asked.append(await request.json())

        async def chunks():
            for letter in self.name:
                yield f"data: {letter}\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(chunks(), media_type="text/event-stream")


@pytest.fixture
def gateway(tmp_path):
    """`gateway(...)` with two workers; the second holds "hello" already."""
    workers = {f"http://{name}": Worker(name) for name in ("one", "two")}
    mounts = {url: httpx.ASGITransport(app=worker.app) for url, worker in workers.items()}
    tiny_model.save_tiny_model(tmp_path)
    with Router() as router:
        for url in [*workers, "http://gone"]:
            router.add_worker(url)
        cache = PrefixCache(64)
        ids = tiny_model.ids("<user>hello there")
        cache.finish(cache.admit(ids), up_to=len(ids))
        router.apply("http://two", cache.events.read(0, 0, 1 << 20))
        made = load_gateway().Gateway(router, tmp_path, httpx.AsyncClient(mounts=mounts))
        yield made, router, workers


def ask(gateway, body):
    async def post():
        transport = httpx.ASGITransport(app=gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            return await client.post("/v1/chat/completions", json=body)

    return asyncio.run(post())


def test_a_chat_goes_where_it_is_cached_and_streams_back(gateway):
    made, router, workers = gateway
    body = {"messages": [{"role": "user", "content": "hello there, you"}], "stream": True}
    answer = ask(made, body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == "data: t\n\ndata: w\n\ndata: o\n\n"
    assert workers["http://two"].asked == [body]
    assert all(status.load == 0 for status in router.workers())


def test_a_tenants_salt_is_part_of_the_question(gateway):
    made, _, _ = gateway
    picked = []
    pick = made.router.pick
    made.router.pick = lambda *asked: picked.append(asked[1].salt) or pick(*asked)
    ask(made, {"messages": [{"role": "user", "content": "hi"}], "cache_salt": "tenant"})
    assert picked == ["tenant"]


def test_a_worker_that_cannot_be_reached_is_an_error_and_no_load(gateway):
    made, router, _ = gateway
    router.remove_worker("http://one")
    router.remove_worker("http://two")
    answer = ask(made, {"messages": [{"role": "user", "content": "hi"}]})
    assert answer.status_code == 502
    assert "http://gone" in json.loads(answer.text)["error"]["message"]
    assert all(status.load == 0 for status in router.workers())


def test_it_is_an_example_that_can_be_read_at_once():
    assert len(GATEWAY.read_text().splitlines()) <= 80
