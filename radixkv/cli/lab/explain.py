"""`radixkv lab explain`: why requests miss."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from radixkv.cli.lab.options import CacheOptions, LogOptions, bar
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, print_json

if TYPE_CHECKING:
    from radixkv.lab.report.findings import MissFinding


_BEFORE = 50  # characters of the text before a place
_MARK = "▸"  # before the first token of the finding


@with_options
def lab_explain(
    log: LogOptions,
    cache: CacheOptions,
    most: Annotated[int, typer.Option(min=0, help="Findings to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Why tokens were not in the cache: one cause for each, the biggest findings first."""
    from radixkv.lab.logs.tokenizing import load_tokenizer
    from radixkv.lab.report.findings import findings
    from radixkv.lab.report.misses import CAUSES, explain

    setting = cache.setting()
    _, requests = log.read_contents()
    with bar("explaining", len(requests)) as progress:
        explained = explain(requests, setting, progress=progress)
    tokenizer = load_tokenizer(log.tokenizer) if log.tokenizer else None
    found = findings(requests, explained, tokenizer, most)
    answer = {
        "prompt_tokens": explained.prompt_tokens,
        "computed_tokens": explained.computed_tokens,
        "causes": explained.totals(),
        "findings": found,
    }
    if as_json:
        print_json(answer)
    else:
        screen, computed = console(), explained.computed_tokens
        shown = [_shown(at, each, computed, screen.width) for at, each in enumerate(found, 1)]
        screen.print(Group(_causes(answer, CAUSES), *shown))


def _causes(answer: dict[str, Any], meanings: dict[str, str]) -> Table:
    computed, prompt = answer["computed_tokens"], answer["prompt_tokens"]
    share = computed / prompt if prompt else 0
    table = Table(
        "cause",
        "a token that",
        title=f"{computed:,} of {prompt:,} prompt tokens were computed ({share:.1%})",
        title_justify="left",
    )
    table.add_column("tokens", justify="right")
    table.add_column("of those computed", justify="right")
    for cause, tokens in answer["causes"].items():
        if tokens:
            table.add_row(cause, meanings[cause], f"{tokens:,}", f"{tokens / computed:.1%}")
    return table


def _shown(at: int, found: "MissFinding", computed: int, width: int) -> Text:
    from radixkv.lab.printable import on_one_line

    before = "   …" + on_one_line(found.before)[-min(_BEFORE, width // 3) :] + _MARK
    room = width - len(before) - 1
    here, there = (on_one_line(text)[:room] + "…\n" for text in (found.here, found.there))
    ago = "" if found.requests_ago is None else f", a median {found.requests_ago:g} requests ago"
    text = Text.assemble(
        (f"\n{at}. {found.tokens:,} tokens ({found.tokens / computed:.1%})", "bold"),
        f" in {found.requests:,} request{'s' * (found.requests > 1)}: {found.what}{ago}\n",
        f"   such as request {found.request}, tokens {found.start:,} to {found.end:,}",
        f" (see request {found.other})\n" if found.other is not None else "\n",
        (before, "dim"),
        (here, "yellow"),
    )
    if found.there:
        text.append("   there ".ljust(len(before)) + there, "cyan")
    return text.append(_advice(found), "green")


def _advice(found: "MissFinding") -> str:
    if not found.advice:
        return ""
    start = "what would help"
    if found.movable_in is not None:
        place = "those of request {} in request {}".format(*found.movable_in)
        start = f"about {found.movable_tokens:,} tokens are in earlier requests too, as {place}"
    return f"   {start}: {found.advice}\n"
