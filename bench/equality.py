"""The same greedy tokens with the cache as without, on a real model and real prompts.

    python -m bench.equality            all of it, into bench/results/equality.json
    python -m bench.equality --prompts 12 --out equality.json

Each prompt is the first 200 and the last 200 token ids of a traced request. The reference is the
same model run by transformers alone, one prompt at a time, with transformers' own cache. Our runs
share a pool that is far too small for them, so they evict and retract all the time.
"""

import argparse
import inspect
import json
import lzma
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from transformers import DynamicCache, PreTrainedModel

from bench.report import kept_at, save
from bench.traces import find_traces
from radixkv.integrations.transformers import (
    Generation,
    Generator,
    find_smollm2,
    load_model,
    load_tokenizer,
)

TRACES = ("taubench_airline", "mtbench101", "lmcache_magagent")
HEAD, TAIL = 200, 200
NEW_TOKENS = 32
TOLERANCE = 2e-4
MAX_BATCH = 8

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """One way to run the prompts: num_prompts of them, or all (None)."""

    page_size: int
    chunk_size: int | None
    num_slots: int
    num_prompts: int | None = None

    def of(self, prompts: Sequence[T]) -> Sequence[T]:
        """Those of `prompts` that it runs, from all traces."""
        return prompts[:: max(1, len(prompts) // (self.num_prompts or len(prompts)))]


# A few prompts of 400 tokens fit at once, but not the 31 slots that each takes later.
SETTINGS = [
    *(Setting(page_size, chunk, 1648) for page_size in (1, 16) for chunk in (64, None)),
    *(Setting(page_size, 1, 1248, 5) for page_size in (1, 16)),
]


@dataclass(frozen=True)
class Alone:
    """What the model gives by itself: tokens, and the logits each was drawn from."""

    tokens: list[int]
    logits: torch.Tensor

    @property
    def margins(self) -> torch.Tensor:
        """How far the best logit is above the second, at each token."""
        best = self.logits.topk(2).values
        return best[:, 0] - best[:, 1]


@dataclass(frozen=True)
class Difference:
    """A prompt whose tokens differ, and how close to a tie the first difference was."""

    prompt: int
    position: int
    expected: int
    got: int
    margin: float


@dataclass(frozen=True)
class Result:
    """One setting's run. Token counts are sums over all prompts."""

    page_size: int
    chunk_size: int | None
    num_slots: int
    prompts: int
    equal: int
    max_logit_difference: float
    differences: list[Difference]
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    resumed_tokens: int
    evicted_tokens: int
    retractions: int
    seconds: float


def distinct_prompts(tokenizer: Any, folder: Path, count: int) -> list[list[int]]:
    """`count` different prompts of HEAD + TAIL token ids, an even share from each trace."""
    prompts: list[list[int]] = []
    for done, name in enumerate(TRACES, start=1):
        for ids in _cut_prompts(tokenizer, folder / f"{name}.jsonl.xz"):
            if len(prompts) == count * done // len(TRACES):
                break
            if ids not in prompts:
                prompts.append(ids)
    return prompts


def _cut_prompts(tokenizer: Any, path: Path) -> Iterator[list[int]]:
    with lzma.open(path, "rt") as lines:
        for line in lines:
            ids = tokenizer.encode(json.loads(line)["prompt"])
            if len(ids) >= HEAD + TAIL:
                yield ids[:HEAD] + ids[-TAIL:]


@torch.no_grad()
def generate_alone(model: PreTrainedModel, prompt: list[int]) -> Alone:
    """NEW_TOKENS greedy tokens by transformers alone, the whole prompt at once."""
    parameters = inspect.signature(model.forward).parameters
    cache = {"cache" if "cache" in parameters else "past_key_values": DynamicCache()}
    tokens: list[int] = []
    logits: list[torch.Tensor] = []
    ids = prompt
    while len(tokens) < NEW_TOKENS:
        output: Any = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1, **cache)
        logits.append(output.logits[0, -1])
        ids = [int(logits[-1].argmax())]
        tokens += ids
    return Alone(tokens, torch.stack(logits))


def run(
    model: PreTrainedModel, prompts: list[list[int]], alone: list[Alone], setting: Setting
) -> Result:
    """All prompts of `setting` at once through a Generator, against what the model gives alone."""
    generator = Generator(
        model,
        num_slots=setting.num_slots,
        page_size=setting.page_size,
        chunk_size=setting.chunk_size,
        max_batch=MAX_BATCH,
    )
    begun = time.perf_counter()
    generations = [
        generator.submit(prompt, NEW_TOKENS, eos_ids=(), keep_logits=True)
        for prompt in setting.of(prompts)
    ]
    generator.run()
    seconds = time.perf_counter() - begun
    broken = generator.cache.check_integrity()
    assert not broken, broken
    return _result(setting, generator, generations, setting.of(alone), seconds)


def _result(
    setting: Setting,
    generator: Generator,
    generations: list[Generation],
    alone: Sequence[Alone],
    seconds: float,
) -> Result:
    pairs = list(zip(generations, alone, strict=True))
    found = (_difference(at, *pair) for at, pair in enumerate(pairs))
    differences = [difference for difference in found if difference]
    numbers = [generation.numbers for generation in generations]
    return Result(
        page_size=setting.page_size,
        chunk_size=setting.chunk_size,
        num_slots=setting.num_slots,
        prompts=len(generations),
        equal=len(generations) - len(differences),
        max_logit_difference=max(_logit_difference(*pair) for pair in pairs),
        differences=differences,
        prompt_tokens=sum(each.prompt_tokens for each in numbers),
        cached_tokens=sum(each.cached_tokens for each in numbers),
        computed_tokens=sum(each.computed_tokens for each in numbers),
        resumed_tokens=sum(each.resumed_tokens for each in numbers),
        evicted_tokens=generator.cache.stats().evicted_tokens,
        retractions=sum(each.retractions for each in numbers),
        seconds=round(seconds, 1),
    )


def _first_difference(generation: Generation, alone: Alone) -> int | None:
    pairs = enumerate(zip(generation.tokens, alone.tokens, strict=True))
    return next((at for at, (got, expected) in pairs if got != expected), None)


def _difference(prompt: int, generation: Generation, alone: Alone) -> Difference | None:
    at = _first_difference(generation, alone)
    if at is None:
        return None
    return Difference(prompt, at, alone.tokens[at], generation.tokens[at], float(alone.margins[at]))


def _logit_difference(generation: Generation, alone: Alone) -> float:
    """The largest, over the positions where both have seen the same tokens."""
    at = _first_difference(generation, alone)
    end = NEW_TOKENS if at is None else at + 1
    return float((torch.stack(generation.logits[:end]) - alone.logits[:end]).abs().max())


def table(results: list[Result]) -> Table:
    """The results, to be read."""
    title = f"{NEW_TOKENS} greedy tokens, with the cache against without (dlogit: the largest)"
    shown = Table(title=title, box=SIMPLE)
    columns = "page chunk slots equal dlogit prompt cached computed evicted retr. s"
    for column in columns.split():
        shown.add_column(column, justify="right")
    for each in results:
        shown.add_row(
            str(each.page_size),
            str(each.chunk_size or "whole"),
            str(each.num_slots),
            f"{each.equal}/{each.prompts}",
            f"{each.max_logit_difference:.1e}",
            *(f"{n:,}" for n in (each.prompt_tokens, each.cached_tokens, each.computed_tokens)),
            f"{each.evicted_tokens:,}",
            str(each.retractions),
            f"{each.seconds:.0f}",
        )
    return shown


def problems(results: list[Result]) -> list[str]:
    """What falls short of the claim, a line each."""
    found = []
    for each in results:
        name = f"page size {each.page_size}, chunks of {each.chunk_size or 'all'}"
        found += [f"{name}: {difference}" for difference in each.differences]
        if each.max_logit_difference > TOLERANCE:
            found.append(f"{name}: logits differ by {each.max_logit_difference}")
        if not each.evicted_tokens or not each.retractions:
            found.append(f"{name}: nothing was evicted or retracted, the pool is too large")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--traces", type=Path, default=find_traces())
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    if not arguments.traces.is_dir():
        sys.exit(f"no request traces in {arguments.traces}: name their folder by RADIXKV_TRACES")
    console = Console(width=100)
    transformers.utils.logging.disable_progress_bar()
    path = find_smollm2()
    model = load_model(path)
    prompts = distinct_prompts(load_tokenizer(path), arguments.traces, arguments.prompts)
    begun = time.perf_counter()
    alone = [generate_alone(model, prompt) for prompt in prompts]
    alone_s = round(time.perf_counter() - begun, 1)
    console.print(f"{len(prompts)} prompts alone: {alone_s} s")
    results = []
    for setting in SETTINGS:
        results.append(run(model, prompts, alone, setting))
        console.print(f"{setting}: {results[-1].seconds} s")
    console.print(table(results))
    report = {
        "threads": torch.get_num_threads(),
        "model": path.name,
        "traces": TRACES,
        "seed": None,  # nothing here is drawn at random
        "new_tokens": NEW_TOKENS,
        "tolerance": TOLERANCE,
        "alone_s": alone_s,
        "smallest_margin": min(float(each.margins.min()) for each in alone),
        "results": [asdict(result) for result in results],
    }
    save("equality", report, kept_at("equality", parser, arguments, "prompts"))
    console.print(f"smallest margin of a token: {report['smallest_margin']:.1e}")
    if lines := problems(results):
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
