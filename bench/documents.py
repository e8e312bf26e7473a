"""What README and docs take from bench/results: `python -m bench.documents` writes it.

A block of a document is what stands between its mark and the next end mark:

    <!-- figures: NAME -->
    ...
    <!-- end -->
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.charts import draw_all, sharing_and_others
from bench.gpu import table as gpu
from bench.report import RESULTS, ROOT, load
from bench.rounding import at_least, at_most
from bench.tables import TABLES

BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


# ---- the figures of the README, each the worst of its rows ----


def sglang_calls() -> str:
    shares = [
        figures["median us"][ours]["whole"] / figures["median us"][theirs]["whole"]
        for work in _works()
        for ours, figures in work.items()
        for theirs in figures["median us"]
        if theirs != ours
    ]
    return (
        f"All cache calls of a request inside SGLang take at most **{at_most(max(shares), 2)}** of "
        f"the time of SGLang's own caches: {len(shares)} comparisons with its Rust and Python "
        "cores ([SGLang](docs/sglang.md))."
    )


def _works() -> list[dict[str, Any]]:
    return [work for work in load("sglang_calls").values() if "radixkv tickets" in work]


def cache_calls() -> str:
    times = [row["radixkv cache"] for row in load("tree")["ratios"] if "radixkv cache" in row]
    return (
        f"A chat turn through `PrefixCache` is at least **{at_least(min(times), 1)} x** as fast "
        "as through the bare trees of SGLang and vLLM ([the race](docs/benchmarks.md#the-tree))."
    )


def decode() -> str:
    # Of what was measured: `times_flat` is rounded to the nearest.
    shared, others = (
        min(row["us"]["flat"] / row["us"]["tree"] for row in rows) for rows in sharing_and_others()
    )
    return (
        f"Decode on an H200 is at least **{at_least(shared, 2)} x** as fast as FA3 where "
        f"requests share, and {at_least(others, 2)} x where they do not "
        "([GPU](docs/gpu.md))."
    )


def router() -> str:
    results = load("router")
    times = [float(row["reached"]) for row in results["required"] if "times as fast" in row["what"]]
    p99 = results["p99"]["radixkv"]["decision from array"]
    fleet = results["fleet"]
    return (
        f"A pick among {fleet['workers']} workers with {fleet['tokens each']:,} tokens each takes "
        f"**{at_most(p99, 0)} us** (p99); a pick is at least {at_least(min(times), 1)} x as fast "
        "as the look-up alone in Dynamo's indexer ([router](docs/router.md))."
    )


def sglang_decode() -> str:
    models = load("gpu/sglang_decode")["models"].values()
    gains = [
        row["radixkv attention"]["tokens_per_s"] / row["sglang"]["tokens_per_s"]
        for model in models
        for row in model["rows"].values()
    ]
    return (
        "Inside SGLang on an H200, `--attention-backend radixkv` decodes "
        f"**{at_least(min(gains), 2)} to {at_least(max(gains), 2)} x** the tokens a second of its "
        "FA3, the least where 192 requests wait and one joins each step "
        "([SGLang](docs/sglang.md#attention))."
    )


def equality() -> str:
    results = load("equality")["results"]
    equal, prompts = (sum(row[name] for row in results) for name in ("equal", "prompts"))
    logits = max(row["max_logit_difference"] for row in results)
    return (
        f"Greedy answers are the same with the cache as without: **{equal} of {prompts}**, "
        f"under eviction and retraction, logits within {at_most(1e5 * logits, 1)}e-5 "
        "([benchmarks](docs/benchmarks.md))."
    )


HEADLINES = (sglang_calls, cache_calls, decode, router, sglang_decode, equality)


def headlines() -> str:
    return "".join(f"- {headline()}\n" for headline in HEADLINES)


def demo() -> str:
    """The second turn of a saved `make demo`, and what it ends with."""
    text = (RESULTS / "demo.txt").read_text("utf-8")
    turn = re.search(r"^Turn 2 *\n(.*?\n)(?=^ +\w+ \d:)", text, re.DOTALL | re.MULTILINE)
    assert turn is not None
    lines = [line for line in turn[1].splitlines() if line.strip()]
    last = text.rstrip().splitlines()[-1].replace(", first token", ",\nfirst token")
    shown = [*lines[:5], "  ...", *last.splitlines()]
    return "".join(f"    {line.rstrip()}\n" for line in shown)


BLOCKS: dict[str, Callable[[], str]] = {
    "demo": demo,
    "headlines": headlines,
    "decode": gpu.decode,
    "pages": gpu.pages,
    "served": gpu.served,
    "planning": gpu.planning,
    "graphs": gpu.graphs,
    "page-cost": gpu.page_cost,
    **TABLES,
}


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """The document with its blocks as the results have them."""
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], text)


def main() -> None:
    for path in documents():
        path.write_text(filled(path.read_text("utf-8")), "utf-8")
    draw_all()


if __name__ == "__main__":
    main()
