"""Replays a log through a real `PrefixCache` and writes down what each request found."""

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from radixkv import PrefixCache
from radixkv.arguments import at_least, between
from radixkv.cache.request import Request as Running
from radixkv.errors import InvalidArgumentError
from radixkv.lab.admission import ADMISSIONS, Admission, in_admission_order
from radixkv.lab.progress import Tell
from radixkv.lab.requests import Indices, Request, RequestLog
from radixkv.pages import round_up
from radixkv.tree import POLICIES, Namespace

MOST_SLOTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """A cache and how requests meet it.

    capacity: tokens kept, None: all. outputs: what is answered is cached too. in_flight: requests
    that hold their locks; a request's prompt is shared from its prefill on, and the request ends
    when `in_flight - 1` more were admitted. admission: who is next of those that wait.
    """

    page_size: int = 1
    capacity: int | None = None
    policy: str = "lru"
    outputs: bool = False
    in_flight: int = 1
    admission: Admission = ADMISSIONS["arrival"]
    core: str | None = None

    def __post_init__(self) -> None:
        between(1, MOST_SLOTS, page_size=self.page_size)
        at_least(1, in_flight=self.in_flight)
        if self.capacity is not None:
            between(0, MOST_SLOTS, capacity=self.capacity)
        if self.policy not in POLICIES:
            raise InvalidArgumentError(
                f"policy is {self.policy!r}; it takes one of {', '.join(POLICIES)}",
                policy=self.policy,
            )


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What each request found, in the order of admission: (n,) int64 each.

    ids: `Request.id`. arrivals: the place of each in the order of the log. evicted_tokens: evicted
    since the one before. namespaces: the place of each one's in `namespace_names`. seconds: how
    long the replay took.
    """

    setting: Setting
    ids: Indices
    arrivals: Indices
    prompt_tokens: Indices
    cached_tokens: Indices
    evicted_tokens: Indices
    namespaces: Indices
    namespace_names: list[Namespace]
    seconds: float

    @property
    def hit_rate(self) -> float:
        """Tokens from the cache over prompt tokens, 0 to 1."""
        return float(self.cached_tokens.sum() / max(1, self.prompt_tokens.sum()))


def replay(log: RequestLog, setting: Setting | None = None, *, tell: Tell | None = None) -> Replay:
    """Every request of `log` through a fresh cache.

    tell: hears how many requests are done. Raises InvalidArgumentError for a setting that is none.
    """
    setting = setting or Setting()
    begun = time.perf_counter()
    engine = Engine(log, setting)
    found = np.zeros((len(log), 6), np.int64)
    namespaces: dict[Namespace, int] = {}
    queue = in_admission_order(log, setting.admission, engine.cache.probe)
    for done, (arrival, request) in enumerate(queue):
        cached = engine.serve(request)
        numbers = request.length, cached, engine.cache.totals.evicted_tokens
        namespace = namespaces.setdefault(request.namespace, len(namespaces))
        found[done] = request.id, arrival, *numbers, namespace
        if tell is not None:
            tell(done + 1)
    return Replay(
        setting,
        ids=found[:, 0],
        arrivals=found[:, 1],
        prompt_tokens=found[:, 2],
        cached_tokens=found[:, 3],
        evicted_tokens=np.diff(found[:, 4], prepend=0),
        namespaces=found[:, 5],
        namespace_names=[*namespaces],
        seconds=time.perf_counter() - begun,
    )


class Engine:
    """A cache, with as many requests in flight as the setting says, the oldest ending first."""

    def __init__(self, log: RequestLog, setting: Setting) -> None:
        self.setting = setting
        self._running: deque[tuple[Running, Request]] = deque()
        page_size = setting.page_size
        totals = log.lengths + log.max_padding + (log.output_lengths if setting.outputs else 0)
        longest = round_up(int(totals.max(initial=1)), page_size)
        in_flight = min(setting.in_flight, max(1, len(log)))
        num_slots = int((totals + page_size).sum())
        if setting.capacity is not None:
            num_slots = min(num_slots, setting.capacity + in_flight * longest)
        self.cache = PrefixCache(
            _checked(round_up(max(num_slots, longest), page_size), setting),
            max_requests=in_flight,
            max_context_len=longest,
            page_size=page_size,
            policy=setting.policy,
            core=setting.core,
            max_cached_tokens=setting.capacity,
        )

    def serve(self, request: Request) -> int:
        """Admit the request and share its prompt; how many of its tokens were cached.

        At most all but one of the prompt's own, padding apart.
        """
        self.make_room()
        return self.admit(request)

    def make_room(self) -> Request | None:
        """End the oldest request in flight if there is no room for another."""
        if len(self._running) < self.setting.in_flight:
            return None
        admitted, request = self._running.popleft()
        self._end(admitted, request)
        return request

    def admit(self, request: Request) -> int:
        """As `serve`, where there is room."""
        admitted = self.cache.admit(request.token_ids, request.namespace)
        assert admitted is not None  # the pool has room for all that are in flight
        cached = min(admitted.cached_len, request.length - 1)
        if self.setting.in_flight == 1:
            self._end(admitted, request)
        else:
            self.cache.publish(admitted, admitted.length)
            self._running.append((admitted, request))
        return cached

    def _end(self, admitted: Running, request: Request) -> None:
        if self.setting.outputs and request.outputs:
            self.cache.extend(admitted, request.outputs[0])
        self.cache.finish(admitted)


def _checked(num_slots: int, setting: Setting) -> int:
    if num_slots > MOST_SLOTS:
        capacity = "a capacity" if setting.capacity is None else "a smaller capacity"
        raise InvalidArgumentError(
            f"{num_slots:,} tokens are more than a pool holds ({MOST_SLOTS:,}); give {capacity}"
            + ", fewer requests in flight" * (setting.in_flight > 1)
            + f" or a smaller page size than {setting.page_size:,}" * (setting.page_size > 1),
            num_slots=num_slots,
        )
    return num_slots
