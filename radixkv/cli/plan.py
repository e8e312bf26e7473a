"""`radixkv plan`: what fits in a memory budget, and what page sizes waste."""

import codecs
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, pairs, print_json

_NUMBERS = re.compile(rb"[\d\s,;]*")

if TYPE_CHECKING:
    from radixkv.memory.plan import CapacityPlan, LengthMix


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The model whose K and V take the memory."""

    model: Annotated[Path | None, typer.Option(help="config.json of the model, or its folder.")] = (
        None
    )
    layers: Annotated[int | None, typer.Option(help="Layers, where there is no --model.")] = None
    kv_heads: Annotated[int | None, typer.Option(help="KV heads a layer.")] = None
    head_dim: Annotated[int | None, typer.Option(help="Size of a head.")] = None
    dtype: Annotated[
        str | None,
        typer.Option(help="Type of K and V, such as bfloat16 or fp8; by default the model's."),
    ] = None
    tp: Annotated[int, typer.Option(help="GPUs that divide the KV heads.")] = 1


@dataclass(frozen=True, slots=True)
class LengthOptions:
    """Requests whose lengths show what page sizes waste."""

    lengths: Annotated[
        Path | None,
        typer.Option(
            help="Request lengths, to see what page sizes waste: numbers, or a log as the lab "
            "reads it."
        ),
    ] = None
    length: Annotated[str | None, typer.Option(help="Column of --lengths that has the tokens.")] = (
        None
    )
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer of --lengths, where it is a log of text.")
    ] = None

    def read(self) -> list[int]:
        """The lengths in tokens; none without --lengths."""
        return [] if self.lengths is None else _lengths(self.lengths, self.length, self.tokenizer)


@with_options
def plan(
    memory: Annotated[
        str, typer.Option(help="Memory for K and V on one GPU, such as 55GiB or 55G.")
    ],
    context: Annotated[int, typer.Option(help="Tokens a request takes.")],
    of: ModelOptions,
    mix: LengthOptions,
    reserve: Annotated[
        int | None, typer.Option(help="Longest context, by default --context.")
    ] = None,
    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 1,
    as_json: Json = False,
) -> None:
    """How many requests fit in a memory budget, paged and reserved for the longest context."""
    from radixkv.memory.model import read_model
    from radixkv.memory.plan import plan_capacity

    found = plan_capacity(
        layers=of.layers,
        kv_heads=of.kv_heads,
        head_dim=of.head_dim,
        model=read_model(of.model) if of.model is not None else None,
        dtype=of.dtype,
        memory=memory,
        context=context,
        reserve=reserve,
        page_size=page_size,
        ranks=of.tp,
        lengths=mix.read(),
    )
    if as_json:
        print_json(found.to_dict())
        return
    console().print(_capacity(found))
    if found.lengths is not None:
        console().print(_waste(found.lengths))


def _lengths(path: Path, column: str | None, tokenizer: str | None) -> list[int]:
    """Numbers alone, or the prompts and answers of a log."""
    from radixkv.lab.logs.packed import read_lines
    from radixkv.lab.logs.reading import Reading, read_log
    from radixkv.memory.plan import read_lengths

    first = next((text for _, text in read_lines(path) if text.strip()), b"")
    if column is None and _NUMBERS.fullmatch(first.removeprefix(codecs.BOM_UTF8).strip()):
        return read_lengths(path)
    log = read_log(path, Reading(length=column, tokenizer=tokenizer))
    found: list[int] = (log.lengths + log.output_lengths).tolist()
    return found


def _capacity(found: "CapacityPlan") -> Table:
    rows: list[tuple[str, Any]] = []
    if found.window_bytes:
        rows.append((f"of those in windows of {found.window:,}", found.window_bytes))
    if found.state_layers:
        rows.append(("layers with a state, not counted", found.state_layers))
    per_gpu = f", {found.dtype}" + (f", each of {found.ranks} GPUs" if found.ranks > 1 else "")
    return pairs(
        f"{found.memory_bytes / 2**30:,.1f} GiB at page size {found.page_size}",
        [
            (f"bytes a token{per_gpu}", found.bytes_per_token),
            *rows,
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
