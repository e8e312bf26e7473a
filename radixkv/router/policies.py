"""Routing policies: which worker gets a prompt, by what each holds of it and how busy each is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from radixkv.errors import InvalidArgumentError
from radixkv.router.question import Choice, Question
from radixkv.router.vote import Vote, best, new_vote


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
    """Where the prompt costs least, in tokens.

    Those that the worker does not hold; a part of the prompt for each request that it has under way
    (all of it for `slack` more than the mean); and a tenth (`balance`) of those by which its work
    of late is ahead of the least worked's, a whole prompt's at most. So what nobody holds goes to
    who has done least, and what one holds is computed once more elsewhere when its holder is ahead
    by ten times as much as the match saves.

    Dynamo's router also adds up what is to be computed and what is under way; Preble's (E2) weighs
    a match against the work of some minutes, which it estimates and workers tell here.
    """

    name: ClassVar[str] = "cache-aware"
    weight: float = 1.0
    slack: float = 8.0
    balance: float = 0.1
    core: str | None = None
    _vote: Vote = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_vote", new_vote(self.core))

    def choose(self, question: Question) -> Choice:
        return self._vote(question, self.weight, self.slack, self.balance)


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
        return Choice(best(-question.loads, question.loads, question.turns), "least loaded")
