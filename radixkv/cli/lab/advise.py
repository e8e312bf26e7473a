"""`radixkv lab advise`: what to do with a log, in one paragraph."""

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.cli.lab.options import (
    CacheOptions,
    Jobs,
    LogOptions,
    PrefillOptions,
    RatesFile,
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
    target: Target = None,
    ttft_p95: Annotated[
        float | None,
        typer.Option(min=1e-6, help="Seconds in which 95 % of first tokens must come."),
    ] = None,
    rates: RatesFile = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """How much room a log takes for a hit rate, which policy and order, and what to move."""
    from radixkv.lab.report.advice import advise, check_target

    setting, serving, wanted = cache.setting(), prefill.serving(), check_target(target)
    sooner = _first_token(ttft_p95, rates)
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


def _first_token(seconds: float | None, rates: Path | None) -> "FirstToken | None":
    from radixkv.lab.replay.rates import read_rates
    from radixkv.lab.report.advice import FirstToken

    if seconds is None:
        return None
    if rates is None:
        raise InvalidArgumentError("--ttft-p95 needs --rates: how long steps take on the card")
    return FirstToken(seconds, read_rates(rates))
