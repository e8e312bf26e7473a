"""`radixkv top`: a live table of workers."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from radixkv.cli.show import Json, connect, console, print_json
from radixkv.errors import RadixKVError

if TYPE_CHECKING:
    from radixkv.service import Client, ServerStats

_NUMBERS = ("slots", "free", "private", "evictable", "protected", "waiting", "pins", "leases")


@dataclass(slots=True)
class _Look:
    """One worker at one moment. hit_rate: of what was looked up since the look before."""

    target: str
    stats: "ServerStats | None"
    hit_rate: float | None = None
    error: str = ""


def top(
    targets: Annotated[
        list[str] | None,
        typer.Argument(envvar="RADIXKV_TARGET", help="Servers to show, host:port or unix:/path."),
    ] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Json = False,
) -> None:
    """Show sizes and hit rates of any number of servers, live; with --json a line a look."""
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        clients = [stack.enter_context(connect(target)) for target in targets or [""]]
        looks = _looks(clients)
        if as_json:
            for look in looks:
                print_json([_values(each) for each in look])
                if once:
                    return
                time.sleep(every)
        elif once:
            console().print(_table(next(looks)))
        else:
            with Live(console=console(), auto_refresh=False) as live:
                for look in looks:
                    live.update(_table(look), refresh=True)
                    time.sleep(every)


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


def _table(look: list[_Look]) -> Table:
    table = Table("worker", title=f"{len(look)} workers", title_justify="left")
    for name in (*_NUMBERS, "hit rate", "revision"):
        table.add_column(name, justify="right")
    for each in look:
        table.add_row(each.target, *_cells(each))
    return table


def _cells(look: _Look) -> list[str]:
    stats = look.stats
    if stats is None:
        return ["[red]no answer[/]"]
    sizes = (
        stats.free_slots,
        stats.allocated_slots,
        stats.evictable_size,
        stats.protected_size,
        stats.waiting_slots,
    )
    numbers = (sum(sizes), *sizes, stats.num_pins, stats.num_leases)
    rate = "-" if look.hit_rate is None else f"{look.hit_rate:.1%}"
    return [*(f"{number:,}" for number in numbers), rate, f"{stats.revision:,}"]
