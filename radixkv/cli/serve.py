"""`radixkv serve`: a real model at work, or none, and a server for what its cache holds."""

import tomllib
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from radixkv.cli.options import with_options
from radixkv.cli.prompts import Inbox, feed, open_prompts
from radixkv.cli.server_options import ServerFlags, say_where, signalled
from radixkv.cli.show import Json, model_packages
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.cache import PrefixCache
    from radixkv.cli.answering import Answering
    from radixkv.integrations.transformers import Generator
    from radixkv.service import CacheServer


@with_options
def serve(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face folder, GGUF file, or smollm2 for the packaged model; without "
            "one, engines elsewhere own the pool and name it with their leases."
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='Prompts, a line each, or JSON lines with "prompt"; else standard input.'
        ),
    ] = None,
    slots: Annotated[int, typer.Option(help="Tokens that the KV pool holds.")] = 8192,
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
    tenants: Annotated[
        Path | None, typer.Option(help='TOML file of alias = "salt", for figures a tenant.')
    ] = None,
    flags: ServerFlags,
    as_json: Json = False,
) -> None:
    """Run a model on prompts, with a server beside it that tells what its cache holds.

    Without a model the server alone: engines elsewhere take leases, slots and prefixes from it. A
    model keeps its slots to itself: its K/V is in this process, where nobody else can write it.

    Answers go to standard output, everything else to standard error.

    SIGTERM and SIGINT finish what is running and exit with 0; a second signal ends it at once.
    """
    from radixkv.cache import PrefixCache
    from radixkv.rpc.limits import DEFAULT_ADDRESS
    from radixkv.rpc.process import keep_freed_memory
    from radixkv.service import CacheServer

    if model is None:
        keep_freed_memory()
        _check_alone({"--prompts": prompts, "--chat": chat, "--once": once})
    # A model takes a while to load: what is wrong with the rest is told before.
    cache = PrefixCache(
        slots,
        page_size=page_size,
        policy=policy,
        max_requests=max_batch,
        estimate_capacity=estimate_capacity,
    )
    server = CacheServer(
        cache,
        flags.listen or DEFAULT_ADDRESS,
        alone=model is None,
        tenants=_read_tenants(tenants),
        **flags.options(),
    )
    if model is None:
        _serve_alone(server, slots, flags.grace)
        return
    lines = open_prompts(prompts)
    generator, tokenizer = _load(model, cache, max_batch)
    from radixkv.cli.answering import Answering

    answering = Answering(
        generator, tokenizer, max_new_tokens=max_new_tokens, chat=chat, as_json=as_json
    )
    what = f"{model} with {slots:,} slots"
    _run(answering, server, lines, what, once=once, grace_s=flags.grace)


def _check_alone(given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value:
            raise InvalidArgumentError(f"{option} takes --model: without one nothing is generated")


def _serve_alone(server: "CacheServer", slots: int, grace_s: float) -> None:
    with signalled() as wait, server:
        say_where(server, f"{slots:,} slots for engines elsewhere")
        wait()
        server.stop(grace_s)


def _run(
    answering: "Answering",
    server: "CacheServer",
    lines: IO[str],
    what: str,
    *,
    once: bool,
    grace_s: float,
) -> None:
    inbox: Inbox = SimpleQueue()
    with answering.until_signals(inbox), server:
        say_where(server, what)
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
            load_model,
            load_tokenizer,
        )

    logging.disable_progress_bar()
    generator = Generator(load_model(model), cache=cache, max_batch=max_batch)
    return generator, load_tokenizer(model)


def _read_tenants(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        tenants = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"--tenants {path}: {error.strerror}") from error
    except ValueError:
        tenants = None
    if tenants is None or not all(isinstance(salt, str) for salt in tenants.values()):
        raise InvalidArgumentError(f'--tenants {path} is no TOML of alias = "salt"')
    return tenants
