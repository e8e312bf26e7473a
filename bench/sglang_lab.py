"""Whether the lab predicts an engine: SGLang's cached tokens against `lab replay`.

    python -m bench.sglang_lab        in SGLang's environment: make bench-sglang-lab

SGLang with our cache serves the first requests of a recorded log, one at a time, with a tiny model
of random weights on the CPU; the lab replays the requests that it served. What is longer than the
model's context or the pool is left out, and counted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.report import UNPUBLISHED, WIDTH, Claim, judge, kept_at, save
from bench.traces import find_traces, read
from radixkv.lab.logs.requests import ListedLog, in_order
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting

MOST_APART = 0.5  # points
CONTEXT = 6144
VOCABULARY = 49_408
MOST_REQUESTS = 300
LOG = UNPUBLISHED / "sglang_lab.log"  # of the engine that runs


class Cell(NamedTuple):
    """A log in some order, and a pool."""

    trace: str
    order: str
    capacity: int


CELLS = (
    Cell("lmcache_magagent", "time", 16_384),
    Cell("lmcache_magagent", "time", 65_536),
    Cell("taubench_airline", "file", 8_192),
    Cell("taubench_airline", "file", 32_768),
    Cell("bbh_cot3", "interleave-16", 8_192),
    Cell("bbh_cot3", "interleave-16", 16_384),
)
POLICIES = ("lru", "adaptive")


def served(cell: Cell, most: int) -> tuple[ListedLog, int]:
    """The requests that are asked, without answers, and how many were left out."""
    log = in_order(read(find_traces(), cell.trace), cell.order)
    longest = min(CONTEXT, cell.capacity) - 16
    requests = [log[at] for at in range(min(len(log), most))]
    kept = [replace(each, outputs=()) for each in requests if each.length <= longest]
    return ListedLog(kept), len(requests) - len(kept)


def tiny_model(folder: Path) -> Path:
    """Two layers: what is asked is how much was cached, whatever is answered."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=CONTEXT,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def serve(model: str, capacity: int, policy: str, prompts: list[list[int]]) -> Iterator[int]:
    """What SGLang reports as cached of each prompt."""
    from sglang.srt.entrypoints.engine import Engine

    engine = Engine(
        model_path=model,
        skip_tokenizer_init=True,
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        dtype="float32",
        disable_overlap_schedule=True,
        mem_fraction_static=0.3,
        max_total_tokens=capacity,
        max_running_requests=1,
        context_length=CONTEXT,
        chunked_prefill_size=-1,
        radix_cache_backend="radixkv",
        radix_eviction_policy=policy,
        log_level="warning",
        skip_server_warmup=True,
        sleep_on_idle=True,
        enable_cache_report=True,
    )
    for prompt in prompts:
        answer = engine.generate(
            input_ids=prompt,
            sampling_params={"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
        )
        yield answer["meta_info"]["cached_tokens"]
    engine.shutdown()


def compare(model: Path, cell: Cell, policy: str, log: ListedLog) -> dict[str, Any]:
    """Both hit rates, in percent."""
    with tempfile.NamedTemporaryFile("w+") as file:
        json.dump([request.token_ids.tolist() for request in log], file)
        file.flush()
        arguments = (str(model), str(cell.capacity), policy, file.name)
        command = [sys.executable, "-m", "bench.sglang_lab", "--serve", *arguments]
        with LOG.open("w") as written:
            subprocess.run(command, check=True, stdout=written, stderr=subprocess.STDOUT)
        cached = json.loads(Path(file.name).read_text())
    found = replay(log, Setting(capacity=cell.capacity, policy=policy))
    differing = sum(a != b for a, b in zip(cached, found.cached_tokens.tolist(), strict=True))
    num_tokens = int(log.lengths.sum())
    return {
        **cell._asdict(),
        "policy": policy,
        "requests": len(log),
        # All that is computed is cached, so what the pool does not hold was evicted.
        "evicted, at least": num_tokens - sum(cached) - cell.capacity,
        "engine %": 100 * sum(cached) / num_tokens,
        "lab %": 100 * found.hit_rate,
        "requests that differ": differing,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=MOST_REQUESTS, help="of each log, at most")
    parser.add_argument("--out", help="where to write the figures")
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        model, capacity, policy, file = args.serve
        prompts = json.loads(Path(file).read_text())
        Path(file).write_text(json.dumps([*serve(model, int(capacity), policy, prompts)]))
        return
    console, rows = Console(width=WIDTH), []
    UNPUBLISHED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder_of_model = tiny_model(Path(folder) / "model")
        for cell in CELLS:
            log, left_out = served(cell, args.requests)
            for policy in POLICIES:
                row = {**compare(folder_of_model, cell, policy, log), "left out": left_out}
                print(row, flush=True)
                rows.append(row)
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)
    save("sglang_lab", {"rows": rows}, kept_at("sglang_lab", parser, args, "requests"))
    judge(claims(rows))


def claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    """That both agree, in pools that evict."""
    for row in rows:
        cell = f"{row['trace']} {row['order']} {row['capacity']} {row['policy']}"
        apart = abs(row["engine %"] - row["lab %"])
        yield Claim(f"{cell}: points apart", apart, "at most", MOST_APART)
        yield Claim(f"{cell}: tokens evicted", row["evicted, at least"], "at least", 1)


if __name__ == "__main__":
    main()
