"""The same worker for the same key."""

from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from radixkv.router.pick_input import PickInput, RoutingChoice


@dataclass(frozen=True, slots=True)
class ConsistentHashing:
    """The same worker for the same key, whatever is cached; few keys move when workers change.

    The order of workers for a key is that of a hash of both (rendezvous hashing). The prompt goes
    to the first whose load with it is at most `bound` times the mean, rounded up, as in consistent
    hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2018); so no key makes one
    worker a hot spot. `least_gap` requests above the mean are always allowed: with few requests for
    each worker their number varies by as much, and a key would leave its worker for nothing.

    Attributes
    ----------
    bound
        Times the mean load that a worker may have.
    least_gap
        Requests above the mean that are always allowed.
    """

    name: ClassVar[str] = "consistent-hashing"
    bound: float = 1.25
    least_gap: float = 2.0
    _seeds: dict[tuple[str, ...], NDArray[np.uint64]] = field(default_factory=dict, repr=False)

    def choose(self, asked: PickInput) -> RoutingChoice:
        """The worker of the prompt's key, or the next that is not overloaded.

        Parameters
        ----------
        asked
            The prompt, and the workers that may get it.

        Returns
        -------
        RoutingChoice
            The worker, and why.
        """
        seeds = self._seeds_of(asked.workers)
        ranks = _mixed(seeds ^ np.uint64(_hash(asked.key())))
        owner = int(ranks.argmax())
        # One more is what this prompt adds.
        mean = (asked.loads.sum() + 1) / len(seeds)
        capacity = ceil(max(self.bound * mean, mean + self.least_gap))
        ranks[asked.loads + 1 > capacity] = 0
        at = int(ranks.argmax()) if ranks.any() else int(asked.loads.argmin())
        return RoutingChoice(at, "key owner" if at == owner else "key owner overloaded")

    def _seeds_of(self, workers: tuple[str, ...]) -> NDArray[np.uint64]:
        if workers not in self._seeds:
            self._seeds.clear()
            hashes = [_hash(worker.encode()) for worker in workers]
            self._seeds[workers] = np.array(hashes, np.uint64)
        return self._seeds[workers]


def _hash(data: bytes) -> int:
    """The same in every process, so that several routers agree."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each value's bits spread over all bits (the finalizer of splitmix64)."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
