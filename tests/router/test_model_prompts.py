"""Picks by text and by OpenAI messages: the tokens are those that an engine makes of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from radixkv.errors import InvalidArgumentError, MessageTooLargeError, UnsupportedError
from radixkv.prompts import ModelPrompts
from radixkv.router import Router
from radixkv.router.server import RouterServer
from radixkv.service import AsyncRouterClient, Chat, RouterClient, Text
from tests.support.followers import Worker, catch_up
from tests.support.tiny_model import save_tiny_tokenizer

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save_tiny_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def prompts(folder: Path) -> ModelPrompts:
    return ModelPrompts(folder)


@pytest.fixture
def router() -> Any:
    with Router() as router:
        for name in "ab":
            router.add_worker(name)
        yield router


@pytest.fixture
def server(router, prompts):
    with RouterServer(router, "127.0.0.1:0", prompts=prompts) as server:
        yield server


@pytest.fixture
def client(server):
    with RouterClient(server.address, timeout_s=30) as client:
        yield client


def hold(router, name, token_ids):
    worker = Worker(name, num_slots=512)
    worker.hold(token_ids)
    catch_up(router.index, worker)


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_messages_are_what_transformers_makes_of_them(folder, prompts, tools):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = tokenizer.apply_chat_template(
        QUESTION, tools=tools, add_generation_prompt=True, return_dict=False
    )
    made = prompts.of_chat(json.dumps({"messages": QUESTION, "tools": tools, "stream": True}))
    assert made.token_ids.tolist() == expected
    assert prompts.of_text("Why?").token_ids.tolist() == tokenizer("Why?")["input_ids"]


def test_a_pick_by_messages_goes_where_their_tokens_are_cached(router, client, prompts):
    body = {"messages": QUESTION}
    whole = prompts.of_chat(json.dumps(body)).token_ids
    hold(router, "b", whole[:-2])
    for asked in (Chat(body), Chat(json.dumps(body)), Chat(json.dumps(body).encode())):
        pick = client.pick(asked)
        assert (pick.worker, pick.matched_length) == ("b", len(whole) - 2)
        assert pick.prompt_length == len(whole)
        client.finish(pick.pick_id)
    assert all(worker.load == 0 for worker in client.workers())
    assert client.lookup(Chat(body)) == {"b": len(whole) - 2}


def test_a_pick_by_text_and_by_ids_are_the_same(router, client, prompts):
    ids = prompts.of_text("The capital of France").token_ids
    hold(router, "a", ids)
    text, numbers = client.pick(Text("The capital of France is")), client.pick(ids)
    assert [(p.worker, p.matched_length) for p in (text, numbers)] == [("a", len(ids))] * 2
    assert client.lookup(Text("The capital of France is")) == {"a": len(ids)}


def test_the_async_client_asks_alike(router, server, prompts):
    hold(router, "b", prompts.of_text("hello").token_ids)

    async def ask():
        async with AsyncRouterClient(server.address, timeout_s=30) as client:
            pick = await client.pick(Text("hello there"), key="session")
            await client.finish(pick.pick_id)
            return pick, await client.workers()

    pick, workers = asyncio.run(ask())
    assert (pick.worker, pick.matched_length) == ("b", 5)
    assert [worker.load for worker in workers] == [0, 0]


def test_a_match_ends_where_an_image_begins(router, client, prompts):
    def asked(image):
        part = {"type": "image_url", "image_url": {"url": image}}
        text = {"type": "text", "text": "What is it? "}
        return json.dumps({"messages": [{"role": "user", "content": [text, part]}]})

    made = prompts.of_chat(asked("data:1"))
    (span,) = made.content
    assert made.content != prompts.of_chat(asked("data:2")).content
    hold(router, "a", made.token_ids)
    assert client.lookup(Chat(asked("data:1"))) == {"a": span[0]}


WRONG = {
    "no text": (Text(""), "text must have one character"),
    "no object": (Chat("[1]"), "chat must be the JSON object"),
    "no JSON": (Chat(b"\xff"), "chat must be the JSON object"),
    "no messages": (Chat({"prompt": "hi"}), "messages must be messages; it is missing"),
    "a message that is text": (Chat({"messages": ["hi"]}), "messages.0. must be an object"),
    "a content that is a number": (Chat({"messages": [{"role": "user", "content": 5}]}), "content"),
}


@pytest.mark.parametrize(("prompt", "says"), WRONG.values(), ids=WRONG)
def test_what_is_no_prompt_is_refused_and_places_nothing(router, client, prompt, says):
    with pytest.raises(InvalidArgumentError, match=says) as caught:
        client.pick(prompt)
    assert caught.value.details["field"] == "prompts[0]"
    assert all(status.load == 0 for status in router.workers())


def test_text_that_would_keep_others_waiting_is_refused(client):
    for ask in (client.pick, client.lookup):
        with pytest.raises(MessageTooLargeError, match="at most 4194304 bytes; got 52"):
            ask(Text("a" * 5_200_000))


@pytest.mark.parametrize("prompt", [Text("hi"), Chat({"messages": QUESTION})])
def test_a_router_without_a_model_says_so(router, prompt):
    with RouterServer(router, "127.0.0.1:0") as server, RouterClient(server.address) as client:
        for ask in (client.pick, client.lookup):
            with pytest.raises(UnsupportedError, match="--model FOLDER"):
                ask(prompt)


def test_a_folder_that_is_no_model_or_has_no_template(tmp_path, folder):
    with pytest.raises(InvalidArgumentError, match="must be a folder with a"):
        ModelPrompts(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    plain = ModelPrompts(tmp_path)
    assert len(plain.of_text("hi").token_ids) == 2
    with pytest.raises(InvalidArgumentError, match="must have a chat template"):
        plain.of_chat(json.dumps({"messages": QUESTION}))
