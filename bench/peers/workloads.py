"""What the contenders are asked to do. NumPy only: this runs in the peers' environment too."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

VOCAB = 128_000
Turn = tuple[list[int], list[int]]  # a prompt and what was generated after it


@dataclass(frozen=True)
class Stream:
    """Requests that go through the whole cycle, in a pool of `slots`."""

    slots: int
    seed: int


STREAMS = {"w1": Stream(1_000_000, 1), "w2": Stream(300_000, 2), "w4": Stream(200_000, 4)}
LONG = 32_768
LEAVES = (1_000, 10_000, 100_000)


def turns(work: str) -> Iterator[Turn]:
    """The requests of a stream, the same for every contender."""
    rng = np.random.default_rng(STREAMS[work].seed)
    return {"w1": chat, "w2": fan_out, "w4": churn}[work](rng)


def _ids(rng: np.random.Generator, n: int) -> list[int]:
    ids: list[int] = rng.integers(0, VOCAB, n).tolist()
    return ids


def chat(rng: np.random.Generator) -> Iterator[Turn]:
    """200 sessions of 8 turns, in rounds, after 4 system prompts of 1,500; 200 in, 300 out."""
    systems = [_ids(rng, 1500) for _ in range(4)]
    histories = [list(systems[i % 4]) for i in range(200)]
    for _ in range(8):
        for i, history in enumerate(histories):
            prompt = history + _ids(rng, 200)
            output = _ids(rng, 300)
            histories[i] = prompt + output
            yield prompt, output


def fan_out(rng: np.random.Generator) -> Iterator[Turn]:
    """2,000 requests of 100 tokens after one prefix of 4,000."""
    prefix = _ids(rng, 4000)
    for _ in range(2000):
        yield prefix + _ids(rng, 100), []


def churn(rng: np.random.Generator) -> Iterator[Turn]:
    """20,000 requests of 500 to 2,000 tokens in a pool that is always full.

    They begin with one of 2,000 prefixes of 200 to 1,500 tokens, by Zipf.
    """
    prefixes = [_ids(rng, int(n)) for n in rng.integers(200, 1501, 2000)]
    weight = 1 / np.arange(1, 2001)
    picks = rng.choice(2000, 20_000, p=weight / weight.sum())
    for pick, length in zip(picks, rng.integers(500, 2001, 20_000), strict=True):
        prefix = prefixes[pick]
        yield prefix + _ids(rng, max(int(length) - len(prefix), 20)), []


def long_prompt() -> tuple[list[int], list[list[int]]]:
    """w3: a prompt of 32,768 tokens, and 400 other endings of 16."""
    rng = np.random.default_rng(3)
    return _ids(rng, LONG), [_ids(rng, 16) for _ in range(400)]


def sequences(count: int, length: int) -> Iterator["np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """w5: random sequences that share nothing."""
    rng = np.random.default_rng(5)
    for _ in range(count):
        yield rng.integers(0, VOCAB, length)


def branch(i: int) -> list[int]:
    """w5b: 8 tokens that all share, then 4 of its own."""
    return [*range(8), 8 + i, i % 7, i % 11, i % 13]
