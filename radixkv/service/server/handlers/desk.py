"""What all handlers share: one cache, its leases, what was answered, and a turn with all three."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from radixkv.cache import PrefixCache
from radixkv.errors import CacheCorruptedError, InvalidArgumentError, UnsupportedError
from radixkv.rpc.call import Call
from radixkv.service.server.answers import Answers, Response
from radixkv.service.server.leases import LeaseRecord, Leases
from radixkv.v1.types_pb2 import ResponseHeader

_MOST_TOLD = 10


class Desk:
    """One cache that an engine may be using at the same time.

    lends_slots: whether engines elsewhere may take slots and store what they computed.
    is_local: whether only this machine can ask, so that it may be told what is broken.
    violations: of invariants; once there are any, nothing else is answered.
    """

    def __init__(
        self, cache: PrefixCache, leases: Leases, *, lends_slots: bool, is_local: bool
    ) -> None:
        self.cache, self.leases = cache, leases
        self.lends_slots, self._is_local = lends_slots, is_local
        self.violations: list[str] = []
        self._answers = Answers(self._is_void)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Around what is to happen at one revision; leases that are over end first."""
        with self.cache.lock:
            if self.violations:
                told = {"violations": self.violations[:_MOST_TOLD]} if self._is_local else {}
                raise CacheCorruptedError(
                    "an invariant of the cache is broken; restart the server", **told
                )
            self.leases.settle()
            yield

    def once(self, call: Call, request: Any, make: Callable[[Any, Call], Response]) -> Response:
        """What `make` gives in a turn, or what it gave to the same request before."""
        with self.turn():
            return self._answers.once(call.caller.name, request, lambda: make(request, call))

    def held_lease(self, request: Any, call: Call) -> LeaseRecord:
        """The lease that the request names, in the epoch that it names. Raises what is wrong."""
        if not request.expected_epoch:
            raise InvalidArgumentError(
                "expected_epoch is missing; what names a lease names its epoch",
                field="expected_epoch",
            )
        self.check_epoch(request.expected_epoch)
        return self.leases.get(request.lease_id, call.caller)

    def check_epoch(self, expected: int) -> None:
        """Raises EpochMismatchError unless the cache is in that epoch; 0: any."""
        if expected:
            self.cache.events.check_epoch(expected)

    def check_lends(self, what: str) -> None:
        """Raises UnsupportedError where the engine lends no slots."""
        if not self.lends_slots:
            raise UnsupportedError(
                f"this server's engine keeps its slots to itself and does not serve {what}; "
                "`radixkv serve` without a model lends them, CacheServer with lends_slots=True"
            )

    def header(self) -> ResponseHeader:
        """Where the cache is now."""
        epoch, revision = self.cache.events.position()
        return ResponseHeader(epoch=epoch, revision=revision)

    def _is_void(self, request: Any, response: Any) -> bool:
        names = response.lease if "lease" in response.DESCRIPTOR.fields_by_name else request
        lease_id = getattr(names, "lease_id", 0)
        is_over = lease_id != 0 and not self.leases.has(lease_id)
        return is_over or response.header.epoch != self.cache.events.epoch
