"""Routing policies: which worker gets a prompt, by what each holds of it and how busy each is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from radixkv.errors import InvalidArgumentError

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Lengths: TypeAlias = NDArray[np.int32] | FloatArray


class Question(NamedTuple):
    """One prompt to place, and the workers that may get it: arrays with an item for each.

    lengths: tokens of the prompt that each holds, as far as the index can be trusted: those of a
    worker that fell silent or behind count less. loads: in any one unit. turns: when each was
    picked last, as a count of picks. prompt_length: tokens, more than 0.
    key: what belongs together (a session, a tenant), or the beginning of the prompt; asked for only
    by who needs it.
    """

    workers: tuple[str, ...]
    lengths: Lengths
    loads: FloatArray
    turns: IntArray
    prompt_length: int
    key: Callable[[], bytes]


class Choice(NamedTuple):
    """The position of the worker chosen, and why, for a person."""

    at: int
    reason: str


class Policy(Protocol):
    """Chooses. Called for one question at a time, with at least one worker."""

    name: ClassVar[str]

    def choose(self, question: Question) -> Choice:
        """Where the prompt goes."""
        ...


POLICIES: dict[str, Callable[..., Policy]] = {}
P = TypeVar("P", bound=Policy)


def register(policy: type[P]) -> type[P]:
    """Make a policy known by its `name`."""
    POLICIES[policy.name] = policy
    return policy


def new_policy(name: str, **options: Any) -> Policy:
    """The policy of that name. Raises InvalidArgumentError for an unknown name or option."""
    if name not in POLICIES:
        raise InvalidArgumentError(
            f"policy is {name!r}; there are {', '.join(sorted(POLICIES))}", policy=name
        )
    try:
        return POLICIES[name](**options)
    except TypeError as error:
        raise InvalidArgumentError(f"policy {name}: {error}", policy=name) from error


@register
@dataclass(frozen=True, slots=True)
class CacheAware:
    """The largest matched share of the prompt, less `weight` times the relative load.

    Relative load is in mean loads, to which `slack` is added, so that where only a few requests are
    under way a match outweighs them. Ties, and prompts that nobody holds, go to the least loaded,
    then to the one not picked for longest.
    """

    name: ClassVar[str] = "cache-aware"
    weight: float = 1.0
    slack: float = 8.0

    def choose(self, question: Question) -> Choice:
        lengths, loads = question.lengths, question.loads
        # A decision has few microseconds: a dot product is a third of what a sum takes, argmax a
        # fifth of max; and scores are tokens, because that saves a division.
        mean = float(loads.dot(_ones(len(loads)))) / len(loads)
        weight = self.weight * question.prompt_length / (mean + self.slack)
        at = _best(lengths - loads * weight, question)
        return Choice(at, _why(float(lengths[at]), float(lengths[lengths.argmax()])))


@lru_cache
def _ones(n: int) -> FloatArray:
    return np.ones(n)


def _best(scores: FloatArray, question: Question) -> int:
    """The highest score; of several the least loaded, then the one not picked for longest."""
    at = int(scores.argmax())
    highest, scores[at] = scores[at], -np.inf
    if scores[scores.argmax()] < highest:
        return at
    scores[at] = highest
    (ties,) = (scores == highest).nonzero()
    order = np.lexsort((question.turns[ties], question.loads[ties]))
    return int(ties[order[0]])


def _why(length: float, best: float) -> str:
    if length and length == best:
        return "holds most of it"
    if length:
        return "holds less than the best, and is less busy"
    return "who holds some is too busy" if best else "nobody holds any of it"


@register
@dataclass(frozen=True, slots=True)
class ConsistentHashing:
    """The same worker for the same key, whatever is cached; few keys move when workers change.

    The order of workers for a key is that of a hash of both (rendezvous hashing); it goes to the
    first whose load is within `bound` times the mean, so no key makes one worker a hot spot.
    """

    name: ClassVar[str] = "consistent-hashing"
    bound: float = 1.25
    _seeds: dict[tuple[str, ...], NDArray[np.uint64]] = field(default_factory=dict, repr=False)

    def choose(self, question: Question) -> Choice:
        seeds = self._seeds_of(question.workers)
        ranks = _mixed(seeds ^ np.uint64(_hash(question.key())))
        first = int(ranks.argmax())
        # One more is what this prompt adds.
        most = self.bound * (question.loads.sum() + 1) / len(seeds)
        ranks[question.loads + 1 > max(most, 1)] = 0
        at = int(ranks.argmax()) if ranks.any() else int(question.loads.argmin())
        return Choice(at, "its key is here" if at == first else "who has its key is too busy")

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


@register
@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Each worker in turn."""

    name: ClassVar[str] = "round-robin"

    def choose(self, question: Question) -> Choice:
        return Choice(int(question.turns.argmin()), "it is its turn")


@register
@dataclass(frozen=True, slots=True)
class LeastLoad:
    """The least loaded worker, of equal ones the one not picked for longest."""

    name: ClassVar[str] = "least-load"

    def choose(self, question: Question) -> Choice:
        return Choice(_best(-question.loads, question), "least loaded")
