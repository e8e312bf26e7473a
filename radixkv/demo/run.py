"""The demo from beginning to end."""

import statistics
import time

from rich.console import Console
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from radixkv.demo import show
from radixkv.demo.chats import Chat, load_chats
from radixkv.demo.serving import BothWays, Served
from radixkv.errors import RadixKVError
from radixkv.integrations.transformers import load_model, load_tokenizer
from radixkv.service import CacheServer, Client
from radixkv.tree import Namespace

NUM_SLOTS = 4096


def run(console: Console) -> None:
    """Serve all chats and print what happens. Raises RadixKVError if an answer differs."""
    began = time.perf_counter()
    with console.status(
        "loading SmolLM2-135M-Instruct (the first time it is converted: 20 to 40 s)"
    ):
        logging.disable_progress_bar()  # its bars would mix with ours
        model, tokenizer = load_model("smollm2"), load_tokenizer("smollm2")
    chats = load_chats()
    engines = BothWays(model, NUM_SLOTS)
    with (
        CacheServer(engines.cached.cache, "127.0.0.1:0") as server,
        Client(server.address) as client,
    ):
        show.opening(console, chats, client.server_info(), server.address)
        served = []
        for turn in range(len(chats[0].says)):
            served += _serve_turn(console, turn, chats, tokenizer, engines, client)
        _match_a_new_prompt(console, chats, tokenizer, client)
        show.totals(console, served, engines.cached.cache.stats(), client.stats())
    _conclude(console, served, time.perf_counter() - began)


def _serve_turn(
    console: Console,
    turn: int,
    chats: list[Chat],
    tokenizer: PreTrainedTokenizerBase,
    engines: BothWays,
    client: Client,
) -> list[Served]:
    prompts = [chat.ask(turn, tokenizer) for chat in chats]
    with console.status(f"turn {turn + 1}: {len(prompts)} prompts, with the cache and without"):
        served = engines.serve(prompts, client)
    for chat, each in zip(chats, served, strict=True):
        chat.answer(str(tokenizer.decode(each.with_cache.tokens, skip_special_tokens=True)))
    show.turn(console, turn, chats, served)
    return served


def _match_a_new_prompt(
    console: Console, chats: list[Chat], tokenizer: PreTrainedTokenizerBase, client: Client
) -> None:
    """Match a new chat under a known system prompt, as a router would."""
    new = Chat("new", ["Good morning! Who are you?"], chats[0].messages[:1])
    prompt = new.ask(0, tokenizer)
    everyone = client.match(prompt, probe=True).lengths[0]
    tenant = client.match(prompt, Namespace(salt="another tenant"), probe=True).lengths[0]
    show.answers(console, len(prompt), everyone, tenant)


def _conclude(console: Console, served: list[Served], seconds: float) -> None:
    equal = sum(each.is_equal for each in served)
    if equal < len(served):
        raise RadixKVError(
            f"{len(served) - equal} of {len(served)} answers differ with the cache and without"
        )
    numbers = [each.with_cache.numbers for each in served]
    prompt = sum(each.prompt_tokens for each in numbers)
    cached = sum(each.cached_tokens for each in numbers)
    ratio = statistics.median(map(show.speed_up, served))
    console.print(
        f"demo: {cached:,} of {prompt:,} prompt tokens ({cached / prompt:.1%}) served from cache, "
        f"first token {ratio:.1f} x sooner (median), {equal} of {len(served)} answers equal, "
        f"{seconds:.0f} s",
        soft_wrap=True,
    )
