"""`radixkv stats`: the sizes and counters of a server, once or live."""

import itertools
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.show import (
    LONGEST_PAUSE_S,
    Json,
    Target,
    connect,
    console,
    pairs,
    print_json,
    show_live,
)

if TYPE_CHECKING:
    from radixkv.service import Client, ServerInfo, ServerStats


def stats(
    target: Target = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Repeat until interrupted; with --json a line each time."),
    ] = False,
    every: Annotated[
        float,
        typer.Option(min=0.1, max=LONGEST_PAUSE_S, help="Seconds between updates of --watch."),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Show the sizes and the hit rate of a server's cache."""
    with connect(target) as client, suppress(KeyboardInterrupt):
        info = client.server_info()
        if as_json:
            _print_lines(client, info, every if watch else None)
        elif not watch:
            console().print(_table(info, client.stats()))
        else:
            show_live((_table(info, client.stats()) for _ in itertools.count()), every)


def _print_lines(client: "Client", info: "ServerInfo", every: float | None) -> None:
    while True:
        print_json(_values(info, client.stats()))
        if every is None:
            return
        time.sleep(every)


def _values(info: "ServerInfo", now: "ServerStats") -> dict[str, Any]:
    return {**asdict(info), **asdict(now), "hit_rate": _hit_rate(now)}


def _hit_rate(now: "ServerStats") -> float | None:
    return now.hit_tokens / now.lookup_tokens if now.lookup_tokens else None


def _table(info: "ServerInfo", now: "ServerStats") -> Table:
    rate = _hit_rate(now)
    return pairs(
        f"radixkv {info.version}, {info.core} core, page size {info.page_size}",
        [
            ("slots", info.num_slots),
            ("free", now.free_slots),
            ("private to requests", now.allocated_slots),
            ("cached, evictable", now.evictable_size),
            ("cached, protected", now.protected_size),
            ("waiting", now.waiting_slots),
            ("nodes", now.num_nodes),
            ("looked up", now.lookup_tokens),
            ("of those cached", now.hit_tokens),
            ("hit rate", "-" if rate is None else f"{rate:.1%}"),
            ("evicted", now.evicted_tokens),
            ("epoch", str(now.epoch)),
            ("revision", now.revision),
        ],
    )
