"""`radixkv lab replay`: one log through one cache."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from radixkv.cli.lab.options import (
    CacheOptions,
    CardOptions,
    LogOptions,
    PrefillOptions,
    bar,
    names,
    run,
)
from radixkv.cli.options import with_options
from radixkv.cli.show import Json, console, pairs, print_json
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.lab.logs.requests import RequestLog
    from radixkv.lab.logs.store import StoredLog
    from radixkv.lab.replay.fleet import Fleet
    from radixkv.lab.replay.rates import Rates
    from radixkv.lab.replay.replay import Replay
    from radixkv.lab.replay.setting import Setting

_REFERENCES = {
    "infinite_hit_rate": "an infinite cache",
    "clairvoyant_hit_rate": "one that knows the future",
}


@with_options
def lab_replay(
    log: LogOptions,
    cache: CacheOptions,
    prefill: PrefillOptions,
    card: CardOptions,
    references: Annotated[
        bool,
        typer.Option(help="For reference an infinite cache, and one that knows the future."),
    ] = True,
    workers: Annotated[
        int, typer.Option(min=1, help="Servers of this capacity each, in a replay by time.")
    ] = 1,
    routing: Annotated[
        str | None,
        typer.Option(help="Which server gets a request: routing policies with commas, or all."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay a log through a prefix cache: how much of each prompt was there."""
    from radixkv.lab.replay import summary
    from radixkv.lab.replay.sizes import sizes

    setting, shape, rates = cache.setting(), prefill.shape(), card.read()
    fleets = _fleets(workers, routing)
    if rates is not None and log.order != "time":
        raise InvalidArgumentError("--card and --rates need --order time")
    if rates is None and (workers > 1 or routing is not None):
        raise InvalidArgumentError("--workers and --routing need --card or --rates")
    stored, requests = log.read()
    if not stored.about.has_contents and rates is not None:
        raise InvalidArgumentError(
            "--card and --rates need a log with contents; got one of lengths"
        )
    if not stored.about.has_contents:
        _show_sizes({"log": _about(log, stored), "hit_rate": None, **sizes(requests)}, as_json)
        return
    found = run(requests, setting)
    answer = summary.summary(found) | {
        "log": _about(log, stored),
        "over_time": summary.over_time(requests, found),
        "by_session": summary.by_session(requests, found),
        "by_namespace": summary.by_namespace(found),
    }
    if references:
        answer |= _references(requests, setting, found)
    if shape is not None:
        answer["prefill"] = summary.saved_prefill(found, shape, prefill.tflops)
    if rates is not None:
        answer["timed"] = [_by_time(requests, setting, rates, fleet) for fleet in fleets]
    if as_json:
        print_json(answer)
    else:
        console().print(_tables(answer))


def _fleets(workers: int, routing: str | None) -> "list[Fleet]":
    from radixkv.lab.replay.fleet import Fleet
    from radixkv.router import POLICIES

    if workers == 1:
        if routing is not None:
            raise InvalidArgumentError("--routing needs --workers above 1")
        return [Fleet()]
    chosen = sorted(POLICIES) if routing == "all" else names(routing or "cache-aware")
    return [Fleet(workers, name) for name in chosen]


def _by_time(
    log: "RequestLog", setting: "Setting", rates: "Rates", fleet: "Fleet"
) -> dict[str, Any]:
    from radixkv.lab.replay.timed import timed_replay

    words = f"by time, {fleet.routing}" if fleet.workers > 1 else "by time"
    with bar(words, len(log)) as progress:
        return timed_replay(log, setting, rates, fleet, progress=progress).to_dict()


def _about(log: LogOptions, stored: "StoredLog") -> dict[str, Any]:
    return {"file": log.name, "order": log.order, **asdict(stored.about)}


def _show_sizes(answer: dict[str, Any], as_json: bool) -> None:
    """Of a log of lengths: there is nothing to compare prompts by."""
    if as_json:
        print_json(answer)
        return
    rows = [("hit rate", "unknown: the log has lengths and no contents"),
            ("requests", answer["requests"]), ("sessions", answer["sessions"])]  # fmt: skip
    for name in ("prompt_tokens", "output_tokens"):
        rows += [(f"{name.replace('_', ' ')}, {each}", round(value))
                 for each, value in answer[name].items()]  # fmt: skip
    if times := answer.get("times"):
        under_way = times["concurrency"]
        rows += [
            ("hours", f"{times['seconds'] / 3600:,.2f}"),
            ("requests a day", round(times["requests_per_day"])),
            ("prompt tokens a day", round(times["prompt_tokens_per_day"])),
            ("most requests within a minute", times["most_requests_a_minute"]),
            (f"under way at {times['taken_decode_rate']:g} tokens a second each",
             f"{under_way['mean']:.1f}, at most {under_way['most']:,}"),
        ]  # fmt: skip
    console().print(pairs(escape(answer["log"]["file"]), rows))


def _references(log: "RequestLog", setting: "Setting", found: "Replay") -> dict[str, float]:
    """What an infinite cache would have, and one of this size that knows the future."""
    from radixkv.lab.replay.clairvoyant import clairvoyant_hit_rate
    from radixkv.lab.replay.paths import find_paths

    if setting.capacity is None:
        return {"infinite_hit_rate": found.hit_rate, "clairvoyant_hit_rate": found.hit_rate}
    paths = find_paths(log, page_size=setting.page_size, outputs=setting.outputs)
    return {
        "infinite_hit_rate": run(log, replace(setting, capacity=None)).hit_rate,
        "clairvoyant_hit_rate": clairvoyant_hit_rate(paths, setting.capacity),
    }


def _tables(answer: dict[str, Any]) -> Group:
    shown = [_whole(answer)]
    if "timed" in answer:
        shown.append(_timed(answer["timed"]))
    shown.append(_parts("over time", answer["over_time"]))
    if len(answer["by_namespace"]) > 1:
        shown.append(_parts("by namespace", answer["by_namespace"]))
    if 1 < answer["by_session"]["sessions"] < answer["requests"]:
        shown.append(_parts("sessions that computed most", answer["by_session"]["most_computed"]))
    return Group(*shown)


def _whole(answer: dict[str, Any]) -> Table:
    setting, log = answer["setting"], answer["log"]
    capacity = "all" if setting["capacity"] is None else f"{setting['capacity']:,} tokens"
    rows: list[tuple[str, Any]] = [
        ("hit rate", f"{answer['hit_rate']:.1%}"),
        *((name, f"{answer[key]:.1%}") for key, name in _REFERENCES.items() if key in answer),
        ("requests", answer["requests"]),
        ("of those with a hit", f"{answer['request_hit_rate']:.1%}"),
        ("prompt tokens", answer["prompt_tokens"]),
        ("from the cache", answer["cached_tokens"]),
        ("computed", answer["computed_tokens"]),
        ("evicted", answer["evicted_tokens"]),
        ("most in flight, slots", answer["peak_in_flight"]),
    ]
    if answer["waited"]:
        rows.append(("waits for room", answer["waited"]))
    if answer["refused"]:
        rows.append(("longer than the pool, refused", answer["refused"]))
    if "prefill" in answer:
        prefill = answer["prefill"]
        rows += [
            (f"prefill of {prefill['model']} saved", f"{prefill['saved_share']:.1%}"),
            ("in operations", f"{prefill['saved_flops']:.3g}"),
            (f"at {prefill['tflops']:g}e12 a second", f"{prefill['saved_seconds']:,.1f} s"),
        ]
    rows.append(("replayed in", f"{answer['seconds']:.1f} s"))
    rows[:0] = [
        ("order", log["order"]),
        ("page size", setting["page_size"]),
        ("policy", setting["policy"]),
        ("keeps", capacity),
    ]
    return pairs(escape(log["file"]), rows)


def _timed(found: list[dict[str, Any]]) -> Table:
    workers = found[0]["workers"]
    title = "by time" if workers == 1 else f"by time, {workers} servers"
    table = Table("" if workers == 1 else "routing", title=title, title_justify="left")
    waits = [f"first token, {name}" for name in ("mean", "median", "p95", "p99")]
    for column in (*waits, "output tokens a second", "hit rate", "imbalance"):
        table.add_column(column, justify="right")
    for one in found:
        table.add_row(
            one["routing"] or "one server",
            *(f"{value:,.3f} s" for value in one["first_token_s"].values()),
            *("-" for _ in waits[len(one["first_token_s"]) :]),
            f"{one['output_tokens_per_s']:,.0f}",
            f"{one['hit_rate']:.1%}",
            f"{one['imbalance']:.2f}",
        )
    return table


def _parts(title: str, parts: list[Any]) -> Table:
    from radixkv.prompts.printable import on_one_line

    table = Table("", title=title, title_justify="left")
    for column in ("requests", "prompt tokens", "computed", "hit rate", ""):
        table.add_column(column, justify="left" if not column else "right")
    for part in parts:
        since = "" if part.start_s is None else f", {part.start_s:,.0f} s"
        table.add_row(
            Text(on_one_line(part.name) + since),
            f"{part.requests:,}",
            f"{part.prompt_tokens:,}",
            f"{part.prompt_tokens - part.cached_tokens:,}",
            f"{part.hit_rate:.1%}",
            "█" * round(20 * part.hit_rate),
        )
    return table
