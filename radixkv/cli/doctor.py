"""`radixkv doctor`: what is installed, which core runs, which backends work here, and what kernels
take of a KV pool."""

from dataclasses import asdict

import typer
from rich.markup import escape
from rich.table import Table

from radixkv.cli.show import Json, console, print_json

_STYLES = {"ok": "green", "missing": "yellow", "broken": "red"}


def doctor(as_json: Json = False) -> None:
    """Check everything that decides what radixkv can do here; exit code 1 if any is broken."""
    from radixkv.doctor import examine, speedups

    checks = examine()
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        table = Table("what", "state", "found", "advice")
        for found in checks:
            state = f"[{_STYLES[found.state]}]{found.state}[/]"
            table.add_row(found.name, state, escape(found.detail), escape(found.advice))
        console().print(table)
        console().print(_layouts())
        faster = speedups(checks) or ["nothing that radixkv knows of."]
        console().print("What would make it faster here:", *map(escape, faster), sep="\n  ")
    if any(found.state == "broken" for found in checks):
        raise typer.Exit(1)


def _layouts() -> Table:
    from radixkv.memory.layouts import LAYOUTS, Layout

    names = [name.replace("_", " ") for name in Layout._fields]
    table = Table(*names, title="what kernels take of a KV pool", title_justify="left")
    for layout in LAYOUTS:
        table.add_row(*map(escape, layout))
    return table
