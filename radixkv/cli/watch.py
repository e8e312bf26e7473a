"""`radixkv watch`: the live log of what becomes cached and what is evicted."""

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from radixkv.cli.show import Json, Target, connect, console, counted, print_json
from radixkv.errors import InvalidArgumentError, ServiceUnavailableError

if TYPE_CHECKING:
    from radixkv.cache.events import Event, Update
    from radixkv.service import Client


def watch(
    target: Target = None,
    salt: Annotated[str | None, typer.Option(help="Only this tenant's salt.")] = None,
    adapter: Annotated[str | None, typer.Option(help="Only this adapter.")] = None,
    extra_key: Annotated[str | None, typer.Option(help="Only this extra key.")] = None,
    after: Annotated[
        str | None,
        typer.Option(
            help="Continue after EPOCH:REVISION instead of starting with the whole cache."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many events; default: never.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, help="Token ids to show of each event.")] = 8,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the server is there.")] = False,
    as_json: Json = False,
) -> None:
    """Show what becomes cached and what is evicted, as it happens; with --json a line an event.

    After a lost connection it continues where it was, once the server is back.
    """
    from radixkv.tree import Namespace

    wanted = Namespace(salt, adapter, extra_key)
    namespace = None if wanted == Namespace() else wanted
    place = None if after is None else _parse_place(after)
    with connect(target) as client, suppress(KeyboardInterrupt):
        _check_server(client, wait=wait)
        with client.watch(namespace, after=place) as updates:
            for update, event in islice(_events(updates), count):
                if as_json:
                    print_json(_values(update, event))
                else:
                    console().print(_line(update, event, tokens), soft_wrap=True)


def _check_server(client: "Client", *, wait: bool) -> None:
    """Log lost connections from now on; raise if there is no server now, unless `wait`.

    A watch by itself is silent while there is no server.
    """
    try:
        client.server_info()
    except ServiceUnavailableError as error:
        if not wait:
            raise
        print(f"radixkv: {error}; waiting for it", file=sys.stderr, flush=True)
    logging.getLogger("radixkv.service.client.watch").setLevel(logging.INFO)


def _parse_place(text: str) -> tuple[int, int]:
    epoch, _, revision = text.partition(":")
    try:
        place = int(epoch), int(revision)
    except ValueError:
        place = 0, 0
    if place[0] < 1 or place[1] < 0:
        raise InvalidArgumentError(
            f"--after must be EPOCH:REVISION, as `radixkv stats` shows them; got {text}"
        )
    return place


def _events(updates: "Iterator[Update]") -> "Iterator[tuple[Update, Event]]":
    for update in updates:
        for event in update.events:
            yield update, event


def _values(update: "Update", event: "Event") -> dict[str, Any]:
    from radixkv.cache.events import Cleared
    from radixkv.tree import Stored

    place = {"epoch": update.epoch, "revision": event.revision, "snapshot": update.is_start}
    change = event.change
    if isinstance(change, Cleared):
        return {**place, "event": "cleared"}
    if isinstance(change, Stored):
        parent = {"parent_run": change.parent_run, "parent_offset": change.parent_offset}
        return {**place, "event": "stored", "run": change.run, **parent, "tokens": change.codes}
    return {**place, "event": "trimmed", "run": change.run, "keep": change.keep}


def _line(update: "Update", event: "Event", tokens: int) -> str:
    values = _values(update, event)
    if values["event"] == "cleared":
        return f"[yellow]{event.revision:>8}  cleared; epoch {update.epoch} begins[/]"
    if values["event"] == "trimmed":
        what = f"keeps {values['keep']}" if values["keep"] else "is gone"
        return f"[red]{event.revision:>8}  run {values['run']} {what}[/]"
    codes, parent = values["tokens"], values["parent_run"]
    below = f"below {parent} at {values['parent_offset']}" if parent else "from the root"
    shown = " ".join(map(str, codes[:tokens].tolist())) + (" ..." if len(codes) > tokens else "")
    mark = "in the cache" if update.is_start else f"+{len(codes):,}"
    size = counted(len(codes), "token")
    line = f"{event.revision:>8}  run {values['run']} {mark}, {size} {below}: "
    return f"[green]{line}[/]{escape(shown)}"
