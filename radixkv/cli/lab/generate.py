"""`radixkv lab generate`: a made-up log of known structure."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from radixkv.cli.show import Json, console, pairs, print_json


def lab_generate(
    workload: Annotated[
        str, typer.Argument(help="chat, few-shot, agents, tree-search or retrieval.")
    ],
    out: Annotated[
        Path, typer.Argument(help="Log to write; .xz, .gz and .zst are packed.", metavar="FILE")
    ],
    requests: Annotated[int, typer.Option(help="Requests to make.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same log.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a made-up log of token ids, whose requests share by a known structure."""
    from radixkv.lab.logs.workloads import generate, save

    log = generate(workload, requests=requests, seed=seed)
    save(log, out)
    answer = {
        "file": str(out),
        "workload": workload,
        "seed": seed,
        "requests": len(log),
        "sessions": int(log.sessions.max()) + 1,
        "prompt_tokens": int(log.lengths.sum()),
    }
    if as_json:
        print_json(answer)
    else:
        console().print(pairs(escape(out.name), [*answer.items()][1:]))
