"""`radixkv lab compare`: two answers of the lab side by side."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.show import Json, console, print_json
from radixkv.errors import InvalidArgumentError

_RATES = ("hit_rate", "share", "points", "target")


def lab_compare(
    one: Annotated[Path, typer.Argument(help="What a command of the lab printed with --json.")],
    other: Annotated[Path, typer.Argument(help="The same of another log, setting or day.")],
    as_json: Json = False,
) -> None:
    """Figures of two reports, replays or pieces of advice side by side, those that differ."""
    before, after = dict(_figures(_read(one))), dict(_figures(_read(other)))
    rows = {
        name: (before.get(name), after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    }
    if as_json:
        print_json({name: {"one": a, "other": b} for name, (a, b) in rows.items()})
        return
    table = Table("", one.name, other.name, "difference")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (a, b) in rows.items():
        table.add_row(name.replace("_", " "), _shown(name, a), _shown(name, b), _change(name, a, b))
    console().print(table if rows else "no figure differs")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"{path} must be what a command of the lab printed with --json: {error}", path=str(path)
        ) from error


def _figures(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Every number by its path, but for those in lists and how long a replay took."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _figures(each, f"{name}.{key}".strip("."))
    elif type(value) in (int, float) and not name.endswith("seconds"):
        yield name, value


def _is_rate(name: str) -> bool:
    return name.rpartition(".")[2].endswith(_RATES)


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if _is_rate(name):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _change(name: str, one: float | None, other: float | None) -> str:
    if one is None or other is None:
        return ""
    if _is_rate(name):
        return f"{100 * (other - one):+.1f} points"
    return f"{other / one - 1:+.1%}" if one else ""
