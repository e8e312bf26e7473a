"""`radixkv lab curve`: hit rate against capacity."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from radixkv.cli.lab.options import Jobs, LogOptions, bar, finite_capacities
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, print_json

if TYPE_CHECKING:
    from radixkv.lab.logs.requests import RequestLog
    from radixkv.lab.replay.setting import Setting

_SHARES = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)
_OF_POINTS = ("hit_rate", "peak_in_flight", "refused", "waited")


@with_options
def lab_curve(
    log: LogOptions,
    sizes: Annotated[
        str | None,
        typer.Option("--capacities", help="Tokens of room, separated by commas; default: 16."),
    ] = None,
    policy: Annotated[str, typer.Option(help="What is evicted first.")] = "lru",
    page_size: Annotated[int, typer.Option(help="Tokens a page.")] = 1,
    outputs: Annotated[bool, typer.Option("--outputs", help="Answers are cached too.")] = False,
    in_flight: Annotated[int, typer.Option(help="Requests that run at a time.")] = 1,
    capacity_of: Annotated[
        str,
        typer.Option(
            help="pool: requests in flight are in it, each capacity is replayed; cache: it is "
            "besides them, and one pass answers for lru, a sample of tokens for other policies."
        ),
    ] = "pool",
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Hit rates against capacity, and the room it takes to come near an infinite cache."""
    from radixkv.lab.replay.curve import check_sampled
    from radixkv.lab.replay.setting import Setting

    setting = Setting(
        page_size, policy=policy, outputs=outputs, in_flight=in_flight, capacity_of=capacity_of
    )
    from_one_pass = capacity_of == "cache" and in_flight == 1
    if from_one_pass and policy != "lru":
        check_sampled(page_size)
    chosen = finite_capacities(sizes) if sizes else None
    _, requests = log.read_contents()
    made = _one_pass(requests, setting, chosen) if from_one_pass else (
        _replayed(requests, setting, chosen, jobs))  # fmt: skip
    answer = {"policy": policy, "page_size": page_size, "in_flight": in_flight,
              "capacity_of": capacity_of, **made}  # fmt: skip
    if as_json:
        print_json(answer)
    else:
        console().print(_points(answer), _room(answer), sep="\n")


def _replayed(
    log: "RequestLog", setting: "Setting", capacities: list[int] | None, jobs: int | None
) -> dict[str, Any]:
    """A replay for each capacity, and some more that look for the room it takes."""
    from radixkv.lab.replay.paths import find_paths
    from radixkv.lab.replay.pool import longest_request
    from radixkv.lab.replay.sweep import capacities_up_to, sweep
    from radixkv.lab.replay.target import TargetSearch

    paths = find_paths(log, page_size=setting.page_size, outputs=setting.outputs)
    least = longest_request(log, setting.page_size) if setting.capacity_of == "pool" else 1
    chosen = capacities or capacities_up_to(sum(paths.lengths), 16, least)
    settings = [replace(setting, capacity=each) for each in (*chosen, None)]
    with bar("replaying", len(settings)) as progress:
        *found, whole = sweep(log, settings, jobs=jobs, progress=progress)
    points = [
        {"capacity": capacity} | {name: each[name] for name in _OF_POINTS}
        for capacity, each in zip(chosen, found, strict=True)
    ]
    search = TargetSearch(log, setting, paths)
    room = {
        f"{share:.0%}": search.capacity_for(share * whole["hit_rate"]) for share in _SHARES[:-1]
    }
    return {"infinite_hit_rate": whole["hit_rate"], "points": points, "capacity_for": room}


def _one_pass(
    log: "RequestLog", setting: "Setting", capacities: list[int] | None
) -> dict[str, Any]:
    from radixkv.lab.replay.curve import lru_curve, sampled_curve
    from radixkv.lab.replay.paths import find_paths
    from radixkv.lab.replay.sweep import capacities_up_to

    paths = find_paths(log, page_size=setting.page_size, outputs=setting.outputs)
    exact, ideal = lru_curve(paths), paths.ideal_hit_rate
    chosen = capacities or capacities_up_to(sum(paths.lengths), 16)
    points: list[dict[str, Any]] = [
        {"capacity": capacity, "hit_rate": exact.hit_rate(capacity)} for capacity in chosen
    ]
    if setting.policy != "lru":
        for point, found in zip(points, sampled_curve(paths, chosen, setting.policy), strict=True):
            point |= {"lru_hit_rate": point["hit_rate"], "hit_rate": found.hit_rate}
            point |= {"sampled": found.every, "error": found.error}
    room = {f"{share:.0%}": exact.capacity_for(share * ideal) for share in _SHARES}
    return {"infinite_hit_rate": ideal, "points": points, "capacity_for": room}


def _points(answer: dict[str, Any]) -> Table:
    is_sampled = any("sampled" in point for point in answer["points"])
    table = Table("capacity, tokens")
    for name in [answer["policy"], "lru", "from each"] if is_sampled else [answer["policy"]]:
        table.add_column(name, justify="right")
    table.columns[0].justify = "right"
    table.add_column("")
    for point in answer["points"]:
        rate = point["hit_rate"]
        sampled = (
            [f"{point['lru_hit_rate']:.1%}", f"{point['sampled']}. token"] if is_sampled else []
        )
        table.add_row(f"{point['capacity']:,}", f"{rate:.1%}", *sampled, "█" * round(40 * rate))
    table.add_row("infinite", f"{answer['infinite_hit_rate']:.1%}")
    return table


def _room(answer: dict[str, Any]) -> Table:
    by = "lru" if any("sampled" in point for point in answer["points"]) else answer["policy"]
    table = Table("of the hits of an infinite cache", f"{by} takes, tokens")
    table.columns[1].justify = "right"
    for share, capacity in answer["capacity_for"].items():
        table.add_row(share, "-" if capacity is None else f"{capacity:,}")
    return table
