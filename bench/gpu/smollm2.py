"""SmolLM2 on the card: the same greedy tokens cached and uncached, and what the cache saves.

    python -m bench.gpu.smollm2 --prompts 200       needs request traces (RADIXKV_TRACES)

Prompts are the first 1,500 token ids of traced requests; the float32 reference backend, which no
rounding excuses. Then first tokens at 7,500 tokens of which 7,250 are cached, by the tree backend.
"""

import argparse
import json
import lzma
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from bench.equality import TRACES
from bench.gpu.measure import require_card, save_figures
from bench.report import kept_at
from bench.traces import find_traces
from radixkv.integrations.transformers import (
    Generation,
    Generator,
    find_smollm2,
    load_model,
    load_tokenizer,
)

LENGTH, NEW_TOKENS, MAX_BATCH = 1500, 16, 32
LONG, CACHED, ROUNDS = 7500, 7250, 5


def prompts_of(tokenizer: Any, folder: Path, count: int) -> list[list[int]]:
    """`count` prompts of at most LENGTH token ids, an even share of each trace, in their order."""
    prompts: list[list[int]] = []
    for done, name in enumerate(TRACES, start=1):
        with lzma.open(folder / f"{name}.jsonl.xz", "rt") as lines:
            for line in lines:
                if len(prompts) == count * done // len(TRACES):
                    break
                prompts.append(tokenizer.encode(json.loads(line)["prompt"])[:LENGTH])
    return prompts


def generated(
    model: Any, prompts: list[list[int]], *, reuse: bool
) -> tuple[list[Generation], float]:
    generator = Generator(
        model, num_slots=MAX_BATCH * (LENGTH + NEW_TOKENS) * 2, max_batch=MAX_BATCH,
        chunk_size=None, reuse=reuse,
    )  # fmt: skip
    begun = time.perf_counter()
    generations = [
        generator.submit(prompt, NEW_TOKENS, eos_ids=(), keep_logits=True) for prompt in prompts
    ]
    generator.run()
    return generations, round(time.perf_counter() - begun, 2)


def equality(model: Any, prompts: list[list[int]]) -> dict[str, Any]:
    cached, cached_s = generated(model, prompts, reuse=True)
    alone, alone_s = generated(model, prompts, reuse=False)
    pairs = [*zip(cached, alone, strict=True)]
    same = [one for one, other in pairs if one.tokens == other.tokens]
    logits = [
        float((torch.stack(one.logits) - torch.stack(other.logits)).abs().max())
        for one, other in pairs
        if one.tokens == other.tokens
    ]
    return {
        "prompts": len(prompts),
        "equal": len(same),
        "largest_logit_difference": max(logits),
        "prompt_tokens": sum(each.numbers.prompt_tokens for each in cached),
        "cached_tokens": sum(each.numbers.cached_tokens for each in cached),
        "seconds": {"cached": cached_s, "uncached": alone_s},
    }


def first_tokens(model: Any, backend: str) -> dict[str, Any]:
    """Milliseconds to the first token of LONG tokens."""
    rng = np.random.default_rng(0)
    generator = Generator(model, num_slots=120_000, chunk_size=None, backend=backend)
    samples: dict[str, list[float]] = {"uncached": [], "cached": []}
    for _ in range(ROUNDS + 1):
        beginning = rng.integers(0, 49_000, CACHED)
        for name in samples:
            rest = rng.integers(0, 49_000, LONG - CACHED)
            prompt = np.concatenate([beginning, rest]).astype(np.int32)
            generation = generator.submit(prompt, 1, eos_ids=())
            generator.run()
            samples[name].append(round((generation.numbers.time_to_first_token_s or 0) * 1e3, 2))
    ms = {name: median(times[1:]) for name, times in samples.items()}
    return {"ms": ms, "times": round(ms["uncached"] / ms["cached"], 2), "samples_ms": samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--traces", type=Path, default=find_traces())
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    if not arguments.traces.is_dir():
        sys.exit(f"no request traces in {arguments.traces}: name their folder by RADIXKV_TRACES")
    if arguments.device == "cuda":
        require_card()
    path = arguments.model or find_smollm2()
    model = load_model(path, device=arguments.device)
    prompts = prompts_of(load_tokenizer(path), arguments.traces, arguments.prompts)
    found = {"equality": equality(model, prompts)}
    print(found["equality"], flush=True)
    if arguments.device == "cuda":
        found["first_token"] = first_tokens(model.bfloat16(), "tree")
        print(found["first_token"], flush=True)
        print(save_figures("smollm2", found, kept_at("gpu/smollm2", parser, arguments, "prompts")))


if __name__ == "__main__":
    main()
