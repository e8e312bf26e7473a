"""What is varied between replays: a cache, and the way requests go through it."""

from dataclasses import dataclass

from radixkv.arguments import at_least, between
from radixkv.errors import InvalidArgumentError
from radixkv.lab.replay.scheduling import SCHEDULINGS, Scheduling
from radixkv.tree import POLICIES

MOST_SLOTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """A cache and the way requests go through it.

    capacity: tokens kept; None: all. outputs: answers are cached too. in_flight: requests that hold
    their locks; a request's prompt is shared from its prefill on, and the request ends when
    `in_flight - 1` more were admitted. scheduling: which waiting request is admitted next.
    """

    page_size: int = 1
    capacity: int | None = None
    policy: str = "lru"
    outputs: bool = False
    in_flight: int = 1
    scheduling: Scheduling = SCHEDULINGS["arrival"]
    core: str | None = None

    def __post_init__(self) -> None:
        between(1, MOST_SLOTS, page_size=self.page_size)
        at_least(1, in_flight=self.in_flight)
        if self.capacity is not None:
            between(0, MOST_SLOTS, capacity=self.capacity)
        if self.policy not in POLICIES:
            raise InvalidArgumentError(
                f"policy must be one of {', '.join(POLICIES)}; got {self.policy!r}",
                policy=self.policy,
            )
