"""SGLang's HTTP server with our cache: clients that stream, leave in the middle, and flush."""

import asyncio
import json
import random

import aiohttp
import pytest

from tests.hosts.models import VOCABULARY, tiny_model
from tests.hosts.sglang.engines import Server
from tests.support.llamas import greedy


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """The address of a server that checks its slots after each step."""
    server = Server(model, tmp_path_factory.mktemp("server") / "log")
    try:
        server.wait()
        yield server.address
        assert server.is_alive, server.log()
    finally:
        server.kill()


def body(ids, n):
    return {
        "input_ids": ids,
        "sampling_params": {"max_new_tokens": n, "temperature": 0, "ignore_eos": True},
        "stream": True,
    }


async def stream(session, address, ids, n, leave_after=None):
    """The answer; or as much of it as comes before the client leaves."""
    answer, cached = [], None
    async with session.post(f"{address}/generate", json=body(ids, n)) as response:
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            answer, cached = chunk["output_ids"], chunk["meta_info"]["cached_tokens"]
            if leave_after is not None and len(answer) >= leave_after:
                break
    return answer, cached


def prompts(rng, n):
    shared = [[rng.randrange(VOCABULARY) for _ in range(120)] for _ in range(3)]
    return [
        rng.choice(shared)[: rng.randrange(40, 121)]
        + [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 40))]
        for _ in range(n)
    ]


def test_storms_of_clients_that_leave_change_no_answer(server, model):
    from transformers import LlamaForCausalLM

    rng = random.Random(5)
    asked = prompts(rng, 60)

    async def storm():
        async with aiohttp.ClientSession() as session:
            return await asyncio.gather(
                *(
                    stream(session, server, ids, 8, leave_after=i % 5 if i % 2 else None)
                    for i, ids in enumerate(asked)
                )
            )

    answers = asyncio.run(storm())
    alone = greedy(LlamaForCausalLM.from_pretrained(model))
    stayed = [(ids, answer) for ids, (answer, _) in zip(asked, answers, strict=True)][::2]
    for ids, answer in stayed:
        assert answer == alone(ids, 8)
    assert sum(cached or 0 for _, cached in answers) > 500


def test_a_flush_is_refused_while_requests_run_and_forgets_all_when_they_are_done(server):
    ids = [7] * 300

    async def flush_in_the_middle():
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{server}/generate", json=body(ids, 600)) as running:
                await running.content.readline()  # it has begun
                during = await flush(session, server)
                assert not running.content.at_eof()
                await running.read()
            _, before = await stream(session, server, ids, 2)
            after = await flush(session, server)
            return during, before, after, (await stream(session, server, ids, 2))[1]

    assert asyncio.run(flush_in_the_middle()) == (400, 299, 200, 0)


async def flush(session, server):
    async with session.post(f"{server}/flush_cache") as response:
        return response.status
