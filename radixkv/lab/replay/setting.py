"""What is varied between replays: a cache, and the way requests go through it."""

from collections.abc import Collection
from dataclasses import dataclass

from radixkv.arguments import at_least, between
from radixkv.errors import InvalidArgumentError
from radixkv.lab.replay.scheduling import SCHEDULINGS, Scheduling
from radixkv.tree import POLICIES

MOST_SLOTS = 2**31 - 1
CAPACITIES_OF = ("pool", "cache")


@dataclass(frozen=True, slots=True)
class Setting:
    """A cache and the way requests go through it.

    capacity: tokens; None: all have room.
    capacity_of: "pool", in which everything has its place, as in an engine: a request waits until
    its prompt and its answer fit next to the requests in flight, and one that is longer than the
    pool is refused. "cache": what is kept besides the requests in flight, which always fit; the
    published tables of the request traces count so.
    outputs: answers are cached too. in_flight: requests that run at a time; a request's prompt is
    shared from its prefill on, and the request ends when `in_flight - 1` more were admitted, or
    earlier where another waits for its room. scheduling: which waiting request is admitted next.
    """

    page_size: int = 1
    capacity: int | None = None
    policy: str = "lru"
    outputs: bool = False
    in_flight: int = 1
    scheduling: Scheduling = SCHEDULINGS["arrival"]
    core: str | None = None
    capacity_of: str = "pool"

    def __post_init__(self) -> None:
        between(1, MOST_SLOTS, page_size=self.page_size)
        at_least(1, in_flight=self.in_flight)
        if self.capacity is not None:
            between(0, MOST_SLOTS, capacity=self.capacity)
        _one_of(POLICIES, policy=self.policy)
        _one_of(CAPACITIES_OF, capacity_of=self.capacity_of)

    @property
    def is_pool(self) -> bool:
        """Whether requests may have to wait for room."""
        return self.capacity is not None and self.capacity_of == "pool"


def _one_of(known: Collection[str], **named: str) -> None:
    for name, value in named.items():
        if value not in known:
            raise InvalidArgumentError(
                f"{name} must be one of {', '.join(known)}; got {value!r}", **{name: value}
            )
