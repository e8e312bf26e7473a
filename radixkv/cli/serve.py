"""`radixkv serve`: a server of a cache, with a model that uses it or for engines elsewhere."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from radixkv.cli.event_options import EventFlags
from radixkv.cli.options import with_options
from radixkv.cli.prompts import Inbox, feed, open_prompts
from radixkv.cli.server_options import ServerFlags, reloading, say_where, signalled
from radixkv.cli.show import Json, model_packages
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.cache import PrefixCache
    from radixkv.cli.serve_loop import ServeLoop
    from radixkv.integrations.transformers import Generator
    from radixkv.service import CacheServer


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The cache that is served."""

    slots: Annotated[int, typer.Option(help="Tokens that the KV pool holds.")] = 8192
    page_size: Annotated[int, typer.Option(help="Tokens in a page.")] = 1
    policy: Annotated[str, typer.Option(help="Eviction policy.")] = "lru"
    shares: Annotated[
        Path | None,
        typer.Option(
            help=r"TOML file of \[\[share]] with salt, reserve (tokens that are not evicted for "
            "others) and cap (most that is kept)."
        ),
    ] = None
    estimate_capacity: Annotated[
        bool,
        typer.Option(
            "--estimate-capacity",
            help="Report with --metrics the hit rates of half, twice and four times the slots.",
        ),
    ] = False

    def new_cache(self, max_requests: int) -> "PrefixCache":
        """An empty cache. Raises InvalidArgumentError."""
        from radixkv.cache import PrefixCache
        from radixkv.tree.shares_file import read_shares

        return PrefixCache(
            self.slots,
            page_size=self.page_size,
            policy=self.policy,
            max_requests=max_requests,
            estimate_capacity=self.estimate_capacity,
            shares={} if self.shares is None else read_shares(self.shares),
        )


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What a model answers, and how."""

    prompts: Annotated[
        Path | None,
        typer.Option(
            help='Prompts, a line each, or JSON lines with "prompt"; default: standard input.'
        ),
    ] = None
    max_batch: Annotated[int, typer.Option(help="Requests that run at once.")] = 8
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens in an answer.")] = 128
    chat: Annotated[
        bool, typer.Option("--chat", help="Put prompts into the model's chat template.")
    ] = False
    once: Annotated[bool, typer.Option("--once", help="Exit when all prompts are answered.")] = (
        False
    )

    def check_unused(self) -> None:
        """Raises InvalidArgumentError for options that need a model."""
        given = {"--prompts": self.prompts, "--chat": self.chat, "--once": self.once}
        for option, value in given.items():
            if value:
                raise InvalidArgumentError(
                    f"--model must be given with {option}: without one nothing is generated"
                )


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
    pool: PoolOptions,
    answers: AnswerOptions,
    tenants: Annotated[
        Path | None, typer.Option(help='TOML file of alias = "salt", for metrics by tenant.')
    ] = None,
    flags: ServerFlags,
    events: EventFlags,
    as_json: Json = False,
) -> None:
    """Run a model on prompts, with a server of its cache next to it.

    Without a model, serve a cache alone: engines elsewhere take leases, slots and prefixes from it.
    A model keeps its slots to itself: its K/V is in this process, which no other can write.

    Answers go to standard output, everything else to standard error.

    SIGTERM and SIGINT finish what is running and exit with 0; a second signal ends it at once.
    SIGHUP has the tokens file read again.
    """
    from radixkv.rpc.limits import DEFAULT_ADDRESS
    from radixkv.rpc.process import collect_rarely, keep_freed_memory
    from radixkv.service import CacheServer

    if model is None:
        keep_freed_memory()
        collect_rarely()
        answers.check_unused()
    # A model takes a while to load: errors of all else come first.
    cache = pool.new_cache(answers.max_batch)
    server = CacheServer(
        cache,
        DEFAULT_ADDRESS if flags.listen is None else flags.listen,
        alone=model is None,
        tenants=_read_tenants(tenants),
        **flags.options(),
    )
    with events.publishing(cache):
        if model is None:
            _serve_alone(server, pool.slots, flags.grace)
            return
        lines = open_prompts(answers.prompts)
        generator, tokenizer = _load(model, cache, answers.max_batch)
        from radixkv.cli.serve_loop import ServeLoop

        loop = ServeLoop(
            generator,
            tokenizer,
            max_new_tokens=answers.max_new_tokens,
            chat=answers.chat,
            as_json=as_json,
        )
        what = f"{model} with {pool.slots:,} slots"
        _run(loop, server, lines, what, once=answers.once, grace_s=flags.grace)


def _serve_alone(server: "CacheServer", slots: int, grace_s: float) -> None:
    with signalled() as wait, reloading(server), server:
        say_where(server, f"{slots:,} slots for engines elsewhere")
        wait()
        server.stop(grace_s)


def _run(
    loop: "ServeLoop",
    server: "CacheServer",
    lines: IO[str],
    what: str,
    *,
    once: bool,
    grace_s: float,
) -> None:
    inbox: Inbox = SimpleQueue()
    with loop.until_signals(inbox), reloading(server), server:
        say_where(server, what)
        feed(inbox, lines)
        is_stopped = loop.run(inbox, once=once)
        server.stop(grace_s)
        if is_stopped:
            loop.drain(grace_s)
    if loop.num_failed and not is_stopped:
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
        raise InvalidArgumentError(
            f'--tenants {path} must be TOML of alias = "salt"; got other text'
        )
    return tenants
