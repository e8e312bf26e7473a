"""`radixkv match`: how much of a prompt a server holds."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.options import with_options
from radixkv.cli.show import Json, Target, connect, console, print_json
from radixkv.errors import BackendUnavailableError, InvalidArgumentError, InvalidTokensError

if TYPE_CHECKING:
    from radixkv.tree import Namespace

_TOKENIZERS = "a tokenizer.json, a folder with one, a .gguf file, or smollm2"
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """The prompts that are matched."""

    ids: Annotated[
        list[str] | None,
        typer.Option(
            help="Token ids of a prompt, separated by commas; -: prompts from standard input, "
            "as 1,2,3 or [1, 2, 3]. May be repeated."
        ),
    ] = None
    text: Annotated[
        list[str] | None, typer.Option(help="Text of a prompt; needs --tokenizer. May be repeated.")
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(help=f"For --text: {_TOKENIZERS}."),
    ] = None

    def read(self) -> list[list[int]]:
        """Their token ids. Raises InvalidArgumentError without a prompt."""
        prompts = [prompt for item in self.ids or () for prompt in _prompts(item)]
        prompts += _encode(self.text or [], self.tokenizer)
        if not prompts:
            raise InvalidArgumentError(
                "a prompt must be given: --ids 1,2,3, or --text with --tokenizer"
            )
        return prompts


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    """The namespace that is looked in."""

    salt: Annotated[str | None, typer.Option(help="Tenant salt of the namespace.")] = None
    adapter: Annotated[str | None, typer.Option(help="Adapter of the namespace.")] = None
    extra_key: Annotated[str | None, typer.Option(help="Extra key of the namespace.")] = None
    weight_version: Annotated[int, typer.Option(help="Weight version; 0: the current one.")] = 0

    def named(self) -> "Namespace":
        """The namespace. Raises InvalidNamespaceError."""
        from radixkv.tree import Namespace

        return Namespace(self.salt, self.adapter, self.extra_key, self.weight_version)


@with_options
def match(
    given: PromptOptions,
    namespace: NamespaceOptions,
    target: Target = None,
    slots: Annotated[
        bool, typer.Option("--slots", help="Also show the slots; counts as use.")
    ] = False,
    leave_last: Annotated[
        bool, typer.Option("--leave-last", help="Match at most all but the last token.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask a server how much of each prompt is cached. Changes nothing, except with --slots.

    Example: echo '[1, 2, 3]' | radixkv match --ids -
    """
    prompts = given.read()
    with connect(target) as client:
        reply = client.match(
            prompts,
            namespace.named(),
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


def _prompts(item: str) -> Iterator[list[int]]:
    """The prompts of one --ids: its ids, or the lines of standard input."""
    lines = sys.stdin if item == "-" else [item]
    yield from (_parse_ids(line.strip()) for line in lines if line.strip() or item != "-")


def _parse_ids(text: str) -> list[int]:
    inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        return [int(word) for word in inside.replace(",", " ").split()]
    except ValueError:
        shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        raise InvalidTokensError(f"--ids must be token ids, as 1,2,3; got {shown!r}") from None


def _encode(texts: list[str], tokenizer: str | None) -> list[list[int]]:
    if not texts:
        return []
    from radixkv.prompts.gguf import gguf_file

    if tokenizer is None:
        raise InvalidArgumentError(f"--tokenizer must be given with --text: {_TOKENIZERS}")
    _check_text(texts)
    path = Path(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    gguf = gguf_file(tokenizer)
    if gguf is None and not (file.suffix == ".json" and file.is_file()):
        raise InvalidArgumentError(f"--tokenizer must be {_TOKENIZERS}; got {tokenizer!r}")
    encoder = _encoder_of(file if gguf is None else gguf)
    return [encoder.encode(item).ids for item in texts]


def _check_text(texts: list[str]) -> None:
    """Raises InvalidArgumentError for bytes that the shell passed on and that are not UTF-8."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError("--text must be UTF-8; got other bytes") from None


def _encoder_of(file: Path) -> Any:
    from radixkv.prompts.gguf import tokenizer_json

    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BackendUnavailableError("--text needs tokenizers: pip install tokenizers") from None
    if file.suffix == ".gguf":
        return Tokenizer.from_str(tokenizer_json(file))
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises nothing narrower
        reason = f"--tokenizer {file} must be a tokenizer.json: {error}"
        raise InvalidArgumentError(reason) from error


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
