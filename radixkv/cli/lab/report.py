"""`radixkv lab report`: one HTML file with all that the lab finds."""

import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.cli.lab.options import (
    CacheOptions,
    Jobs,
    LogOptions,
    PrefillOptions,
    Target,
    bar,
    finite_capacities,
    names,
)
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, print_json
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.lab.logs.store import StoredLog


@with_options
def lab_report(
    log: LogOptions,
    cache: CacheOptions,
    prefill: PrefillOptions,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    policies: Annotated[
        str, typer.Option(help="Policies to compare, separated by commas.")
    ] = "lru,adaptive",
    sizes: Annotated[
        str | None, typer.Option("--capacities", help="Capacities to compare; by default nine.")
    ] = None,
    target: Target = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Replay a log in many ways and write one self-contained HTML report."""
    from radixkv.lab.logs.tokenizing import load_tokenizer
    from radixkv.lab.report.advice import advise, check_target
    from radixkv.lab.report.page import render
    from radixkv.lab.report.study import study

    setting, serving, wanted = cache.setting(), prefill.serving(), check_target(target)
    chosen = _sizes(sizes) if sizes else None
    _check_writable(out, log.files)
    stored, requests = log.read_contents()
    with bar("replaying", 0) as progress:
        found = study(
            requests,
            setting,
            policies=names(policies),
            capacities=chosen,
            shape=serving.shape if serving else None,
            tflops=prefill.tflops,
            tokenizer=load_tokenizer(log.tokenizer) if log.tokenizer else None,
            jobs=jobs,
            progress=progress,
        )
        advice = advise(
            requests,
            setting,
            target=wanted,
            serving=serving,
            found=found.findings,
            computed=found.explained.computed_tokens,
            jobs=jobs,
        )
    command, said = shlex.join(["radixkv", *sys.argv[1:]]), advice.paragraph()
    about = _about(stored, log.order)
    _write(out, render(found, name=log.name, about=about, command=command, advice=said))
    if as_json:
        print_json({"report": str(out), "advice": said, **found.to_dict(), **asdict(advice)})
    else:
        print(f"{said}\n{out}")


def _about(log: "StoredLog", order: str) -> str:
    left_out = log.about.left_out()
    about = f"The log ({log.about.format}) was read in {order} order"
    return f"{about}; {left_out}." if left_out else f"{about}."


def _sizes(words: str) -> list[int]:
    chosen = sorted({*finite_capacities(words)})
    if not chosen[0]:
        raise InvalidArgumentError(f"--capacities must be above 0 for a report; got {words!r}")
    return chosen


def _check_writable(path: Path, logs: list[str]) -> None:
    """Before the log is replayed, not after. Raises InvalidArgumentError."""
    if any(path.exists() and Path(each).exists() and path.samefile(each) for each in logs):
        raise InvalidArgumentError(
            f"--out must be another file than the log; got {path}", path=str(path)
        )
    if path.is_dir():
        problem = "it is a folder"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "it may not be written"
    else:
        return
    raise InvalidArgumentError(f"--out {path}: {problem}", path=str(path))


def _write(path: Path, page: str) -> None:
    from radixkv.atomic_files import replacing

    try:
        with replacing(path) as file:
            file.write(page.encode())
    except OSError as error:
        raise InvalidArgumentError(f"--out {path}: {error.strerror}", path=str(path)) from error
