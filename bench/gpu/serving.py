"""A decoder of a 7B model's shape, with random weights, served by `Generator`.

    python -m bench.gpu.serving            into bench/results/gpu/serving.json
    python -m bench.gpu.serving --tiny     a few layers of a small one: does it run at all?

First tokens: a prompt of 8,448 tokens of which 8,192 are cached, against none. Decode: 64 chats
under one system prompt of 8,192 tokens, the tree against flat fa3, each step a CUDA graph; the tree
also with each step planned when it begins, not while the one before is computed. All in turn, in
several rounds. Then both give logits for the same tokens, those that the tree generated, and so
does the model in float32 with the portable backend, flat too: what of their difference is bf16's
rounding.

`tokens_per_s` is the steady state: chats by the median step. The first step of each round (every
`new_tokens - 1` samples) captures a graph, for each round has a generator of its own; what comes
first in the first round also compiles kernels.
"""

import argparse
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from bench.gpu.measure import card, require_card, save_figures
from radixkv.integrations.transformers import Generation, Generator
from radixkv.integrations.transformers.schedule import Step


@dataclass(frozen=True)
class Sizes:
    layers: int = 32
    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocab: int = 32000
    system: int = 8192
    rest: int = 256
    chats: int = 64
    own: int = 64
    new_tokens: int = 64
    rounds: int = 3


TINY = Sizes(2, 256, 512, 8, 2, 1000, 512, 64, 8, 16, 8, 1)


class Forced(Generator):
    """Computes given tokens, where there are any, instead of those it would sample."""

    tokens: dict[Generation, list[int]] | None = None

    def _compute(self, step: Step) -> tuple[torch.Tensor, list[int]]:
        logits, sampled = super()._compute(step)
        if self.tokens:
            sampled = [
                self.tokens[each.generation][len(each.generation.tokens)] if each.samples else token
                for each, token in zip(step.work, sampled, strict=True)
            ]
        return logits, sampled


def model_of(sizes: Sizes, device: str) -> Any:
    config = LlamaConfig(
        vocab_size=sizes.vocab,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=32768,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)


def first_tokens(model: Any, sizes: Sizes, backend: str) -> dict[str, Any]:
    """Seconds to the first token, with the beginning of the prompt cached and without."""
    rng = np.random.default_rng(1)
    length = sizes.system + sizes.rest
    generator = Generator(
        model, num_slots=2 * length * (sizes.rounds + 1), chunk_size=None, backend=backend
    )
    samples: dict[str, list[float]] = {"uncached": [], "cached": []}
    for _ in range(sizes.rounds + 1):
        system = rng.integers(0, sizes.vocab, sizes.system)
        for name in samples:
            prompt = np.concatenate([system, rng.integers(0, sizes.vocab, sizes.rest)])
            generation = generator.submit(prompt.astype(np.int32), 1, eos_ids=())
            generator.run()
            assert generation.numbers.cached_tokens == (sizes.system if name == "cached" else 0)
            samples[name].append(generation.numbers.time_to_first_token_s or 0.0)
    # The first of each compiles.
    ms = {name: round(median(times[1:]) * 1e3, 2) for name, times in samples.items()}
    return {"ms": ms, "times": round(ms["uncached"] / ms["cached"], 2), "samples_s": samples}


def chats(model: Any, sizes: Sizes, backend: str) -> tuple[Forced, list[NDArray[np.int32]]]:
    """A generator that has the system prompt cached, and the chats' prompts."""
    rng = np.random.default_rng(2)
    slots = sizes.system + sizes.chats * (sizes.own + sizes.new_tokens + 2) + 64
    generator = Forced(model, num_slots=slots, max_batch=sizes.chats, backend=backend)
    system = rng.integers(0, sizes.vocab, sizes.system).astype(np.int32)
    generator.submit(system, 1, eos_ids=())
    generator.run()
    own = rng.integers(0, sizes.vocab, (sizes.chats, sizes.own)).astype(np.int32)
    return generator, [np.concatenate([system, each]) for each in own]


def step_us(model: Any, sizes: Sizes, backend: str, ahead: bool) -> tuple[list[float], str]:
    """Microseconds of each step in which all chats decode, and what the backend chose.

    ahead: plan a step while the one before is computed.
    """
    generator, prompts = chats(model, sizes, backend)
    if not ahead:
        generator._schedule.batch_after = lambda step: None  # type: ignore[method-assign]
    all_ = [generator.submit(prompt, sizes.new_tokens, eos_ids=()) for prompt in prompts]
    steps = []
    while True:
        decoding = sum(each.is_running and not each.is_prefilling for each in all_)
        begun = time.perf_counter()
        if not generator.step():
            break
        if decoding == sizes.chats:
            steps.append(round((time.perf_counter() - begun) * 1e6, 1))
    explain = getattr(generator.attention, "explain", None)
    return steps, str(explain()) if explain else backend


def decode(model: Any, sizes: Sizes, backends: tuple[str, str]) -> dict[str, Any]:
    """Step times of the contenders, in turn."""
    tree, flat = backends
    contenders = {
        "tree": (tree, True),
        "tree, planned in the open": (tree, False),
        "flat": (flat, True),
    }
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    chosen = {}
    for _ in range(sizes.rounds):
        for name, (backend, ahead) in contenders.items():
            us, chosen[name] = step_us(model, sizes, backend, ahead)
            samples[name] += us
    ms = {name: round(median(us) / 1e3, 3) for name, us in samples.items()}
    return {
        "step_ms": ms,
        "tokens_per_s": {name: round(sizes.chats / each * 1e3) for name, each in ms.items()},
        "times": round(ms["flat"] / ms["tree"], 2),
        "chosen": chosen["tree"],
        # Of each round: it captures a graph, and in the first round it also compiles.
        "first_step_ms": {
            name: [round(each / 1e3, 1) for each in us[:: sizes.new_tokens - 1]]
            for name, us in samples.items()
        },
        "samples_us": samples,
    }


def generated(
    model: Any, sizes: Sizes, backend: str, forced: list[list[int]] | None = None
) -> list[Generation]:
    """All chats to their end, with the logits of each token."""
    generator, prompts = chats(model, sizes, backend)
    all_ = [
        generator.submit(prompt, sizes.new_tokens, eos_ids=(), keep_logits=True)
        for prompt in prompts
    ]
    generator.tokens = dict(zip(all_, forced, strict=True)) if forced else None
    generator.run()
    return all_


def compared(those: list[Generation], others: list[Generation]) -> dict[str, Any]:
    """Logits for the same tokens, and where others would have drawn another, by how little."""
    one, other = (
        torch.stack([torch.stack(each.logits) for each in all_]).float() for all_ in (those, others)
    )
    drawn = one.argmax(-1)
    best = other.max(-1).values
    behind = best - other.gather(-1, drawn[..., None])[..., 0]
    differs = other.argmax(-1) != drawn
    return {
        "relative_difference": float((one - other).norm() / other.norm()),
        "largest_difference": float((one - other).abs().max()),
        "spread_of_logits": float(other.std()),
        "tokens": drawn.numel(),
        "other_tokens": int(differs.sum()),
        "largest_margin_of_those": float(behind[differs].max()) if differs.any() else 0.0,
    }


def logits(model: Any, sizes: Sizes, backends: tuple[str, str]) -> dict[str, Any]:
    """Those of tree, flat and float32 for the same tokens; `model` is float32 afterwards."""
    tree = generated(model, sizes, backends[0])
    forced = [each.tokens for each in tree]
    flat = generated(model, sizes, backends[1], forced)
    exact = generated(model.float(), sizes, "triton", forced)
    return {
        "tree against flat": compared(tree, flat),
        "tree against float32": compared(tree, exact),
        "flat against float32": compared(flat, exact),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backends", nargs=2, default=["tree", "fa3"])
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        require_card()
    sizes = TINY if arguments.tiny else Sizes()
    model = model_of(sizes, arguments.device)
    found: dict[str, Any] = {"parameters": model.num_parameters(), "sizes": vars(sizes)}
    found["first_token"] = first_tokens(model, sizes, arguments.backends[0])
    print({k: v for k, v in found["first_token"].items() if k != "samples_s"}, flush=True)
    found["decode"] = decode(model, sizes, tuple(arguments.backends))
    found["decode"]["logits"] = logits(model, sizes, tuple(arguments.backends))
    print({k: v for k, v in found["decode"].items() if k != "samples_us"}, flush=True)
    if not arguments.tiny:
        print(card()["card"], save_figures("serving", found))


if __name__ == "__main__":
    main()
