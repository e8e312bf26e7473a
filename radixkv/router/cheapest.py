"""The worker on which a prompt costs least, as the cache-aware policy counts it."""

from typing import Protocol

import numpy as np

from radixkv.router.pick_input import FloatArray, PickInput, RoutingChoice, best

# In the order of `reason` in kernels/router.
REASONS = (
    "longest match",
    "shorter match, less busy",
    "best holder overloaded",
    "no cached prefix",
)


class CheapestWorker(Protocol):
    """Chooses the worker on which a prompt costs least, in tokens; of equal ones the one with the
    least recent load, then the one not picked for longest.

    What is pending before it costs a token each. Tokens that the worker does not hold cost one for
    this prompt and one for each request that waits for them in turn: as many as a worker has under
    way in the mean, `most_delayed` at most. What it holds counts less by `balance` of its recent
    load beyond that of the worker with the least, but no less than what every worker holds.
    Cost: O(workers).
    """

    def __call__(self, asked: PickInput, balance: float, most_delayed: float) -> RoutingChoice: ...


def cheapest(asked: PickInput, balance: float, most_delayed: float) -> RoutingChoice:
    """`CheapestWorker` in NumPy."""
    lengths, recent = asked.lengths, asked.recent_loads
    held = np.maximum(lengths - balance * (recent - recent.min()), lengths.min())
    delayed = 1 + min(_sum(asked.loads) / len(recent), most_delayed)
    costs = asked.pending + (asked.prompt_length - held) * delayed
    at = best(-costs, recent, asked.last_picked)
    return RoutingChoice(at, _reason(lengths[at], lengths.max()))


def _sum(values: FloatArray) -> float:
    """In four lanes, as the native core adds, so that both round alike."""
    whole = len(values) - len(values) % 4
    lanes = values[:whole].reshape(-1, 4).sum(axis=0)
    for value in values[whole:]:
        lanes[0] += value
    return float((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]))


def _reason(length: float, longest: float) -> str:
    longest_match, shorter_match, overloaded, no_match = REASONS
    if length:
        return longest_match if length == longest else shorter_match
    return overloaded if longest else no_match
