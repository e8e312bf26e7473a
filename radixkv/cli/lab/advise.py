"""`radixkv lab advise`: what to do with a log, in one paragraph."""

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.cli.lab.options import (
    CacheOptions,
    CardOptions,
    Jobs,
    LogOptions,
    PrefillOptions,
    Target,
    bar,
)
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, print_json
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.lab.report.advice import FirstToken


@with_options
def lab_advise(
    log: LogOptions,
    cache: CacheOptions,
    prefill: PrefillOptions,
    card: CardOptions,
    target: Target = None,
    ttft_p95: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Seconds in which 95 % of first tokens must come."),
    ] = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """How much room a log takes for a hit rate, which policy and order, and what to move."""
    from radixkv.lab.report.advice import advise, check_target

    setting, serving, wanted = cache.setting(), prefill.serving(), check_target(target)
    sooner = _first_token(ttft_p95, card)
    _, requests = log.read_contents()
    with bar("replaying", 0) as progress:
        found = advise(
            requests,
            setting,
            target=wanted,
            serving=serving,
            first_token=sooner,
            jobs=jobs,
            progress=progress,
        )
    if as_json:
        print_json({"advice": found.paragraph(), **asdict(found)})
    else:
        screen = console()
        screen.print(textwrap.fill(found.paragraph(), min(screen.width, 100)), markup=False)


def _first_token(seconds: float | None, card: CardOptions) -> "FirstToken | None":
    from radixkv.lab.report.advice import FirstToken

    if seconds is None:
        return None
    rates = card.read()
    if rates is None:
        raise InvalidArgumentError(
            "--ttft-p95 needs --card or --rates: how long steps take on the card"
        )
    return FirstToken(seconds, rates)
