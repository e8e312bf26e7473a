"""The tables of the README from bench/results/gpu: `python -m bench.gpu.table` prints them,
`--write` puts each after the README's mark of its name."""

import argparse
import json
from typing import Any

from bench.gpu.batches import AT_LEAST
from bench.report import RESULTS, ROOT

END = "<!-- end -->\n"


def read(name: str) -> Any:
    return json.loads((RESULTS / "gpu" / f"{name}.json").read_text())


def decode() -> str:
    """The claim stands with each row."""
    lines = [
        "| decode batch | limit | flat FA3 | FlashInfer cascade | ours | clean cache "
        "| against flat | claimed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in read("decode")["rows"]:
        us = row["us"]
        flat = min(us["flat"], us["flat, schedule in the call"])
        lines.append(
            f"| {row['batch']} | {row['limit_us']:.0f} | {flat:.0f} | {us.get('flashinfer', '')} | "
            f"{us['tree']:.1f} | {row['clean_us']['tree']:.1f} | {row['times_flat']:.2f} x "
            f"| {AT_LEAST[row['batch']]:g} x |"
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
    first, decode, small = (
        read("serving")["first_token"],
        read("serving")["decode"],
        read("smollm2"),
    )
    ms, rate, equal = first["ms"], decode["tokens_per_s"], small["equality"]
    apart = {name: each["relative_difference"] for name, each in decode["logits"].items()}
    flat, tree = apart["flat against float32"], apart["tree against float32"]
    stored = next(row["us"] for row in read("writes")["rows"] if row["tokens"] == 8192)
    lines = [
        "| served through `Generator`, a 7B model's shape with random weights, bf16 | |",
        "|---|---|",
        "| first token of 8,448 prompt tokens, none cached / 8,192 cached "
        f"| {ms['uncached']:.0f} / {ms['cached']:.0f} ms |",
        "| decode, 64 chats under one 8,192-token system prompt, flat / tree "
        f"| {rate['flat']:,} / {rate['tree']:,} tokens a second |",
        "| the same, tree: each step planned when it begins / while the one before runs "
        f"| {rate['tree, planned in the open']:,} / {rate['tree']:,} tokens a second |",
        f"| its logits against those of float32, relative, flat / tree | {flat:.1%} / {tree:.1%} |",
        "| SmolLM2 in float32, prompts whose greedy tokens are the same cached and not "
        f"| {equal['equal']} of {equal['prompts']} |",
        "| writing K/V of 8,192 tokens: a copy / ours / `index_put` "
        f"| {stored['copy']:.0f} / {stored['write_kv']:.0f} / {stored['index_put']:.0f} us |",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    tables = {"table": decode() + "\n" + pages(), "served": served()}
    if not parser.parse_args().write:
        print("\n".join(tables.values()))
        return
    readme = ROOT / "README.md"
    text = readme.read_text()
    for name, table in tables.items():
        mark = f"<!-- bench.gpu.{name} -->\n"
        before, _, rest = text.partition(mark)
        text = before + mark + table + END + rest.partition(END)[2]
    readme.write_text(text)


if __name__ == "__main__":
    main()
