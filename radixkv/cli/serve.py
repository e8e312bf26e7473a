"""`radixkv serve`: a real model at work, or none, and a server for what its cache holds."""

import signal
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from radixkv.cli.prompts import Inbox, feed, open_prompts
from radixkv.cli.server_options import (
    DrainDelay,
    Insecure,
    Listen,
    LogJson,
    Metrics,
    ServerOptions,
    Tenants,
    TlsCa,
    TlsCert,
    TlsKey,
    Tokens,
    Tracing,
)
from radixkv.cli.show import Json, model_packages

if TYPE_CHECKING:
    from radixkv.cache import PrefixCache
    from radixkv.cli.answering import Answering
    from radixkv.integrations.transformers import Generator
    from radixkv.service import CacheServer

SMOLLM2 = "smollm2"


def serve(
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Hugging Face folder, GGUF file, or {SMOLLM2} for the packaged model; without "
            "one, engines elsewhere own the pool and name it with their leases."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='Prompts, a line each, or JSON lines with "prompt"; else standard input.'
        ),
    ] = None,
    listen: Listen = None,
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tokens: Tokens = None,
    metrics: Metrics = None,
    tenants: Tenants = None,
    tracing: Tracing = False,
    log_json: LogJson = False,
    drain_delay: DrainDelay = 0.0,
    slots: Annotated[int, typer.Option(help="Slots of the KV pool.")] = 8192,
    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 1,
    policy: Annotated[str, typer.Option(help="What is evicted first.")] = "lru",
    estimate_capacity: Annotated[
        bool,
        typer.Option(
            "--estimate-capacity",
            help="Tell by --metrics what half, twice and four times the slots would give.",
        ),
    ] = False,
    max_batch: Annotated[int, typer.Option(help="Requests that run at once.")] = 8,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = 128,
    chat: Annotated[
        bool, typer.Option("--chat", help="Put prompts into the model's chat template.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when all prompts are answered.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that what is running has at SIGTERM.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Run a model on prompts, with a server beside it that tells what its cache holds.

    Without a model the server alone: engines elsewhere take leases, slots and prefixes from it.

    Answers go to standard output, everything else to standard error.

    SIGTERM and SIGINT finish what is running and exit with 0; a second signal ends it at once.
    """
    from radixkv.cache import PrefixCache

    # A model takes a while to load: what is wrong with the rest is told before.
    cache = PrefixCache(
        slots,
        page_size=page_size,
        policy=policy,
        max_requests=max_batch,
        estimate_capacity=estimate_capacity,
    )
    options = ServerOptions(
        *(listen, insecure, tls_cert, tls_key, tls_ca, tokens),
        *(metrics, tenants, tracing, log_json, drain_delay),
    )
    server = options.server(cache, alone=model is None)
    if model is None:
        _serve_alone(server, grace)
        return
    lines = open_prompts(prompts)
    generator, tokenizer = _load(model, cache, max_batch)
    from radixkv.cli.answering import Answering

    answering = Answering(
        generator, tokenizer, max_new_tokens=max_new_tokens, chat=chat, as_json=as_json
    )
    _run(answering, server, lines, once=once, grace_s=grace)


def _serve_alone(server: "CacheServer", grace_s: float) -> None:
    stopping: SimpleQueue[None] = SimpleQueue()

    def stop(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        stopping.put(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with server:
        _say_where(server)
        stopping.get()
        server.stop(grace_s)


def _say_where(server: "CacheServer") -> None:
    print(f"radixkv: listening on {server.address}", file=sys.stderr, flush=True)
    if server.metrics_address is not None:
        print(f"radixkv: metrics on {server.metrics_address}", file=sys.stderr, flush=True)


def _run(
    answering: "Answering", server: "CacheServer", lines: IO[str], *, once: bool, grace_s: float
) -> None:
    inbox: Inbox = SimpleQueue()
    with answering.until_signals(inbox), server:
        _say_where(server)
        feed(inbox, lines)
        is_stopped = answering.run(inbox, once=once)
        server.stop(grace_s)
        if is_stopped:
            answering.drain(grace_s)
    if answering.num_failed and not is_stopped:
        raise typer.Exit(1)


def _load(model: str, cache: "PrefixCache", max_batch: int) -> tuple["Generator", Any]:
    with model_packages():
        from transformers.utils import logging

        from radixkv.integrations.transformers import (
            Generator,
            find_smollm2,
            load_model,
            load_tokenizer,
        )

    logging.disable_progress_bar()
    path = find_smollm2() if model == SMOLLM2 else model
    return Generator(load_model(path), cache=cache, max_batch=max_batch), load_tokenizer(path)
