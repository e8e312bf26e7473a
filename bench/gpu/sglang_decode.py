"""SGLang's decode with our attention against its own, both with CUDA graphs.

    python -m bench.gpu.sglang_decode           into bench/results/gpu/sglang_decode.json
    TRITON_INTERPRET=1 python -m bench.gpu.sglang_decode --cpu       does it run at all?

Granite's shape with random weights: 7B, and what one of eight cards has of a 70B model. Three
engines, one after another: SGLang as it is (FlashAttention 3, its own cache), our attention over
its cache, our attention over our cache.

A rate is tokens of all requests by time, of the difference between long and short answers to the
same prompts, all of them cached: what is left is decode steps. Where requests join, the rate is of
all tokens by the whole time, prompts included. "first" is the time to the first tokens of all
requests, whose own tokens are new. Answers are greedy; where they differ from SGLang's, the margin
is what the token that SGLang drew was ahead of its next best by, as logarithm of probabilities.
"""

import argparse
import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from bench.gpu.measure import require_card, save_figures
from bench.gpu.sglang_engine import FIRST_TOKEN, ON_CPU, Model, engine, greedy
from bench.report import Claim, judge

SEVEN_B = Model(layers=32, hidden=4096, intermediate=14336, heads=32, kv_heads=8)
SHARD = Model(layers=80, hidden=8192, intermediate=3584, heads=8, kv_heads=1)
TINY = Model(layers=2, hidden=256, intermediate=256, heads=8, kv_heads=2, head_dim=64, vocab=1024)

SGLANG, ATTENTION, BOTH = "sglang", "radixkv attention", "radixkv attention and cache"
ENGINES = {
    SGLANG: {"attention_backend": "fa3"},
    ATTENTION: {"attention_backend": "radixkv"},
    BOTH: {"attention_backend": "radixkv", "radix_cache_backend": "radixkv"},
}
SHORT, LONG, ROUNDS = 16, 144, 3
TURNS = 4  # requests one after another, of those that join
DRAWN = 32  # tokens of answers that are compared


class Case(NamedTuple):
    """Requests that share a beginning; `times`: what our attention must reach of SGLang's rate."""

    name: str
    requests: int
    shared: int
    own: int
    times: float
    joins: bool = False


CASES = {
    "7b": (
        SEVEN_B,
        (
            Case("64 x (8,192 + 256)", 64, 8192, 256, 1.7),
            Case("16 x (2,000 + 500)", 16, 2000, 500, 1.1),
            Case("64 x (8,192 + 48), one joins and one leaves", 64, 8192, 48, 1.5, joins=True),
            Case("64 x 2,048, nothing shared", 64, 0, 2048, 0.99),
        ),
    ),
    "shard": (SHARD, (Case("8/1 heads, 64 x (8,192 + 512)", 64, 8192, 512, 1.15),)),
    "tiny": (
        TINY,
        (
            Case("4 x (200 + 100)", 4, 200, 100, 0),
            Case("4 x (200 + 8), joins", 4, 200, 8, 0, joins=True),
        ),
    ),
}


def prompts_of(case: Case, seed: int) -> list[list[int]]:
    """`own` tokens of each are behind the shared ones, the middle of the answer included."""
    shared = np.random.default_rng(0).integers(FIRST_TOKEN, 900, case.shared).tolist()
    rng = np.random.default_rng(seed)
    length = case.own - (case.requests if case.joins else SHORT + LONG) // 2
    return [shared + rng.integers(FIRST_TOKEN, 900, length).tolist() for _ in range(case.requests)]


def seconds_of(serving: Any, prompts: list[list[int]], parameters: Any) -> float:
    """That all answers take."""
    begun = time.perf_counter()
    serving.generate(input_ids=prompts, sampling_params=parameters)
    return time.perf_counter() - begun


def rate(serving: Any, case: Case, lengths: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Tokens a second while all requests decode, and seconds to their first tokens."""
    short, long = lengths
    first = []
    for seed in range(rounds + 1):
        prompts = prompts_of(case, seed)
        first.append(seconds_of(serving, prompts, greedy(1)))
    serving.generate(input_ids=prompts, sampling_params=greedy(long))
    seconds: dict[int, list[float]] = {short: [], long: []}
    for _ in range(rounds):
        for length, samples in seconds.items():
            samples.append(seconds_of(serving, prompts, greedy(length)))
    spent = median(seconds[long]) - median(seconds[short])
    return {
        "tokens_per_s": round(case.requests * (long - short) / spent, 1),
        "step_ms": round(1e3 * spent / (long - short), 3),
        "first_ms": round(1e3 * median(first[1:]), 1),
        "samples_s": {str(length): samples for length, samples in seconds.items()},
    }


def joining(serving: Any, case: Case, rounds: int) -> dict[str, Any]:
    """Tokens a second while another request begins as soon as one ends, which is at each step."""
    seconds = []
    lengths = _lengths(case)
    for seed in range(rounds):
        prompts = [p for part in range(TURNS) for p in prompts_of(case, TURNS * seed + part)]
        begun = time.perf_counter()
        serving.loop.run_until_complete(_all_places(serving, prompts, lengths))
        seconds.append(time.perf_counter() - begun)
    after, tokens = seconds[1:] or seconds, sum(map(sum, lengths))
    return {"tokens_per_s": round(tokens / median(after), 1), "samples_s": {"all": after}}


def _lengths(case: Case) -> list[list[int]]:
    """Of the answers at each of the places where one request runs: the first are of all lengths, so
    that one ends at each step, and all others of the same."""
    return [[at + 1] + [case.requests] * (TURNS - 1) for at in range(case.requests)]


async def _all_places(serving: Any, prompts: list[list[int]], lengths: list[list[int]]) -> None:
    async def place(at: int) -> None:
        for turn, length in enumerate(lengths[at]):
            await serving.async_generate(
                input_ids=prompts[turn * len(lengths) + at], sampling_params=greedy(length)
            )

    await asyncio.gather(*map(place, range(len(lengths))))


def drawn(serving: Any, case: Case) -> list[dict[str, Any]]:
    """Each request's greedy tokens, and of each what it was ahead of the next best by."""
    answers = serving.generate(
        input_ids=prompts_of(case, 0),
        sampling_params=greedy(DRAWN),
        return_logprob=True,
        top_logprobs_num=2,
    )
    return [
        {
            "tokens": answer["output_ids"],
            "margins": [
                best[0] - next_[0] for best, next_ in answer["meta_info"]["output_top_logprobs"]
            ],
        }
        for answer in answers
    ]


def compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """Where our answers first differ from SGLang's, and by what margin it drew another."""
    margins = []
    for one, other in zip(ours, theirs, strict=True):
        differs = [a != b for a, b in zip(one["tokens"], other["tokens"], strict=True)]
        if any(differs):
            margins.append(other["margins"][differs.index(True)])
    all_margins = [margin for each in theirs for margin in each["margins"]]
    return {
        "answers": len(ours),
        "equal": len(ours) - len(margins),
        "largest_margin_where_they_differ": round(max(margins, default=0.0), 4),
        "median_margin": round(median(all_margins), 4),
    }


def run_engine(
    model: Model, cases: tuple[Case, ...], flags: dict[str, Any], quick: bool
) -> dict[str, Any]:
    """Figures and answers of each case."""
    lengths, rounds = ((4, 12), 1) if quick else ((SHORT, LONG), ROUNDS)
    found: dict[str, Any] = {}
    with engine(model, **flags) as serving:
        for case in cases:
            if case.joins:
                found[case.name] = joining(serving, case, rounds)
            else:
                found[case.name] = rate(serving, case, lengths, rounds)
                found[case.name]["drawn"] = drawn(serving, case)
            shown = {k: v for k, v in found[case.name].items() if k not in ("drawn", "samples_s")}
            print(case.name, shown, flush=True)
    return found


def flags_of(cases: tuple[Case, ...], on_cpu: bool) -> dict[str, Any]:
    most = max(case.requests for case in cases)
    pool = max(2 * case.shared + 2 * case.requests * (case.own + LONG) for case in cases)
    flags: dict[str, Any] = {
        "max_running_requests": most,
        "max_total_tokens": pool,
        "context_length": 16384,
    }
    if on_cpu:
        return flags | {name: v for name, v in ON_CPU.items() if name != "attention_backend"}
    captured = {"cuda_graph_bs_decode": [1, 16, 64], "cuda_graph_backend_prefill": "disabled"}
    return flags | captured | {"mem_fraction_static": 0.85}


def claims(case: Case, rows: dict[str, dict[str, Any]]) -> list[Claim]:
    theirs = rows[SGLANG]["tokens_per_s"]
    return [
        Claim(f"{case.name}, {name}", rows[name]["tokens_per_s"] / theirs, "at least", case.times)
        for name in (ATTENTION, BOTH)
        if name in rows
    ]


def race(model: Model, cases: tuple[Case, ...], engines: list[str], on_cpu: bool) -> dict[str, Any]:
    """Rows by case and engine."""
    found = {}
    for name in engines:
        print(name, flush=True)
        flags = flags_of(cases, on_cpu) | ENGINES[name]
        if on_cpu and name == SGLANG:
            flags["attention_backend"] = "torch_native"
        found[name] = run_engine(model, cases, flags, quick=on_cpu)
    rows = {case.name: {name: found[name][case.name] for name in engines} for case in cases}
    for by_engine in rows.values():
        answers = {name: row.pop("drawn", None) for name, row in by_engine.items()}
        for name, answer in answers.items():
            if name != SGLANG and answer and answers.get(SGLANG):
                by_engine[name]["answers"] = compared(answer, answers[SGLANG])
                print(name, by_engine[name]["answers"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--models", nargs="+", choices=CASES, default=["7b", "shard"])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not arguments.cpu:
        require_card()
    models = ["tiny"] if arguments.cpu else arguments.models
    found, checked = {}, []
    for name in models:
        model, cases = CASES[name]
        found[name] = {
            "model": vars(model),
            "rows": race(model, cases, arguments.engines, arguments.cpu),
        }
        for case in cases:
            if SGLANG in arguments.engines:
                checked += claims(case, found[name]["rows"][case.name])
        if not arguments.cpu:
            print(save_figures("sglang_decode", {"models": found}, arguments.out), flush=True)
    judge(checked)


if __name__ == "__main__":
    main()
