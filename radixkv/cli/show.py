"""Shared by the commands: options, tables for people, JSON for programs."""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from radixkv.extras import missing

if TYPE_CHECKING:
    from radixkv.service import Client

# A pipe has no width; a table in it may be as wide as this.
_PIPE_WIDTH = 200
# Longest time between two updates of a live display.
LONGEST_PAUSE_S = 86_400.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Target = Annotated[
    str | None,
    typer.Option(
        envvar="RADIXKV_TARGET",
        help="Server, host:port or unix:/path; default: where `serve` listens by default. "
        "RADIXKV_TOKEN is the bearer token; RADIXKV_TLS_CA, _CERT and _KEY name PEM files.",
    ),
]


def connect(target: str | None) -> "Client":
    """A client of the server at `target`, or where `serve` listens by default.

    Token and TLS come from the environment (see `Target`): other users see arguments.
    """
    from radixkv.rpc.limits import ADMIN_DEADLINE_S, DEFAULT_ADDRESS
    from radixkv.service import Client, Tls

    ca, certificate, key = (_file_of(f"RADIXKV_TLS_{name}") for name in ("CA", "CERT", "KEY"))
    return Client(
        target or DEFAULT_ADDRESS,
        token=os.environ.get("RADIXKV_TOKEN"),
        tls=Tls(certificate, key, ca) if ca or certificate else None,
        timeout_s=ADMIN_DEADLINE_S,
    )


def _file_of(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


@contextmanager
def model_packages() -> Iterator[None]:
    """Around imports that models need: BackendUnavailableError names what to install."""
    try:
        import torch  # noqa: F401 - before transformers, which reports it in its own words

        yield
    except ImportError as error:
        raise missing("a model", error.name, "transformers") from error


def show_live(frames: Iterable[RenderableType], every_s: float) -> None:
    """Print each in place of the one before on a terminal, one below the other elsewhere."""
    ours = console()
    if not ours.is_terminal:
        for frame in frames:
            ours.print(frame)
            sys.stdout.flush()
            time.sleep(every_s)
        return
    with Live(console=ours, auto_refresh=False) as live:
        for frame in frames:
            live.update(frame, refresh=True)
            time.sleep(every_s)


def counted(number: int, thing: str) -> str:
    """`1 lease`, `2,000 leases`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def console() -> Console:
    """Standard output, for people."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def print_json(value: Any) -> None:
    """Print `value` on one line; arrays as lists, times in ISO 8601, dataclasses as objects."""
    print(json.dumps(value, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if hasattr(value, "tolist") else value.isoformat()


def pairs(title: str, rows: Iterable[tuple[str, Any]]) -> Table:
    """A table of names and values."""
    # As wide as its title, which would be wrapped otherwise.
    table = Table(title=title, show_header=False, title_justify="left", min_width=len(title))
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    return table
