"""What one caller may use of a server, whatever other callers use."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from radixkv.errors import InvalidArgumentError, OverloadedError
from radixkv.rpc import limits
from radixkv.rpc.limits import CallKind


@dataclass(frozen=True, slots=True)
class Quota:
    """Most of each that the calls of one token may hold; None: only the server's own limit.

    slots: on loan to its leases, or set aside after them. streams, calls: under way at once. picks:
    of a router, not finished. calls_per_s: begun, on average; a second's worth may come at once.
    """

    slots: int | None = None
    leases: int | None = None
    pins: int | None = None
    streams: int | None = None
    calls: int | None = None
    picks: int | None = None
    calls_per_s: float | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not _is_amount(value, each.name == "calls_per_s"):
                raise InvalidArgumentError(
                    f"{each.name} must be a number of 1 or more; got {value!r}", field=each.name
                )

    def check(self, name: str, used: int) -> None:
        """Raises OverloadedError if `used`, with what is asked for, is above the limit `name`."""
        most: int | None = getattr(self, name)
        if most is not None and used > most:
            raise OverloadedError(
                f"{name} of one token must be at most {most}; this token has no more",
                retry_after_s=1.0,
                quota=name,
                most=most,
            )


def _is_amount(value: object, may_be_fraction: bool) -> bool:
    kinds = (int, float) if may_be_fraction else (int,)
    return isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < 2**63


UNLIMITED = Quota()
# Of tokens that are bound to a salt, where the tokens file says nothing else: a small part of what
# the server takes of all callers.
TENANT_DEFAULT = Quota(leases=256, pins=4096, streams=64, calls=64, picks=1024)


class CallCounts:
    """Calls under way by kind, of all callers and of each, and how fast each caller begins them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: Counter[CallKind] = Counter()
        self._running_of: Counter[tuple[str, CallKind]] = Counter()
        self._budgets: dict[str, tuple[float, float]] = {}  # calls left, and at which time

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not any(self._running.values())

    @contextmanager
    def counted(self, kind: CallKind, caller: str, quota: Quota) -> Iterator[None]:
        """Around a call. Raises OverloadedError above a limit of the server or of the caller."""
        self.spend(caller, quota)
        most, key = limits.CONCURRENT_CALLS[kind], (caller, kind)
        quota.check("streams" if kind == "stream" else "calls", self._running_of[key] + 1)
        if self._running[kind] >= most:
            raise OverloadedError(
                f"{kind} calls under way must be at most {most}; the server takes no more now",
                retry_after_s=0.1,
                most=most,
            )
        self._running[kind] += 1
        self._running_of[key] += 1
        try:
            yield
        finally:
            self._running[kind] -= 1
            self._running_of[key] -= 1
            if not self._running_of[key]:
                del self._running_of[key]

    def spend(self, caller: str, quota: Quota) -> None:
        """Count the beginning of a call, or of a request in a stream. Raises OverloadedError."""
        rate = quota.calls_per_s
        if rate is None:
            return
        now = self._clock()
        left, at = self._budgets.get(caller, (max(rate, 1.0), now))
        left = min(left + (now - at) * rate, max(rate, 1.0))
        if left < 1:
            self._budgets[caller] = left, now
            raise OverloadedError(
                f"calls of one token must be at most {rate:g} a second; this token has no more now",
                retry_after_s=(1 - left) / rate,
                quota="calls_per_s",
                most=rate,
            )
        self._budgets[caller] = left - 1, now


class LateRefusals:
    """Refusals that wait, so that a caller which asks again at once is slowed by them."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()

    async def wait(self, caller: str, remaining_s: float | None) -> None:
        """Wait, though not past half of the time that the caller waits for an answer."""
        if self._waiting[caller] >= limits.MOST_LATE_REFUSALS:
            return
        delay_s = limits.REFUSAL_DELAY_S
        if remaining_s is not None:
            delay_s = min(delay_s, remaining_s / 2)
        self._waiting[caller] += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]
