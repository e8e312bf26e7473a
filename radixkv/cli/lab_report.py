"""`radixkv lab report`: one HTML file with all that the lab finds."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from radixkv.cli.lab_options import CacheOptions, LogOptions, bar, capacities, names, with_options
from radixkv.cli.show import Json, print_json
from radixkv.errors import InvalidArgumentError


@with_options
def lab_report(
    log: LogOptions,
    cache: CacheOptions,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    policies: Annotated[
        str, typer.Option(help="Policies to compare, apart by commas.")
    ] = "lru,adaptive",
    sizes: Annotated[
        str | None, typer.Option("--capacities", help="Capacities to compare; by default nine.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model whose prefill is counted: a name or a config.json.")
    ] = None,
    tflops: Annotated[
        float, typer.Option(min=1e-6, help="10^12 operations a second that it sustains.")
    ] = 400,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default as many as cores.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay a log in many ways and write one self-contained HTML report."""
    from radixkv.lab.prefill import shape_named
    from radixkv.lab.report import render
    from radixkv.lab.study import study
    from radixkv.lab.tokenizing import load_tokenizer

    setting, shape = cache.setting(), shape_named(model) if model else None
    chosen = [each for each in capacities(sizes) if each is not None] if sizes else None
    stored, requests = log.read()
    with bar("replaying", 0) as tell:
        found = study(
            requests,
            setting,
            policies=names(policies),
            capacities=chosen,
            shape=shape,
            tflops=tflops,
            tokenizer=load_tokenizer(log.tokenizer) if log.tokenizer else None,
            jobs=jobs,
            tell=tell,
        )
    about = f"The log ({stored.about.format}) was read in {log.order} order. "
    about += stored.about.left_out().capitalize()
    command = shlex.join(["radixkv", *sys.argv[1:]])
    _write(out, render(found, name=log.file.name, about=about, command=command))
    if as_json:
        print_json({"report": str(out), **found.to_dict()})
    else:
        print(f"{out}: {found.found.hit_rate:.1%} of {requests.lengths.sum():,} prompt tokens")


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"--out {path}: {error.strerror}", path=str(path)) from error
