"""The gateway: a request goes where its prompt is cached, and its answer streams back."""

import asyncio
import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from radixkv import Namespace, PrefixCache
from radixkv.prompts import ModelPrompts
from radixkv.router import Router
from radixkv.router.server import RouterServer
from tests.hosts.gateway_example import GATEWAY, load_gateway
from tests.support.tiny_model import save_tiny_tokenizer

CHAT = {"messages": [{"role": "user", "content": "hello there, you"}], "stream": True}


class Worker:
    """An engine that streams its name, and keeps what it was asked."""

    def __init__(self, name):
        self.name, self.asked = name, []
        paths = ("/v1/chat/completions", "/v1/completions")
        self.app = Starlette(routes=[Route(path, self.answer, methods=["POST"]) for path in paths])

    async def answer(self, request):
        self.asked.append(await request.json())

        async def chunks():
            for letter in self.name:
                yield f"data: {letter}\n\n"
                await asyncio.sleep(0)

        return StreamingResponse(chunks(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_tiny_tokenizer(folder)
    return ModelPrompts(folder)


@pytest.fixture
def gateway(model):
    """A gateway, its router, and two workers; the second holds the beginning of `CHAT`."""
    workers = {f"http://{name}": Worker(name) for name in ("one", "two")}
    mounts = {url: httpx.ASGITransport(app=worker.app) for url, worker in workers.items()}
    with Router() as router, RouterServer(router, "127.0.0.1:0", prompts=model) as server:
        for url in [*workers, "http://gone"]:
            router.add_worker(url)
        cache = PrefixCache(64)
        ids = model.of_chat(json.dumps(CHAT)).token_ids[:-4]
        cache.finish(cache.admit(ids), up_to=len(ids))
        router.apply("http://two", cache.events.read(0, 0, 1 << 20))
        yield (
            load_gateway().Gateway(server.address, httpx.AsyncClient(mounts=mounts)),
            router,
            workers,
        )


def ask(gateway, body, path="/v1/chat/completions"):
    async def post():
        transport = httpx.ASGITransport(app=gateway.app)
        async with (
            gateway.connected(gateway.app),
            httpx.AsyncClient(transport=transport, base_url="http://gateway") as client,
        ):
            return await client.post(path, json=body)

    return asyncio.run(post())


def test_a_chat_goes_where_it_is_cached_and_streams_back(gateway):
    made, router, workers = gateway
    answer = ask(made, CHAT)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == "data: t\n\ndata: w\n\ndata: o\n\n"
    assert workers["http://two"].asked == [CHAT]
    assert all(status.load == 0 for status in router.workers())


@pytest.mark.parametrize("prompt", ["<user>hello th", [1, 2, 3]])
def test_a_completion_asks_by_text_or_by_ids(gateway, prompt):
    made, router, workers = gateway
    body = {"prompt": prompt}
    assert ask(made, body, "/v1/completions").status_code in (200, 502)
    if isinstance(prompt, str):
        assert workers["http://two"].asked == [body]
    assert all(status.load == 0 for status in router.workers())


def test_a_tenants_salt_is_part_of_the_question(gateway):
    made, router, _ = gateway
    picked = []
    pick = router.pick
    router.pick = lambda *asked, **how: picked.append(asked[1]) or pick(*asked, **how)
    ask(made, CHAT | {"cache_salt": "tenant"})
    assert picked == [Namespace(salt="tenant")]


def test_a_worker_that_cannot_be_reached_is_an_error_and_no_load(gateway):
    made, router, _ = gateway
    router.remove_worker("http://one")
    router.remove_worker("http://two")
    answer = ask(made, {"messages": [{"role": "user", "content": "hi"}]})
    assert answer.status_code == 502
    assert "http://gone" in json.loads(answer.text)["error"]["message"]
    assert all(status.load == 0 for status in router.workers())


def test_a_request_that_is_none_and_a_router_without_workers(gateway):
    made, router, _ = gateway
    assert ask(made, {"messages": []}).status_code == 400
    for worker in router.index.workers:
        router.remove_worker(worker)
    answer = ask(made, CHAT)
    assert (answer.status_code, "no worker" in answer.text) == (503, True)


def test_it_is_an_example_that_can_be_read_at_once():
    assert len(GATEWAY.read_text().splitlines()) <= 80
