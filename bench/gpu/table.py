"""Tables of docs/benchmarks.md from bench/results/gpu."""

from statistics import median
from typing import Any

from bench.gpu.batches import AT_LEAST
from bench.report import load


def read(name: str) -> Any:
    return load(f"gpu/{name}")


def decode() -> str:
    """The claim stands with each row."""
    lines = [
        "| decode batch | limit | flat FA3 | FlashInfer cascade | ours | clean cache, flat / ours "
        "| against flat | claimed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in read("decode")["rows"]:
        us, clean = row["us"], row["clean_us"]
        flat = min(us["flat"], us["flat, schedule in the call"])
        lines.append(
            f"| {row['batch']} | {row['limit_us']:.0f} | {flat:.0f} | {us.get('flashinfer', '')} | "
            f"{us['tree']:.1f} | {clean['flat']:.1f} / {clean['tree']:.1f} "
            f"| {row['times_flat']:.2f} x | {AT_LEAST[row['batch']]:g} x |"
        )
    return "\n".join(lines) + "\n"


def times(row: Any, names: list[str]) -> str:
    return " | ".join(f"{row['us'][name]:.0f}" for name in names)


def pages() -> str:
    rows = read("pages")["rows"]
    names = [*rows[0]["us"]]
    lines = [f"| fa3 | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {row['work']} | {times(row, names)} |" for row in rows]
    return "\n".join(lines) + "\n"


def served() -> str:
    serving, equal = read("serving"), read("smollm2")["equality"]
    ms, rate = serving["first_token"]["ms"], serving["decode"]["tokens_per_s"]
    begun, logits = serving["decode"]["first_step_ms"], serving["decode"]["logits"]
    flat, tree = logits["flat against float32"], logits["tree against float32"]
    apart = logits["tree against flat"]
    stored = next(row["us"] for row in read("writes")["rows"] if row["tokens"] == 8192)
    lines = [
        "| served through `Generator`, a 7B model's shape with random weights, bf16 | |",
        "|---|---|",
        "| first token of 8,448 prompt tokens, none cached / 8,192 cached "
        f"| {ms['uncached']:.0f} / {ms['cached']:.0f} ms |",
        "| decode, steady state, 64 chats under one 8,192-token system prompt, flat / tree "
        f"| {rate['flat']:,} / {rate['tree']:,} tokens a second |",
        "| the same, steady state, tree: a step planned when it begins / while the one before runs "
        f"| {rate['tree, planned in the open']:,} / {rate['tree']:,} tokens a second |",
        "| the first step, which captures a graph, median of the rounds, flat / tree "
        f"| {median(begun['flat']):.0f} / {median(begun['tree']):.0f} ms |",
        "| the same in the first round, where tree comes first and also compiles, flat / tree "
        f"| {begun['flat'][0]:,.0f} / {begun['tree'][0]:,.0f} ms |",
        "| logits against those of float32, relative, flat / tree "
        f"| {flat['relative_difference']:.1%} / {tree['relative_difference']:.1%} |",
        "| greedy tokens that differ from those of float32 under the same forced tokens, "
        f"flat / tree | {flat['other_tokens']} / {tree['other_tokens']} of {tree['tokens']:,} |",
        "| near-ties of bf16: largest margin by which a tree token was not flat's best / "
        "spread of the logits "
        f"| {apart['largest_margin_of_those']:.2f} / {apart['spread_of_logits']:.2f} |",
        "| SmolLM2 in float32 by the reference backend, prompts whose greedy tokens are the same "
        "cached and not "
        f"| {equal['equal']} of {equal['prompts']} |",
        "| writing K/V of 8,192 tokens: a copy / ours / `index_put` "
        f"| {stored['copy']:.0f} / {stored['write_kv']:.0f} / {stored['index_put']:.0f} us |",
    ]
    return "\n".join(lines) + "\n"


def planning() -> str:
    """Of batches with 64 requests, and of all."""
    rows = [row["us"] for row in read("planning")["rows"]]
    of_64 = [
        row["us"] for row in read("planning")["rows"] if "256 requests" not in row["batch"]
        and not row["batch"].startswith(("nothing shared: 256", "8 tiny"))
    ]  # fmt: skip
    return (
        f"Planning takes the host {span(of_64, 'scratch')} us for 64 requests, "
        f"{span(of_64, 'next')} for the next step; with what it sends to the card "
        f"{span(rows, 'sent next, host', 1000)} ms a step, "
        f"{span(rows, 'one joins, one leaves, host', 1000)} where one leaves and one joins, and "
        f"{span(rows, 'sent, host', 1000)} for a batch that is all new. `Generator` does it while "
        "the step before runs.\n"
    )


def span(rows: list[Any], name: str, unit: float = 1) -> str:
    digits = 0 if unit == 1 else 1
    low, high = (f"{find(row[name] for row in rows) / unit:.{digits}f}" for find in (min, max))
    return f"{low} to {high}"


def graphs() -> str:
    times = [
        100 * with_graph["us"]["tree"] / row["us"]["tree"] - 100
        for with_graph, row in zip(
            read("decode_graphs")["rows"], read("decode")["rows"], strict=True
        )
        if AT_LEAST[row["batch"]] > 1
    ]
    return (
        f"Rows that share take {max(0, min(times)):.0f} to {max(times):.0f} % more with it "
        "(`bench/results/gpu/decode_graphs.json`).\n"
    )


def page_cost() -> str:
    """Page size 1 against FA3's best page, which it fetches whole."""
    cost: dict[str, list[float]] = {}
    for row in read("pages")["rows"]:
        us = row["us"]
        for name in ("page 1", "page 1, runs"):
            kind = f"{row['work'].split()[0]}, {name}"
            cost.setdefault(kind, []).append(100 * us[name] / us["page 128"] - 100)

    def of(kind: str) -> str:
        low, high = (f"{find(cost[kind]):.0f}" for find in (min, max))
        return f"{low} %" if low == high else f"{low} to {high} %"

    return (
        f"Page size 1 costs {of('decode, page 1')} in decode and {of('extend, page 1')} in extend "
        f"({of('extend, page 1, runs')} where slots lie in runs) against pages of 128, which FA3 "
        "fetches whole by the copy engine.\n"
    )
