"""Options for what follows a cache by its events: Dynamo, llm-d and others."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.errors import InvalidArgumentError
from radixkv.extras import missing

if TYPE_CHECKING:
    from radixkv.cache import PrefixCache


@dataclass(frozen=True, slots=True)
class EventFlags:
    """Where events about blocks are published, and how blocks are made and named."""

    kv_events: Annotated[
        str | None,
        typer.Option(
            help="Publish KV events as SGLang and vLLM do, at this address: tcp://*:5557."
        ),
    ] = None
    kv_events_replay: Annotated[
        str | None,
        typer.Option(help="Where a subscriber may ask for what it missed: tcp://*:5558."),
    ] = None
    kv_block_size: Annotated[
        int, typer.Option(help="Tokens a block of these events; some whole pages.")
    ] = 16
    kv_names: Annotated[
        str, typer.Option(help="Name blocks as this engine does: sglang or vllm.")
    ] = "sglang"

    @contextmanager
    def publishing(self, cache: "PrefixCache") -> Iterator[None]:
        """While it lasts, what `cache` holds is published, if it is to be.

        Raises ListenError for an address that is taken, InvalidArgumentError,
        BackendUnavailableError without the packages for it.
        """
        if self.kv_events is None:
            if self.kv_events_replay is not None:
                raise InvalidArgumentError("--kv-events must be given with --kv-events-replay")
            yield
            return
        try:
            from radixkv.integrations.events import BLOCK_NAMES, CacheEvents, EventPublisher
        except ImportError as error:
            raise missing("--kv-events", error.name, "events") from error
        if self.kv_names not in BLOCK_NAMES:
            raise InvalidArgumentError(
                f"--kv-names must be one of {', '.join(BLOCK_NAMES)}; got {self.kv_names!r}"
            )
        names, size = BLOCK_NAMES[self.kv_names](), self.kv_block_size
        publisher = EventPublisher(self.kv_events, self.kv_events_replay)
        with publisher, CacheEvents(cache, publisher, block_size=size, names=names):
            yield
