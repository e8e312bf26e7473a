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
