"""The plots of a report, as SVG that stands in an HTML page."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from radixkv.extras import missing
from radixkv.lab.replay import summary
from radixkv.lab.replay.curve import Curve
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.report.study import PAGE_SIZES, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinct for colour-blind readers, too (Okabe and Ito).
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442",
)  # fmt: skip
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "radixkv",
    "font.family": "sans-serif",
    "font.sans-serif": ["system-ui", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#333333",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
}


def plots(study: Study) -> dict[str, str]:
    """SVG by name, of all that the log has something to show for."""
    drawn = {
        "capacity": _drawn(_by_policy, study, _about_policies(study)),
        "time": _drawn(_over_time, study, "Hit rate over the requests, in order."),
        "scheduling": _drawn(_by_scheduling, study, _about_scheduling(study)),
        "page_size": _drawn(_by_page_size, study, _about_page_sizes(study)),
        "causes": _drawn(_causes, study, _about_causes(study)),
    }
    if study.log.sessions.max(initial=0) + 1 < len(study.log):
        drawn["sessions"] = _drawn(_sessions, study, "How hit rates spread over sessions.")
    return drawn


def _about_policies(study: Study) -> str:
    return _about_lines({each: study.by_capacity(policy=each) for each in study.policies}, study)


def _about_scheduling(study: Study) -> str:
    return _about_lines(
        {name: study.by_capacity(scheduling=how) for name, how in SCHEDULINGS.items()}, study
    )


def _about_lines(lines: dict[str, list[float]], study: Study) -> str:
    first, last = study.capacities[0], study.capacities[-1]
    ends = (f"{name} {rates[0]:.1%} to {rates[-1]:.1%}" for name, rates in lines.items())
    return f"Hit rate by capacity, from {first:,} to {last:,} tokens: {', '.join(ends)}."


def _about_page_sizes(study: Study) -> str:
    rates = zip(PAGE_SIZES, study.by_page_size(None), strict=True)
    return "Hit rate of an infinite cache by page size: " + ", ".join(
        f"{size} {rate:.1%}" for size, rate in rates
    )


def _about_causes(study: Study) -> str:
    totals = study.explained.totals().items()
    return "Computed tokens by cause: " + ", ".join(
        f"{cause} {count:,}" for cause, count in totals if count
    )


def tokens(count: float, _: Any = None) -> str:
    """A number of tokens, short.

    >>> tokens(65_536), tokens(1_500_000), tokens(300)
    ('65.5K', '1.5M', '300')
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if count >= unit:
            return f"{count / unit:.3g}{letter}"
    return f"{count:.0f}"


def _drawn(draw: Callable[["Axes", Study], None], study: Study, alternative: str) -> str:
    """alternative: what the plot shows, for people who do not see it."""
    with _axes() as (figure, axes):
        draw(axes, study)
        out = StringIO()
        how: Any = {"bbox_inches": "tight", "transparent": True, "metadata": {"Date": None}}
        figure.savefig(out, format="svg", **how)
    text = out.getvalue()
    svg = text[text.index("<svg") :]
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(alternative)}"', 1)


@contextmanager
def _axes() -> Iterator[tuple[Any, "Axes"]]:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise missing("a report", "matplotlib", "lab") from None
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.5, 3.6), layout="constrained")
        yield figure, figure.subplots()


def _percent(axes: "Axes") -> None:
    axes.set_ylim(0, 101)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}%")
    axes.set_ylabel("hit rate")


def _by_policy(axes: "Axes", study: Study) -> None:
    known = np.array([*study.clairvoyant.items()])
    axes.plot(known[:, 0], 100 * known[:, 1], "--", color="#777777", linewidth=1.2,
              label="knows the future")  # fmt: skip
    if study.curve is not None:
        _between_points(axes, study, study.curve)
    lines = {policy: study.by_capacity(policy=policy) for policy in study.policies}
    _over_capacity(axes, study, lines)


def _between_points(axes: "Axes", study: Study, curve: Curve) -> None:
    between = np.geomspace(study.capacities[0], study.capacities[-1], 200)
    exact = [100 * curve.hit_rate(int(capacity)) for capacity in between]
    lru = dict(zip(study.policies, COLOURS, strict=False)).get("lru", "#333333")
    axes.plot(between, exact, color=lru, linewidth=1.5)


def _by_scheduling(axes: "Axes", study: Study) -> None:
    lines = {name: study.by_capacity(scheduling=how) for name, how in SCHEDULINGS.items()}
    _over_capacity(axes, study, lines)


def line_of(at: int) -> tuple[str, str]:
    """Colour and dashes of the line numbered `at`; two rounds of colours differ in dashes."""
    return COLOURS[at % len(COLOURS)], "--" if at // len(COLOURS) % 2 else "-"


def _over_capacity(axes: "Axes", study: Study, lines: dict[str, list[float]]) -> None:
    ideal = 100 * study.ideal.hit_rate
    axes.axhline(ideal, color="#777777", linestyle=":", linewidth=1)
    axes.annotate("infinite", (study.capacities[0], ideal), (0, 3), color="#555555",
                  textcoords="offset points", fontsize=10)  # fmt: skip
    for at, (name, rates) in enumerate(lines.items()):
        colour, dashes = line_of(at)
        # Points of LRU are not joined where what lies between them is drawn.
        style = "o" if name == "lru" and study.curve is not None else f"o{dashes}"
        axes.plot(
            study.capacities, 100 * np.array(rates), style, color=colour, markersize=4, label=name
        )
    if study.setting.capacity is not None:
        axes.axvline(study.setting.capacity, color="#bbbbbb", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(study.capacities, [tokens(each) for each in study.capacities])
    axes.minorticks_off()
    axes.set_xlabel("capacity, tokens")
    axes.legend(frameon=False, loc="lower right")
    _percent(axes)


def _over_time(axes: "Axes", study: Study) -> None:
    shown = {"infinite": study.ideal, "this cache": study.found}
    if study.found is study.ideal:
        del shown["this cache"]
    for colour, (name, found) in zip(("#777777", COLOURS[0]), shown.items(), strict=False):
        parts = summary.over_time(study.log, found)
        edges = np.cumsum([0, *(part.requests for part in parts)])
        rates = [100 * part.hit_rate for part in parts]
        axes.stairs(rates, edges, baseline=None, color=colour, label=name, linewidth=1.8)
    axes.set_xlabel("requests, in order")
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    _percent(axes)


def _by_page_size(axes: "Axes", study: Study) -> None:
    places = np.arange(len(PAGE_SIZES))
    capacities = [*dict.fromkeys((None, study.setting.capacity))]
    width = 0.8 / len(capacities)
    for at, (colour, capacity) in enumerate(zip(COLOURS, capacities, strict=False)):
        rates = 100 * np.array(study.by_page_size(capacity))
        name = "infinite" if capacity is None else f"{tokens(capacity)} tokens"
        bars = axes.bar(places + at * width, rates, width * 0.92, color=colour, label=name)
        axes.bar_label(bars, [f"{rate:.1f}" for rate in rates], fontsize=10, color="#333333")
    axes.set_xticks(places + width * (len(capacities) - 1) / 2, [*map(str, PAGE_SIZES)])
    axes.set_xlabel("page size, tokens")
    axes.grid(visible=False, axis="x")
    if len(capacities) > 1:
        axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    _percent(axes)


def _causes(axes: "Axes", study: Study) -> None:
    totals = {cause: count for cause, count in study.explained.totals().items() if count}
    names = [*totals][::-1]
    counts = [totals[name] for name in names]
    bars = axes.barh(names, counts, color=COLOURS[0], height=0.7)
    whole = max(1, sum(counts))
    labels = [f"{tokens(count)} ({count / whole:.1%})" for count in counts]
    axes.bar_label(bars, labels, padding=4, fontsize=10, color="#333333")
    axes.set_xlim(0, 1.25 * max(counts, default=1))
    axes.xaxis.set_major_formatter(tokens)
    axes.set_xlabel("computed tokens")
    axes.grid(visible=False, axis="y")


def _sessions(axes: "Axes", study: Study) -> None:
    sessions = study.log.sessions[study.found.arrivals]
    prompt = np.bincount(sessions, weights=study.found.prompt_tokens)
    cached = np.bincount(sessions, weights=study.found.cached_tokens)
    axes.hist(100 * cached / np.maximum(prompt, 1), [*range(0, 101, 4)], color=COLOURS[0])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}%")
    axes.set_xlabel("hit rate of a session")
    axes.set_ylabel("sessions")
    axes.locator_params(axis="y", integer=True)
    axes.set_xlim(0, 100)
