"""`radixkv top`: a live table of workers."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from radixkv.cli.show import LONGEST_PAUSE_S, Json, connect, console, counted, print_json, show_live
from radixkv.errors import RadixKVError

if TYPE_CHECKING:
    from radixkv.service import Client, ServerStats

_SIZES = ("slots", "free", "private", "cached", "in use", "pins", "leases")
_COLUMNS = (*_SIZES, "hit rate", "revision")


@dataclass(slots=True)
class _Look:
    """One worker at one moment. hit_rate: of what was looked up since the update before."""

    target: str
    stats: "ServerStats | None"
    hit_rate: float | None = None
    error: str = ""


def top(
    targets: Annotated[
        list[str] | None,
        typer.Argument(envvar="RADIXKV_TARGET", help="Servers to show, host:port or unix:/path."),
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.1, max=LONGEST_PAUSE_S, help="Seconds between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one update and end.")] = False,
    as_json: Json = False,
) -> None:
    """Show sizes and hit rates of any number of servers, live; with --json a line an update.

    Private slots belong to requests under way. Cached tokens in use are not evicted. The hit rate
    is that since the update before. With --once, exit code 1 if no server answers.
    """
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        clients = [stack.enter_context(connect(target)) for target in targets or [""]]
        looks = _looks(clients)
        if once:
            _show_once(next(looks), as_json)
        elif as_json:
            for look in looks:
                print_json([_values(each) for each in look])
                time.sleep(every)
        else:
            show_live(map(_frame, looks), every)


def _show_once(look: list[_Look], as_json: bool) -> None:
    if as_json:
        print_json([_values(each) for each in look])
    else:
        console().print(_frame(look))
    if all(each.stats is None for each in look):
        raise typer.Exit(1)


def _looks(clients: "list[Client]") -> Iterator[list[_Look]]:
    before: dict[str, ServerStats] = {}
    while True:
        look = [_look(client, before.get(client.target)) for client in clients]
        before |= {each.target: each.stats for each in look if each.stats is not None}
        yield look


def _look(client: "Client", before: "ServerStats | None") -> _Look:
    try:
        now = client.stats(timeout_s=1.0)
    except RadixKVError as error:
        return _Look(client.target, None, error=str(error))
    looked_up = now.lookup_tokens - (before.lookup_tokens if before else 0)
    found = now.hit_tokens - (before.hit_tokens if before else 0)
    # A server that restarted counts from 0 again.
    return _Look(client.target, now, found / looked_up if looked_up > 0 else None)


def _values(look: _Look) -> dict[str, Any]:
    if look.stats is None:
        return {"target": look.target, "error": look.error}
    return {"target": look.target, **asdict(look.stats), "hit_rate": look.hit_rate}


def _frame(look: list[_Look]) -> RenderableType:
    """A table that fits 80 columns, and below it the errors of workers that do not answer."""
    title = counted(len(look), "worker")
    table = Table(
        "worker", title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, expand=False
    )
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for each in look:
        table.add_row(each.target, *_cells(each.stats, each.hit_rate))
    return Group(table, *(Text(each.error, "red") for each in look if each.stats is None))


def _cells(stats: "ServerStats | None", hit_rate: float | None) -> list[str]:
    if stats is None:
        return ["-"] * len(_COLUMNS)
    cached = stats.evictable_size + stats.protected_size
    slots = stats.free_slots + stats.allocated_slots + stats.waiting_slots + cached
    sizes = (
        slots,
        stats.free_slots,
        stats.allocated_slots,
        cached,
        stats.protected_size,
        stats.num_pins,
        stats.num_leases,
    )
    rate = "-" if hit_rate is None else f"{hit_rate:.1%}"
    return [*map(_short, sizes), rate, str(stats.revision)]


def _short(number: int) -> str:
    """At most six characters: 9999, 98.3k, 1000k, 65.5M."""
    if number < 10_000:
        return str(number)
    size, unit = (1_000, "k") if number < 10_000_000 else (1_000_000, "M")
    return f"{number / size:.{int(number < 100 * size)}f}{unit}"
