"""`radixkv lab sweep`: one log through many caches, side by side."""

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from radixkv.cli.lab.options import Jobs, LogOptions, bar, capacities, names, numbers
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, print_json

if TYPE_CHECKING:
    from radixkv.lab.logs.requests import RequestLog
    from radixkv.lab.replay.scheduling import Scheduling
    from radixkv.lab.replay.setting import Setting

CLAIRVOYANT = "clairvoyant"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The caches to compare."""

    capacity: Annotated[
        str, typer.Option("--capacities", help="Tokens kept, separated by commas; inf: all.")
    ] = "4096,16384,65536,262144,inf"
    policy: Annotated[
        str,
        typer.Option(
            "--policies",
            help="What is evicted first, separated by commas; clairvoyant: a reference that "
            "evicts what is needed last.",
        ),
    ] = "lru"
    page_size: Annotated[
        str, typer.Option("--page-sizes", help="Tokens a page, separated by commas.")
    ] = "1"
    scheduling: Annotated[
        str, typer.Option("--schedulings", help="arrival, longest-match, or both with a comma.")
    ] = "arrival"
    outputs: Annotated[bool, typer.Option("--outputs", help="What was answered is cached too.")] = (
        False
    )
    in_flight: Annotated[int, typer.Option(help="Requests that run at a time.")] = 1
    capacity_of: Annotated[
        str, typer.Option(help="pool, with requests in flight in it, or cache: besides them.")
    ] = "pool"

    def queues(self) -> dict[str, "Scheduling"]:
        """The orders of admission by name. Raises InvalidArgumentError."""
        from radixkv.lab.replay.scheduling import scheduling_named

        return {name: scheduling_named(name) for name in names(self.scheduling)}

    def settings(self) -> list["Setting"]:
        """One for each combination. Raises InvalidArgumentError."""
        from radixkv.lab.replay.sweep import combinations

        return combinations(
            capacities=capacities(self.capacity),
            policies=[each for each in names(self.policy) if each != CLAIRVOYANT],
            page_sizes=numbers(self.page_size, "--page-sizes"),
            schedulings=self.queues().values(),
            outputs=self.outputs,
            in_flight=self.in_flight,
            capacity_of=self.capacity_of,
        )

    def references(self) -> list["Setting"]:
        """Where to ask the one that knows the future. Raises InvalidArgumentError."""
        from radixkv.lab.replay.sweep import combinations

        if CLAIRVOYANT not in names(self.policy):
            return []
        return combinations(
            capacities=capacities(self.capacity),
            page_sizes=numbers(self.page_size, "--page-sizes"),
            outputs=self.outputs,
        )


@with_options
def lab_sweep(
    log: LogOptions, caches: SweepOptions, jobs: Jobs = None, as_json: Json = False
) -> None:
    """Replay a log at many capacities, policies, page sizes and orders of admission."""
    from radixkv.lab.replay.sweep import sweep

    settings, queues, references = caches.settings(), caches.queues(), caches.references()
    _, requests = log.read_contents()
    with bar("replaying", len(settings)) as progress:
        found = sweep(requests, settings, jobs=jobs, progress=progress)
    for answer, setting in zip(found, settings, strict=True):
        answer["scheduling"] = next(
            name for name, how in queues.items() if how == setting.scheduling
        )
    found += _knowing_the_future(requests, references)
    if as_json:
        print_json(found)
    else:
        title = f"hit rates of {escape(log.name)}, {log.order} order, {len(requests):,} requests"
        console().print(title, _table(found), sep="\n")


def _knowing_the_future(log: "RequestLog", settings: list["Setting"]) -> list[dict[str, Any]]:
    """The reference at each of these page sizes and capacities, one request in flight."""
    from radixkv.lab.replay.clairvoyant import clairvoyant_hit_rate
    from radixkv.lab.replay.paths import find_paths

    found = []
    for page_size, alike in groupby(settings, lambda each: each.page_size):
        paths = find_paths(log, page_size=page_size, outputs=settings[0].outputs)
        for capacity in (each.capacity for each in alike):
            most = sum(paths.lengths) if capacity is None else capacity
            setting = {"page_size": page_size, "capacity": capacity, "policy": CLAIRVOYANT}
            rate = clairvoyant_hit_rate(paths, most)
            found.append({"setting": setting, "hit_rate": rate, "scheduling": "arrival"})
    return found


def _table(found: list[dict[str, Any]]) -> Table:
    """A row a capacity; a column for each of what else varies."""
    rows: dict[int | None, dict[str, float]] = {}
    for answer in found:
        row = rows.setdefault(answer["setting"]["capacity"], {})
        row[_column(answer, found)] = answer["hit_rate"]
    columns = [*dict.fromkeys(name for row in rows.values() for name in row)]
    table = Table()
    for name in ("capacity, tokens", *columns):
        table.add_column(name, justify="right")
    for capacity, row in rows.items():
        shown = "infinite" if capacity is None else f"{capacity:,}"
        table.add_row(shown, *(f"{row[name]:.1%}" for name in columns))
    return table


def _column(answer: dict[str, Any], found: list[dict[str, Any]]) -> str:
    """What distinguishes this replay from others of its capacity."""
    shown = [answer["setting"]["policy"]]
    if len({each["setting"]["page_size"] for each in found}) > 1:
        shown.append(f"page {answer['setting']['page_size']}")
    if len({each["scheduling"] for each in found}) > 1:
        shown.append(f"by {answer['scheduling']}")
    return ", ".join(shown)
