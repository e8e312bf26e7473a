"""Where a prompt costs least, as the cache-aware policy counts it: in C++, or in NumPy."""

from typing import Protocol

import numpy as np

from radixkv.cores import native_module
from radixkv.router.arrays import FloatArray, IntArray
from radixkv.router.question import Choice, Question

BEST, BUSY, TOO_BUSY, NOBODY = REASONS = (
    "holds most of it",
    "holds less than the best, and is less busy",
    "who holds some is too busy",
    "nobody holds any of it",
)


class Vote(Protocol):
    """The worker that a prompt costs least, in tokens; of several the least loaded, then the one
    not picked for longest.

    What a worker does not hold of the prompt costs as it is. A load of `slack` + the mean costs
    `weight` prompts. Work ahead of the least worked's costs `balance` of it, a prompt at most.
    Cost: O(workers).
    """

    def __call__(
        self, question: Question, weight: float, slack: float, balance: float
    ) -> Choice: ...


def new_vote(core: str | None = None) -> Vote:
    """The vote of the core named, or of the best there is; see `new_holdings`."""
    module = native_module(core, "radixkv.kernels._router")
    if module is None:
        return cheapest
    native: Vote = module.cheapest
    return native


def cheapest(question: Question, weight: float, slack: float, balance: float) -> Choice:
    """See `Vote`."""
    lengths, loads, size = question.lengths, question.loads, question.prompt_length
    a_load = weight * size / (loads.mean() + slack)
    ahead = np.minimum(balance * (question.work - question.work.min()), size)
    at = best(lengths - loads * a_load - ahead, loads, question.turns)
    return Choice(at, _why(lengths[at], lengths.max()))


def best(scores: FloatArray, loads: FloatArray, turns: IntArray) -> int:
    """The highest score; of several the least loaded, then the one not picked for longest."""
    (ties,) = (scores == scores.max()).nonzero()
    order = np.lexsort((turns[ties], loads[ties]))
    return int(ties[order[0]])


def _why(length: float, longest: float) -> str:
    if length:
        return BEST if length == longest else BUSY
    return TOO_BUSY if longest else NOBODY
