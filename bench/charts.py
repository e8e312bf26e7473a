"""The charts of README and docs from bench/results, each for a light and a dark page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.gpu.batches import AT_LEAST
from bench.report import ROOT, load

IMAGES = ROOT / "docs" / "images"
OURS, THEIRS = "#0969da", ("#bc4c00", "#8250df", "#8c959f")
# The end of the file's name, and the colour of what is written on such a page.
TEXT = {"": "#1f2328", "-dark": "#f0f6fc"}


@dataclass(frozen=True, slots=True)
class BarChart:
    """Groups of horizontal bars: `bars` has a value, or None, for each group."""

    title: str
    groups: Sequence[str]
    bars: dict[str, Sequence[float | None]]


def sglang_calls() -> BarChart:
    """Ours as on a device, beside the caches that SGLang has itself."""
    results = load("sglang_calls")
    names = {
        "chat": "chats, nothing evicted",
        "full": "a full pool that evicts",
        "long": "long prompts",
    }
    ours = "radixkv tickets"
    theirs = [name for name in results["chat"][ours]["median us"] if name != ours]
    whole = [results[work][ours]["median us"] for work in names]
    labels = {
        ours: "radixkv",
        **{name: f"SGLang's {name.split()[1].title()} core" for name in theirs},
    }
    return BarChart(
        "Inside SGLang: microseconds of all cache calls of a request",
        [*names.values()],
        {label: [row[name]["whole"] for row in whole] for name, label in labels.items()},
    )


def sharing_and_others() -> tuple[list[Any], list[Any]]:
    """The rows of `bench.gpu.decode` where the tree must be faster, and the rest."""
    rows = load("gpu/decode")["rows"]
    sharing = [row for row in rows if AT_LEAST[row["batch"]] > 1]
    return sharing, [row for row in rows if row not in sharing]


def decode() -> BarChart:
    """Every batch that shares, and of those that do not the worst for us."""
    sharing, others = sharing_and_others()
    worst = min(others, key=lambda row: float(row["times_flat"]))
    shown = [*sharing, worst]
    return BarChart(
        "Decode on an H200, bf16: microseconds of one layer",
        [row["batch"] for row in shown],
        {
            "radixkv": [row["us"]["tree"] for row in shown],
            "FA3, each row for itself": [row["us"]["flat"] for row in shown],
            "FlashInfer's cascade": [row["us"].get("flashinfer") for row in shown],
            "limit: every byte read once": [row["limit_us"] for row in shown],
        },
    )


CHARTS: dict[str, Callable[[], BarChart]] = {"sglang-calls": sglang_calls, "decode": decode}


def label_of(value: float) -> str:
    """As a bar shows it."""
    return f"{value:,.0f}"


def draw(chart: BarChart, text: str, path: Path) -> None:
    """An SVG whose text stays text, the same for the same chart."""
    thick = 0.8 / len(chart.bars)
    height = 0.7 + 0.17 * len(chart.groups) * len(chart.bars)
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "radixkv", "font.size": 9}
    settings |= {"text.color": text, "ytick.color": text}
    with mpl.rc_context(settings):
        figure = Figure((8, height), layout="constrained")
        axes = figure.subplots()
        for at, (name, values) in enumerate(chart.bars.items()):
            shown = [(row, value) for row, value in enumerate(values) if value is not None]
            bars = axes.barh(
                [row + (at - (len(chart.bars) - 1) / 2) * thick for row, _ in shown],
                [value for _, value in shown],
                thick * 0.9,
                color=OURS if at == 0 else THEIRS[at - 1],
                label=name,
            )
            axes.bar_label(bars, [label_of(value) for _, value in shown], padding=3, fontsize=8)
        axes.set_yticks(range(len(chart.groups)), chart.groups)
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.xaxis.set_visible(False)
        axes.spines[:].set_visible(False)
        axes.margins(x=0.08, y=0.01)
        figure.suptitle(chart.title, x=0.01, ha="left", fontweight="bold", fontsize=10)
        figure.legend(frameon=False, loc="outside lower left", ncols=len(chart.bars), fontsize=9)
        figure.savefig(path, transparent=True, metadata={"Date": None})


def draw_all(folder: Path = IMAGES) -> None:
    for name, chart in CHARTS.items():
        for page, text in TEXT.items():
            draw(chart(), text, folder / f"{name}{page}.svg")
