"""`radixkv lab curve`: hit rate against capacity, all of it from one pass."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.lab.options import LogOptions, finite_capacities
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, print_json

if TYPE_CHECKING:
    from radixkv.lab.replay.paths import Paths

_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)


@with_options
def lab_curve(
    log: LogOptions,
    sizes: Annotated[
        str | None,
        typer.Option("--capacities", help="Tokens kept, apart by commas; by default sixteen."),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="What is evicted first; exact for lru, sampled for others.")
    ] = "lru",
    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 1,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="What was answered is cached too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Hit rates at every capacity, and the room it takes to come near an infinite cache."""
    from radixkv.lab.replay.curve import check_sampled
    from radixkv.lab.replay.paths import find_paths
    from radixkv.lab.replay.setting import Setting

    Setting(page_size, policy=policy)  # checks them
    if policy != "lru":
        check_sampled(page_size)
    chosen = finite_capacities(sizes) if sizes else None
    _, requests = log.read_contents()
    paths = find_paths(requests, page_size=page_size, outputs=outputs)
    answer = {"policy": policy, "page_size": page_size, **_measure(paths, policy, chosen)}
    if as_json:
        print_json(answer)
    else:
        console().print(_points(answer), _room(answer), sep="\n")


def _measure(paths: "Paths", policy: str, capacities: list[int] | None) -> dict[str, Any]:
    from radixkv.lab.replay.curve import lru_curve, sampled_curve
    from radixkv.lab.replay.sweep import capacities_up_to

    exact, ideal = lru_curve(paths), paths.ideal_hit_rate
    chosen = capacities or capacities_up_to(sum(paths.lengths), 16)
    points: list[dict[str, Any]] = [
        {"capacity": capacity, "lru_hit_rate": exact.hit_rate(capacity)} for capacity in chosen
    ]
    if policy != "lru":
        for point, found in zip(points, sampled_curve(paths, chosen, policy), strict=True):
            point |= {"hit_rate": found.hit_rate, "sampled": found.every, "error": found.error}
    room = {f"{share:.0%}": exact.capacity_for(share * ideal) for share in _SHARES}
    return {"infinite_hit_rate": ideal, "points": points, "lru_capacity_for": room}


def _points(answer: dict[str, Any]) -> Table:
    table = Table()
    for name in ("capacity, tokens", "lru"):
        table.add_column(name, justify="right")
    if is_sampled := answer["policy"] != "lru":
        table.add_column(answer["policy"], justify="right")
        table.add_column("from each", justify="right")
    table.add_column("")
    for point in answer["points"]:
        rate = point.get("hit_rate", point["lru_hit_rate"])
        sampled = [f"{rate:.1%}", f"{point['sampled']}. token"] if is_sampled else []
        row = [f"{point['capacity']:,}", f"{point['lru_hit_rate']:.1%}", *sampled]
        table.add_row(*row, "█" * round(40 * rate))
    table.add_row("infinite", f"{answer['infinite_hit_rate']:.1%}")
    return table


def _room(answer: dict[str, Any]) -> Table:
    table = Table("of the hits of an infinite cache", "lru takes, tokens")
    table.columns[1].justify = "right"
    for share, capacity in answer["lru_capacity_for"].items():
        table.add_row(share, "-" if capacity is None else f"{capacity:,}")
    return table
