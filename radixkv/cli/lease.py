"""`radixkv lease`: what remote clients hold of a server's cache."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from radixkv.cli.show import Json, Target, connect, console, counted, print_json

if TYPE_CHECKING:
    from radixkv.service import Client, LeaseInfo

lease = typer.Typer(help="Leases of a server: what remote clients hold.", no_args_is_help=True)

LeaseId = Annotated[int, typer.Argument(help="Id of a lease, as `radixkv lease list` shows it.")]


@lease.command("list")
def list_(target: Target = None, as_json: Json = False) -> None:
    """All leases, by id."""
    with connect(target) as client:
        found = list(_all(client))
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        console().print(_table(found))


@lease.command()
def show(lease_id: LeaseId, target: Target = None, as_json: Json = False) -> None:
    """One lease."""
    with connect(target) as client:
        found = client.lease_info(lease_id)
    if as_json:
        print_json(asdict(found))
    else:
        console().print(_table([found]))


@lease.command()
def revoke(lease_id: LeaseId, target: Target = None, as_json: Json = False) -> None:
    """End a lease: its pins are dropped, its slots are free after the server's grace."""
    with connect(target) as client:
        epoch = client.lease_info(lease_id).epoch
        num_pins, num_slots = client.revoke_lease(lease_id, epoch)
    if as_json:
        print_json({"num_pins": num_pins, "num_slots": num_slots})
    else:
        held = f"{counted(num_pins, 'pin')}, {counted(num_slots, 'slot')}"
        console().print(f"lease {lease_id} has ended: {held}")


def _all(client: "Client") -> "Iterator[LeaseInfo]":
    token = ""
    while True:
        page = client.leases(token)
        yield from page.leases
        token = page.next_page_token
        if not token:
            return


def _table(leases: "list[LeaseInfo]") -> Table:
    table = Table(
        "lease", "holder", "pool", title=counted(len(leases), "lease"), title_justify="left"
    )
    for name in ("ttl", "left", "pins", "slots"):
        table.add_column(name, justify="right")
    for each in leases:
        numbers = (f"{each.num_pins:,}", f"{each.num_slots:,}")
        times = (f"{each.ttl_s:g} s", f"{each.remaining_s:.1f} s")
        table.add_row(str(each.id), escape(each.holder), escape(each.pool_id), *times, *numbers)
    return table
