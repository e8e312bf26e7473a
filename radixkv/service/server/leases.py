"""Leases: what remote clients hold, and for how long.

Everything here runs under the cache's lock, so that expiry is ordered with matches. The clock is
monotonic and injected. A lease belongs to one epoch and ends with it.
"""

import logging
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sortedcontainers import SortedDict, SortedSet

from radixkv.arrays import EMPTY, Int32Array
from radixkv.cache import PrefixCache
from radixkv.cache.loans import Aside
from radixkv.cache.pin import Pin
from radixkv.errors import (
    ForbiddenError,
    InvalidArgumentError,
    LeaseNotFoundError,
    LeaseTtlError,
    LiveRequestsError,
    OverloadedError,
    PinNotFoundError,
)
from radixkv.rpc.auth import ANYONE, Principal
from radixkv.rpc.limits import (
    LONGEST_HOLDER_BYTES,
    MAX_LEASE_TTL_S,
    MAX_LEASES,
    MAX_PINS,
    MIN_LEASE_TTL_S,
)

logger = logging.getLogger(__name__)

# Ends of leases, and of graces, in one turn with the cache.
_MOST_ENDS_A_TURN = 32


@dataclass(slots=True, eq=False)
class LeaseRecord:
    """One lease. owner: the name of the token that it was granted to.

    borrower: its number in `Loans`, once it borrowed slots. num_slots: on loan to it.
    """

    id: int
    ttl_s: float
    ends_at: float
    owner: str
    holder: str
    pool_id: str
    pins: dict[int, Pin] = field(default_factory=dict)
    borrower: int | None = None
    num_slots: int = 0


class Quarantine(NamedTuple):
    """What an ended lease held, until when no one uses it. owner: whose quota it counts against."""

    until: float
    owner: str
    pool_id: str
    num_slots: int
    aside: Aside


class Leases:
    """All leases of one cache.

    pool_id: the pool that the slots live in, if it is the process's own. None: engines elsewhere
    own it and name it with their leases; when the last lease that names it ends, or it is replaced,
    its K/V is gone, so everything is forgotten.
    lends_slots: whether a lease may borrow any.
    grace_s: how long the slots of a lease that ended are used by no one.
    """

    def __init__(
        self,
        cache: PrefixCache,
        *,
        pool_id: str | None,
        lends_slots: bool,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache, self._loans, self._clock = cache, cache.loans, clock
        self._owns_pool, self.pool_id = pool_id is not None, pool_id or ""
        self._lends_slots = lends_slots
        self._grace_s = grace_s
        self._leases: SortedDict = SortedDict()  # by id
        self._deadlines: SortedSet = SortedSet()  # (ends_at, id)
        self._quarantined: deque[Quarantine] = deque()
        self._renewed_at: dict[int, float] = {}  # renewals that have come and not run
        self._epoch = cache.events.epoch
        self.num_pins = 0
        self._num_pooled = 0  # leases that name a pool
        # How often a pool went with all that was cached: it "ended", or was "replaced".
        self.num_forgotten: Counter[str] = Counter()
        # Of each owner: leases, pins, and slots on loan or in quarantine.
        self._leases_of: Counter[str] = Counter()
        self._pins_of: Counter[str] = Counter()
        self._slots_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._leases)

    # ---- time ----

    @property
    def is_overdue(self) -> bool:
        """Whether `settle` has more to end by now."""
        now = self._clock()
        return bool(
            (self._deadlines and self._deadlines[0][0] <= now)
            or (self._quarantined and self._quarantined[0].until <= now)
        )

    @property
    def may_end(self) -> bool:
        """Whether there is anything that `settle` could end, now or later; any thread may look."""
        return len(self._leases) > 0 or len(self._quarantined) > 0

    def settle(self) -> None:
        """End what is over: leases of another epoch, leases past their time, graces.

        At most some at once, so that no call waits for all; those that are left are over all the
        same (see `has`).
        """
        if self._epoch != self._cache.events.epoch:
            self._end_all()
        now = self._clock()
        for _ in range(_MOST_ENDS_A_TURN):
            if not self._deadlines or self._deadlines[0][0] > now:
                break
            self._end_or_renew(self._leases[self._deadlines[0][1]])
        for _ in range(_MOST_ENDS_A_TURN):
            if not self._quarantined or self._quarantined[0].until > now:
                break
            self._release(self._quarantined.popleft())

    def note_renewal(self, lease_id: int, epoch: int, caller: Principal) -> None:
        """A renewal has come, and waits for its turn: the lease goes on from now. Any thread."""
        if epoch == self._epoch and self.has(lease_id, caller):
            self._renewed_at[lease_id] = self._clock()

    def _end_or_renew(self, lease: LeaseRecord) -> None:
        renewed_at = self._renewed_at.pop(lease.id, None)
        if renewed_at is None or renewed_at >= lease.ends_at:
            logger.info("lease %d of %r ended: it was not renewed", lease.id, lease.holder)
            self._end(lease)
        else:
            self._set_end(lease, renewed_at + lease.ttl_s)

    # ---- leases ----

    def grant(
        self,
        caller: Principal,
        ttl_s: float,
        holder: str,
        pool_id: str,
        *,
        replaces_pool: bool = False,
    ) -> LeaseRecord:
        """A new lease.

        replaces_pool: name another pool although leases of the present one live; they end.
        Raises LeaseTtlError, InvalidArgumentError, OverloadedError, LiveRequestsError where leases
        name another pool, ForbiddenError.
        """
        if not MIN_LEASE_TTL_S <= ttl_s <= MAX_LEASE_TTL_S:
            raise LeaseTtlError(
                f"ttl must be {MIN_LEASE_TTL_S:g} to {MAX_LEASE_TTL_S:g} s; got {ttl_s:g} s",
                field="ttl",
                ttl_s=ttl_s,
                max_lease_ttl_s=MAX_LEASE_TTL_S,
            )
        for name, value in (("holder", holder), ("pool_id", pool_id)):
            if len(value.encode()) > LONGEST_HOLDER_BYTES:
                raise InvalidArgumentError(
                    f"{name} must be at most {LONGEST_HOLDER_BYTES} bytes; got more", field=name
                )
        caller.quota.check("leases", self._leases_of[caller.name] + 1)
        if len(self._leases) >= MAX_LEASES:
            raise OverloadedError(
                f"leases must be at most {MAX_LEASES}; the server grants no more now",
                retry_after_s=1.0,
            )
        self._name_pool(caller, pool_id, replaces_pool)
        ends_at = self._clock() + ttl_s
        lease = LeaseRecord(_new_id(), ttl_s, ends_at, caller.name, holder, pool_id)
        self._leases[lease.id] = lease
        self._deadlines.add((ends_at, lease.id))
        self._leases_of[lease.owner] += 1
        self._num_pooled += bool(pool_id)
        return lease

    def get(self, lease_id: int, caller: Principal) -> LeaseRecord:
        """The caller's lease of that id. Raises LeaseNotFoundError, for another's too."""
        if not self.has(lease_id, caller):
            raise LeaseNotFoundError(
                f"there is no lease {lease_id}: it has ended, or was never granted", lease=lease_id
            )
        lease: LeaseRecord = self._leases[lease_id]
        return lease

    def has(self, lease_id: int, caller: Principal = ANYONE) -> bool:
        """Whether the caller has a lease of that id, and it is not over."""
        lease: LeaseRecord | None = self._leases.get(lease_id)
        return lease is not None and _may_see(caller, lease) and not self._is_over(lease)

    def _is_over(self, lease: LeaseRecord) -> bool:
        renewed_at = self._renewed_at.get(lease.id, lease.ends_at)
        return lease.ends_at <= self._clock() and renewed_at >= lease.ends_at

    def renew(self, lease: LeaseRecord) -> None:
        """Its time begins again."""
        self._renewed_at.pop(lease.id, None)
        self._set_end(lease, self._clock() + lease.ttl_s)

    def _set_end(self, lease: LeaseRecord, ends_at: float) -> None:
        self._deadlines.discard((lease.ends_at, lease.id))
        lease.ends_at = ends_at
        self._deadlines.add((lease.ends_at, lease.id))

    def revoke(self, lease: LeaseRecord) -> tuple[int, int]:
        """End it now; how many pins and slots it held. What it held also sits out its grace."""
        held = len(lease.pins), lease.num_slots
        self._end(lease)
        return held

    def after(self, lease_id: int, caller: Principal) -> Iterator[LeaseRecord]:
        """The caller's leases with a higher id, in order."""
        for found in self._leases.irange(minimum=lease_id, inclusive=(False, True)):
            lease = self._leases[found]
            if _may_see(caller, lease) and not self._is_over(lease):
                yield lease

    def remaining_s(self, lease: LeaseRecord) -> float:
        """Seconds that it has left."""
        return max(0.0, lease.ends_at - self._clock())

    def slots(self, lease: LeaseRecord) -> Int32Array:
        """The slots on loan to it, (n,) int32, in order."""
        return EMPTY if lease.borrower is None else self._loans.slots_of(lease.borrower)

    # ---- what leases hold ----

    def check_pins(self, caller: Principal, lease: LeaseRecord, num_pins: int) -> None:
        """Raises OverloadedError unless the lease may hold that many more pins."""
        caller.quota.check("pins", self._pins_of[lease.owner] + num_pins)
        if self.num_pins + num_pins > MAX_PINS:
            raise OverloadedError(
                f"pins must be at most {MAX_PINS}; the server takes no more now", retry_after_s=1.0
            )

    def add_pin(self, lease: LeaseRecord, pin: Pin) -> int:
        """The id of a pin, which the lease holds from now on."""
        pin_id = _new_id()
        lease.pins[pin_id] = pin
        self.num_pins += 1
        self._pins_of[lease.owner] += 1
        return pin_id

    def pin(self, lease: LeaseRecord, pin_id: int) -> Pin:
        """The pin of that id. Raises PinNotFoundError."""
        if pin_id not in lease.pins:
            raise PinNotFoundError(f"the lease holds no pin {pin_id}", pin=pin_id)
        return lease.pins[pin_id]

    def drop_pin(self, lease: LeaseRecord, pin_id: int) -> bool:
        """Forget a pin; whether the lease held it."""
        pin = lease.pins.pop(pin_id, None)
        if pin is None:
            return False
        self.num_pins -= 1
        self._pins_of[lease.owner] -= 1
        self._loans.unpin(pin)
        return True

    def check_slots(self, caller: Principal, lease: LeaseRecord, num_slots: int) -> None:
        """Raises OverloadedError unless the lease may borrow that many more slots."""
        caller.quota.check("slots", self._slots_of[lease.owner] + num_slots)

    def count_slots(self, lease: LeaseRecord, change: int) -> None:
        """The lease borrowed slots (above 0), or gave them back or stored them (below 0)."""
        lease.num_slots += change
        self._slots_of[lease.owner] += change

    def borrower(self, lease: LeaseRecord) -> int:
        """Its number in `Loans`. Raises InvalidArgumentError for a lease without a pool."""
        if not lease.pool_id:
            raise InvalidArgumentError(
                "lease_id must be of a lease with a pool_id; got one without, which holds no slots",
                field="lease_id",
            )
        if lease.borrower is None:
            lease.borrower = self._loans.new_borrower()
        return lease.borrower

    # ---- ends ----

    def _name_pool(self, caller: Principal, pool_id: str, replaces_pool: bool) -> None:
        if pool_id in ("", self.pool_id):
            return
        if self._owns_pool:
            pins_alone = (
                ""
                if self._lends_slots
                else (": its engine lends no slots, a lease without pool_id may hold pins")
            )
            raise InvalidArgumentError(
                f"pool_id must be this server's, {self.pool_id!r}; got {pool_id!r}{pins_alone}",
                field="pool_id",
            )
        caller.check_unbound("name a pool")
        if self.pool_id:
            if not replaces_pool:
                raise LiveRequestsError(
                    f"pool_id must be {self.pool_id!r} while leases name it; got {pool_id!r}: wait "
                    "for their end, or replace the pool",
                    pool_id=self.pool_id,
                    retry_after_s=1.0,
                )
            if caller.role != "admin":
                raise ForbiddenError(f"a token of role {caller.role} may not replace a pool")
            self._forget("replaced", f"{caller.name or 'a caller'} replaced it by {pool_id!r}")
        self.pool_id = pool_id
        # What clients of other pools still write is not in this one.
        for entry in [entry for entry in self._quarantined if entry.pool_id != pool_id]:
            self._release(entry)
        self._quarantined = deque(entry for entry in self._quarantined if entry.pool_id == pool_id)

    def _end(self, lease: LeaseRecord) -> None:
        self._remove(lease)
        if lease.pool_id and not self._num_pooled and not self._owns_pool:
            self._forget("ended", f"its last lease ended, of {lease.holder or lease.owner!r}")

    def _forget(self, reason: str, why: str) -> None:
        """The pool is gone, and so is what was cached in it."""
        self.num_forgotten[reason] += 1
        sizes = self._cache.stats()
        logger.warning(
            "cache cleared, pool %r with %d tokens is gone: %s", self.pool_id,
            sizes.evictable + sizes.protected, why,
        )  # fmt: skip
        self._cache.reset(force=True)
        self._end_all()

    def _end_all(self) -> None:
        for lease in list(self._leases.values()):
            self._remove(lease)
        self._epoch = self._cache.events.epoch
        if not self._owns_pool:
            self.pool_id = ""

    def _remove(self, lease: LeaseRecord) -> None:
        del self._leases[lease.id]
        self._renewed_at.pop(lease.id, None)
        self._deadlines.discard((lease.ends_at, lease.id))
        self.num_pins -= len(lease.pins)
        self._num_pooled -= bool(lease.pool_id)
        self._leases_of[lease.owner] -= 1
        self._pins_of[lease.owner] -= len(lease.pins)
        aside = self._loans.set_aside(lease.borrower, list(lease.pins.values()))
        if len(aside.slots) or aside.pins:
            until = self._clock() + self._grace_s
            self._quarantined.append(
                Quarantine(until, lease.owner, lease.pool_id, len(aside.slots), aside)
            )
        assert len(aside.slots) == lease.num_slots

    def _release(self, entry: Quarantine) -> None:
        self._slots_of[entry.owner] -= entry.num_slots
        self._loans.free_aside(entry.aside)


def _may_see(caller: Principal, lease: LeaseRecord) -> bool:
    return lease.owner == caller.name or caller.role == "admin"


def _new_id() -> int:
    return secrets.randbits(62) + 1
