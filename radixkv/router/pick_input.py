"""What a routing policy receives, and what it returns."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


class PickInput(NamedTuple):
    """One prompt to place and the n workers that may get it; each array is (n,), an item a worker.

    Attributes
    ----------
    workers
        (n,) names.
    lengths
        int32 tokens of the prompt that each holds; float64 where some workers are stale, whose
        tokens count less.
    loads
        float64, requests under way or any other one unit.
    pending
        float64, tokens that the requests under way still cost each.
    recent_loads
        float64, tokens that each computed recently or has been sent to compute.
    last_picked
        int64, when each was picked last, as a count of picks.
    prompt_length
        Tokens, at least 1.
    key
        Returns what belongs together (a session, a tenant), or the beginning of the prompt.
    """

    workers: tuple[str, ...]
    lengths: Int32Array | FloatArray
    loads: FloatArray
    pending: FloatArray
    recent_loads: FloatArray
    last_picked: IntArray
    prompt_length: int
    key: Callable[[], bytes]


class RoutingChoice(NamedTuple):
    """The position of the chosen worker, and the reason as text for people.

    Attributes
    ----------
    at
        Position in `PickInput.workers`.
    reason
        Why, for a person.
    """

    at: int
    reason: str


def best(scores: FloatArray, loads: FloatArray, last_picked: IntArray) -> int:
    """Position of the highest score; of equal ones the least loaded, then the least recent."""
    (ties,) = (scores == scores.max()).nonzero()
    order = np.lexsort((last_picked[ties], loads[ties]))
    return int(ties[order[0]])
