"""`radixkv match`: how much of a prompt a server holds."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.show import Json, Target, connect, console, print_json
from radixkv.errors import BackendUnavailableError, InvalidArgumentError, InvalidTokensError


def match(
    ids: Annotated[
        list[str] | None,
        typer.Option(help="Token ids of a prompt, apart by commas. May be repeated."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Text of a prompt; takes --tokenizer. May be repeated.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json for --text.")] = None,
    target: Target = None,
    salt: Annotated[str | None, typer.Option(help="Tenant salt of the namespace.")] = None,
    adapter: Annotated[str | None, typer.Option(help="Adapter of the namespace.")] = None,
    extra_key: Annotated[str | None, typer.Option(help="Extra key of the namespace.")] = None,
    weight_version: Annotated[int, typer.Option(help="Weight version; 0: the present one.")] = 0,
    slots: Annotated[
        bool, typer.Option("--slots", help="Also show the slots; counts as use.")
    ] = False,
    leave_last: Annotated[
        bool, typer.Option("--leave-last", help="Match at most all but the last token.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask a server how much of each prompt is cached. Changes nothing, except with --slots."""
    from radixkv.tree import Namespace

    prompts = [_parse_ids(item) for item in ids or ()] + _encode(text or [], tokenizer)
    if not prompts:
        raise InvalidArgumentError("give a prompt: --ids 1,2,3, or --text with --tokenizer")
    with connect(target) as client:
        reply = client.match(
            prompts,
            Namespace(salt, adapter, extra_key, weight_version),
            probe=not slots,
            want_slots=slots,
            leave_last_token=leave_last,
        )
    rows = [
        {"tokens": len(prompt), "matched_length": found.length, "slots": found.slots}
        for prompt, found in zip(prompts, reply.matches, strict=True)
    ]
    if as_json:
        print_json({"epoch": reply.epoch, "revision": reply.revision, "matches": rows})
    else:
        console().print(_table(rows, slots))


def _parse_ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise InvalidTokensError(f"--ids {text!r} are no token ids; write them as 1,2,3") from None


def _encode(texts: list[str], tokenizer: Path | None) -> list[list[int]]:
    if not texts:
        return []
    if tokenizer is None:
        raise InvalidArgumentError("--text takes --tokenizer FILE, a tokenizer.json")
    if not tokenizer.is_file():
        raise InvalidArgumentError(f"--tokenizer {tokenizer} is no file")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BackendUnavailableError("--text needs tokenizers: pip install tokenizers") from None
    try:
        encoder = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the package raises nothing narrower
        reason = f"--tokenizer {tokenizer} is no tokenizer.json: {error}"
        raise InvalidArgumentError(reason) from error
    return [encoder.encode(item).ids for item in texts]


def _table(rows: list[dict[str, Any]], slots: bool) -> Table:
    table = Table("prompt", "tokens", "cached", "share")
    for column in table.columns:
        column.justify = "right"
    if slots:
        table.add_column("slots")
    for at, row in enumerate(rows):
        share = f"{row['matched_length'] / row['tokens']:.0%}"
        shown = [" ".join(map(str, row["slots"]))] if slots else []
        table.add_row(str(at), f"{row['tokens']:,}", f"{row['matched_length']:,}", share, *shown)
    return table
