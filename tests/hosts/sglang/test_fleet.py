"""Two SGLang servers with our cache, behind `radixkv route` and behind `examples/gateway.py`.

Each is a process of its own. Chats are rendered by a template that writes all that an engine
prepares, and tokenized by SmolLM2's tokenizer.
"""

import json
import random
import subprocess
import sys
import time
from collections import namedtuple
from contextlib import ExitStack

import grpc
import numpy as np
import pytest
import requests

from radixkv.prompts import ModelPrompts
from radixkv.prompts.gguf import find_smollm2, tokenizer_from_gguf
from radixkv.service import Client
from radixkv.v1 import router_pb2, router_pb2_grpc
from radixkv.v1.types_pb2 import TokenSequence
from tests.hosts.gateway_example import GATEWAY
from tests.hosts.models import tiny_model
from tests.hosts.ports import free_port
from tests.hosts.sglang.engines import Server
from tests.support.chats import WORDS, conversation
from tests.support.waiting import wait_until

CHATS, NUM_SLOTS, LEFT_WITHIN_S = 500, 1200, 30
TEMPLATE = """\
{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}\
<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

Fleet = namedtuple("Fleet", "servers clients router gateway")


class Process:
    """One that runs until `stop`, and what it wrote."""

    def __init__(self, log, *command):
        self._log = log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, condition):
        def has_come():
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            return condition()

        wait_until(has_come, timeout_s=300)

    def stop(self):
        self._process.kill()
        self._process.wait(60)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with weights, tokenizer and template."""
    folder = tmp_path_factory.mktemp("fleet") / "model"
    tokenizer = tokenizer_from_gguf(find_smollm2())
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tiny_model(folder, len(tokenizer))


@pytest.fixture(scope="module")
def fleet(model):
    folder = model.parent
    where, port = f"127.0.0.1:{free_port()}", str(free_port())
    with ExitStack() as stack:
        servers, addresses = {}, {}
        for name in ("a", "b"):  # one after the other: a start takes all there is of the machine
            address = f"127.0.0.1:{free_port()}"
            server = Server(
                model,
                folder / name,
                {"skip_tokenizer_init": False},
                RADIXKV_SGLANG_LISTEN=address,
            )
            stack.callback(server.kill)
            server.wait()
            servers[server.address], addresses[server.address] = server, address
        workers = [f"--worker={name}={address}" for name, address in addresses.items()]
        soon = ["--silent-after=1", "--gone-after=2", f"--model={model}"]
        route = Process(
            folder / "route", "-m", "radixkv", "route", *workers, *soon, f"--listen={where}"
        )
        stack.callback(route.stop)
        gateway = Process(folder / "gateway", str(GATEWAY), where, port)
        stack.callback(gateway.stop)
        url, channel = f"http://127.0.0.1:{port}", grpc.insecure_channel(where)
        router = router_pb2_grpc.RouterServiceStub(stack.enter_context(channel))
        gateway.wait_for(lambda: answers(url))
        route.wait_for(lambda: knows_both(router))
        clients = {
            name: stack.enter_context(Client(address)) for name, address in addresses.items()
        }
        yield Fleet(servers, clients, router, url)


def answers(url):
    try:
        return requests.get(url, timeout=5).status_code == 404
    except requests.ConnectionError:
        return False


def knows_both(router):
    try:
        found = router.ListWorkers(router_pb2.ListWorkersRequest(), timeout=5)
    except grpc.RpcError:
        return False
    return len(found.workers) == 2


def ask(gateway, body, **more):
    """What the gateway answers."""
    request = {"model": "m", "max_tokens": 1, "temperature": 0, "ignore_eos": True, **body, **more}
    return requests.post(f"{gateway}/v1/chat/completions", json=request, timeout=120)


def sequence(ids):
    return TokenSequence(packed=np.array(ids, "<i4").tobytes())


def picked(router, ids):
    """Where our router sends a prompt; the pick ends at once."""
    (pick,) = router.Pick(router_pb2.PickRequest(sequences=[sequence(ids)]), timeout=30).picks
    router.Pick(router_pb2.PickRequest(finished_pick_ids=[pick.pick_id]), timeout=30)
    return pick


def held(router, ids):
    """How much of a prompt each worker holds."""
    found = router.Lookup(router_pb2.LookupRequest(sequence=sequence(ids)), timeout=30)
    return {match.worker: match.matched_length for match in found.matches}


def settle(fleet):
    """Wait until the router has seen all that the engines did."""

    def is_current():
        found = fleet.router.ListWorkers(router_pb2.ListWorkersRequest(), timeout=30).workers
        return all(
            each.applied.revision >= fleet.clients[each.worker].stats().revision for each in found
        )

    wait_until(is_current)


def asked_of(clients):
    """How many tokens each worker was asked for until now."""
    return {name: client.stats().lookup_tokens for name, client in clients.items()}


@pytest.fixture(scope="module")
def tokens(model):
    """`tokens(body)`: the ids that the router makes of a request."""
    prompts = ModelPrompts(model)
    return lambda body: prompts.of_chat(json.dumps(body)).token_ids


def test_ids_of_chats_are_the_engines_own(fleet, tokens):
    rng = np.random.default_rng(3)
    lengths = set()
    for _ in range(CHATS):
        body = conversation(rng)
        answer = ask(fleet.gateway, body, return_prompt_token_ids=True)
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        assert choice["prompt_token_ids"] == [*tokens(body)]
        lengths.add(len(choice["prompt_token_ids"]))
    assert len(lengths) > 100


def families(rng, n):
    """Chats that begin alike, in turn."""
    systems = [" ".join(rng.choices(WORDS, k=50)) for _ in range(6)]
    for at in range(n):
        last = " ".join(rng.choices(WORDS, k=3))
        yield [
            {"role": "system", "content": systems[at % len(systems)]},
            {"role": "user", "content": last},
        ]


def test_picks_follow_what_is_cached_and_leave_who_is_killed(fleet, tokens):
    rng, warm, picked_warm, workers = random.Random(1), 0, 0, set()
    for messages in families(rng, 60):
        ids = tokens({"messages": messages})
        settle(fleet)
        there, before = held(fleet.router, ids), asked_of(fleet.clients)
        pick = picked(fleet.router, ids)
        assert pick.matched_length == there.get(pick.worker, 0)
        usage = ask(fleet.gateway, {"messages": messages}).json()["usage"]
        after = asked_of(fleet.clients)
        (worker,) = (name for name in after if after[name] > before[name])
        # It knows what the engine is about to find, to the token.
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached == min(there.get(worker, 0), len(ids) - 1)
        workers.add(worker)
        warm += cached >= 100
        picked_warm += pick.matched_length >= 100
    assert workers == set(fleet.servers)
    # Each family is computed once, or twice where loads are evened out.
    assert min(warm, picked_warm) >= 45
    for client in fleet.clients.values():
        stats = client.stats()
        assert stats.free_slots + stats.evictable_size + stats.allocated_slots == NUM_SLOTS

    gone, left = fleet.servers
    fleet.servers[gone].kill()
    end = time.monotonic() + LEFT_WITHIN_S
    chats = [*families(rng, 6)]
    while {picked(fleet.router, tokens({"messages": each})).worker for each in chats} != {left}:
        assert time.monotonic() < end
    while any(ask(fleet.gateway, {"messages": each}).status_code != 200 for each in chats):
        assert time.monotonic() < end
