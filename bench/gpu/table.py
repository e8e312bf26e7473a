"""The tables of the README from bench/results/gpu: `python -m bench.gpu.table` prints them,
`--write` puts them between the README's marks."""

import argparse
import json
from typing import Any

from bench.gpu.decode import AT_LEAST
from bench.report import RESULTS, ROOT

BEGIN, END = "<!-- bench.gpu.table -->\n", "<!-- end -->\n"


def read(name: str) -> Any:
    return json.loads((RESULTS / "gpu" / f"{name}.json").read_text())


def decode() -> str:
    """The claim stands with each row that shares."""
    lines = [
        "| decode batch | limit | flat FA3 | FlashInfer cascade | ours | against flat | claimed |",
        "|---|---|---|---|---|---|---|",
    ]
    claims = [*map(str, AT_LEAST), *["0.99"] * 9]
    for row, claim in zip(read("decode")["rows"], claims, strict=False):
        us = row["us"]
        flat = min(us["flat"], us["flat, schedule in the call"])
        lines.append(
            f"| {row['batch']} | {row['limit_us']:.0f} | {flat:.0f} | {us.get('flashinfer', '')} | "
            f"{us['tree']:.1f} | {row['times_flat']:.2f} x | {claim} x |"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    tables = decode() + "\n" + pages()
    if not parser.parse_args().write:
        print(tables)
        return
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(before + BEGIN + tables + END + after)


if __name__ == "__main__":
    main()
