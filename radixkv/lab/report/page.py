"""A study of a log as one HTML file that needs nothing else."""

from pathlib import Path
from typing import Any

import radixkv
from radixkv.extras import missing
from radixkv.lab.replay.scheduling import SCHEDULINGS
from radixkv.lab.report.misses import CAUSES
from radixkv.lab.report.plots import plots, tokens
from radixkv.lab.report.study import PAGE_SIZES, Study
from radixkv.prompts.printable import on_one_line

_WORTH_SHOWING = 0.001  # of the computed tokens
TEMPLATE = Path(__file__).with_name("page.html.jinja")


def render(study: Study, *, name: str, about: str, command: str, advice: str = "") -> str:
    """The page. name: of the log. about: how it was read. command: what makes the page again.
    advice: the first paragraph.

    Raises BackendUnavailableError where matplotlib or jinja2 is missing.
    """
    try:
        from jinja2 import Environment
        from markupsafe import Markup
    except ImportError:
        raise missing("a report", "jinja2", "lab") from None
    environment = Environment(autoescape=True)
    drawn = {key: Markup(svg) for key, svg in plots(study).items()}
    page = environment.from_string(TEMPLATE.read_text("utf-8"))
    return page.render(_values(study), advice=advice, plots=drawn, name=name, command=command,
                       percent=percent, line=on_one_line,
                       method=_method(study, about))  # fmt: skip


def percent(share: float) -> str:
    """
    >>> percent(0.1234)
    '12.3 %'
    """
    return f"{share:.1%}".replace("%", " %")


def _values(study: Study) -> dict[str, Any]:
    found, capacity = study.found, study.setting.capacity
    prompt, cached = int(found.prompt_tokens.sum()), int(found.cached_tokens.sum())
    patient = SCHEDULINGS["longest-match"]
    return {
        "prompt_tokens": prompt,
        "computed_tokens": prompt - cached,
        "requests": len(found.ids),
        "hit_rate": found.hit_rate,
        "infinite": study.ideal.hit_rate,
        "capacity": capacity,
        "cache": f"a cache of {capacity:,} tokens" if capacity is not None else "an infinite cache",
        "tiles": _tiles(study, prompt - cached),
        "capacities": study.capacities,
        "by_policy": {
            **{policy: study.by_capacity(policy=policy) for policy in study.policies},
            "knows the future": [study.clairvoyant[each] for each in study.capacities],
        },
        "page_size_words": _about_page_sizes(study),
        "causes": study.explained.totals(),
        "meanings": CAUSES,
        "findings": [
            each for each in study.findings if each.tokens >= _WORTH_SHOWING * (prompt - cached)
        ],
        "is_exact": study.curve is not None,
        "waiting": patient.waiting,
        "patience": patient.patience,
    }


def _tiles(study: Study, computed: int) -> list[tuple[str, str]]:
    found = study.found
    shown = [
        (percent(found.hit_rate), "of prompt tokens from the cache"),
        (percent(study.ideal.hit_rate), "with an infinite cache"),
        (tokens(computed), "tokens computed"),
        (tokens(int(found.evicted_tokens.sum())), "tokens evicted"),
    ]
    if study.prefill is not None:
        saved = study.prefill
        label = f"of {saved['model']} prefill saved at {saved['tflops']:g}e12 operations a second"
        shown.append((f"{saved['saved_seconds']:,.1f} s", label))
    return shown


def _about_page_sizes(study: Study) -> str:
    rates = dict(zip(PAGE_SIZES, study.by_page_size(None), strict=True))
    gains = {size: 100 * (rates[1] - rates[size]) for size in PAGE_SIZES[1:]}
    return (
        f"On this log, an infinite cache of single tokens has {gains[16]:.1f} points more than one "
        f"of pages of 16, {gains[64]:.1f} more than of 64 and {gains[512]:.1f} more than of 512."
    )


def _method(study: Study, about: str) -> str:
    setting = study.setting
    outputs = "cached" if setting.outputs else "not cached"
    return (
        f"radixkv {radixkv.__version__} replayed the log through its own PrefixCache: page size "
        f"{setting.page_size}, {setting.policy}, outputs {outputs}, {setting.in_flight} in flight. "
        "Hit rate: tokens from the cache over prompt tokens, at most all but the last of each "
        f"prompt. {about}"
    )
