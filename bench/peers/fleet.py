"""The fleet that routers are raced on. NumPy only: this runs in the peers' environment too."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

VOCAB = 128_000
SYSTEMS, SYSTEM = 20, 2_000  # prompts that all workers hold, and their length
TURNS, TURN = 8, 500  # of a session, which follows one of the systems
PROMPT = 4_000
# One session in four is held by some workers more than its own.
SHARED_EVERY, HOLDERS = 4, 3

Ids = np.ndarray[Any, np.dtype[np.int32]]


class Stored(NamedTuple):
    """A run: `ids` behind the first `parent_offset` tokens of `parent_run` (0: from the root).

    whole: the prompt up to the end of the run, of which `known` tokens came before it.
    """

    run: int
    parent_run: int
    parent_offset: int
    ids: Ids
    whole: Ids
    known: int


def system(at: int) -> Ids:
    return np.random.default_rng((1, at)).integers(0, VOCAB, SYSTEM, dtype=np.int32)


def session(number: int) -> tuple[int, Ids]:
    """Which system it follows, and all its tokens, the system's first."""
    rng = np.random.default_rng((2, number))
    at = int(rng.integers(SYSTEMS))
    own = rng.integers(0, VOCAB, TURNS * TURN, dtype=np.int32)
    own[0] = VOCAB + number  # no two sessions begin alike
    return at, np.concatenate([system(at), own])


class Fleet:
    """`workers` workers that hold `tokens` tokens each, or a little less."""

    def __init__(self, workers: int, tokens: int) -> None:
        self.workers = workers
        self.sessions_each = (tokens - SYSTEMS * SYSTEM) // (TURNS * TURN)
        self.num_tokens = SYSTEMS * SYSTEM + self.sessions_each * TURNS * TURN

    def sessions(self, worker: int) -> list[int]:
        """The sessions that a worker holds: its own, and some that it has in common with others."""
        shared = self.sessions_each // SHARED_EVERY
        group = worker // HOLDERS
        own = self.sessions_each - shared
        return [
            *range(group * shared, (group + 1) * shared),
            *range(1_000_000 + worker * own, 1_000_000 + (worker + 1) * own),
        ]

    def stored(self, worker: int) -> Iterator[Stored]:
        """The runs of a worker, parents first."""
        for at in range(SYSTEMS):
            ids = system(at)
            yield Stored(at + 1, 0, 0, ids, ids, 0)
        run = SYSTEMS
        for number in self.sessions(worker):
            at, ids = session(number)
            parent, offset = at + 1, SYSTEM
            for end in range(SYSTEM + TURN, len(ids) + 1, TURN):
                run += 1
                yield Stored(run, parent, offset, ids[end - TURN : end], ids[:end], end - TURN)
                parent, offset = run, TURN

    def prompts(self, count: int, seed: int) -> list[Ids]:
        """Prompts of 4,000 tokens that follow sessions of workers drawn at random; the last tokens
        of each are new."""
        rng = np.random.default_rng((3, seed))
        found = []
        for worker in rng.integers(self.workers, size=count).tolist():
            ids = session(int(rng.choice(self.sessions(worker))))[1][:PROMPT].copy()
            ids[-100:] = rng.integers(0, VOCAB, 100)
            found.append(ids)
        return found
