"""The worker on which a prompt costs least, as the cache-aware policy counts it."""

from typing import Protocol

import numpy as np

from radixkv.router.pick_input import PickInput, RoutingChoice, best

# In the order of `reason` in kernels/router.
REASONS = (
    "longest match",
    "shorter match, less busy",
    "best holder overloaded",
    "no cached prefix",
)


class CheapestWorker(Protocol):
    """Chooses the worker that a prompt costs least, in tokens; of equal ones the least loaded, then
    the one not picked for longest.

    Tokens of the prompt that a worker does not hold cost one each, pending tokens `waiting` each,
    a load of 1 `share` of the prompt. Recent load beyond that of the worker with the least costs
    `balance` of it, a prompt at most.
    Cost: O(workers).
    """

    def __call__(
        self, asked: PickInput, waiting: float, share: float, balance: float
    ) -> RoutingChoice: ...


def cheapest(asked: PickInput, waiting: float, share: float, balance: float) -> RoutingChoice:
    """`CheapestWorker` in NumPy."""
    lengths, loads, size = asked.lengths, asked.loads, asked.prompt_length
    queue = waiting * asked.pending + loads * (share * size)
    ahead = np.minimum(balance * (asked.recent_loads - asked.recent_loads.min()), size)
    at = best(lengths - queue - ahead, loads, asked.last_picked)
    return RoutingChoice(at, _reason(lengths[at], lengths.max()))


def _reason(length: float, longest: float) -> str:
    longest_match, shorter_match, overloaded, no_match = REASONS
    if length:
        return longest_match if length == longest else shorter_match
    return overloaded if longest else no_match
