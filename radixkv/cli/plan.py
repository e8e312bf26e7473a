"""`radixkv plan`: what fits in a memory budget, and what page sizes waste."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from radixkv.cli.show import Json, console, pairs, print_json

if TYPE_CHECKING:
    from radixkv.memory.plan import CapacityPlan, LengthMix


def plan(
    layers: Annotated[int, typer.Option(help="Layers of the model.")],
    kv_heads: Annotated[int, typer.Option(help="KV heads a layer.")],
    head_dim: Annotated[int, typer.Option(help="Size of a head.")],
    memory: Annotated[str, typer.Option(help="Memory for K and V, such as 55GiB.")],
    context: Annotated[int, typer.Option(help="Tokens a request takes.")],
    dtype: Annotated[str, typer.Option(help="Type of K and V.")] = "bfloat16",
    reserve: Annotated[
        int | None, typer.Option(help="Longest context, by default --context.")
    ] = None,
    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 1,
    lengths: Annotated[
        Path | None, typer.Option(help="File of request lengths, to see what page sizes waste.")
    ] = None,
    as_json: Json = False,
) -> None:
    """How many requests fit in a memory budget, paged and reserved for the longest context."""
    from radixkv.memory.plan import plan_capacity, read_lengths

    found = plan_capacity(
        layers=layers,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=dtype,
        memory=memory,
        context=context,
        reserve=reserve,
        page_size=page_size,
        lengths=read_lengths(lengths) if lengths is not None else (),
    )
    if as_json:
        print_json(found.to_dict())
        return
    console().print(_capacity(found))
    if found.lengths is not None:
        console().print(_waste(found.lengths))


def _capacity(found: "CapacityPlan") -> Table:
    return pairs(
        f"{found.memory_bytes / 2**30:,.1f} GiB at page size {found.page_size}",
        [
            ("bytes a token", found.bytes_per_token),
            ("slots", found.num_slots),
            (f"requests of {found.context:,} tokens, paged", found.requests_paged),
            (f"the same, each reserved {found.reserve:,}", found.requests_reserved),
        ],
    )


def _waste(mix: "LengthMix") -> Table:
    table = Table(title=f"{mix.count:,} requests, {mix.tokens:,} tokens", title_justify="left")
    for column in ("page size", "used", "wasted tokens"):
        table.add_column(column, justify="right")
    table.add_row("reserved", f"{mix.reserved_used_fraction:.1%}", "")
    for use in mix.paged:
        table.add_row(f"{use.page_size:,}", f"{use.used_fraction:.1%}", f"{use.wasted_tokens:,}")
    return table
