"""What all handlers use: one cache, its leases, the replies so far, and the lock over all three."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from radixkv.cache import PrefixCache
from radixkv.errors import (
    CacheCorruptedError,
    InvalidArgumentError,
    RadixKVError,
    UnsupportedError,
)
from radixkv.rpc.call import Call
from radixkv.service.server.idempotency import Replies, Reply, ResponseMessage
from radixkv.service.server.leases import LeaseRecord, Leases
from radixkv.v1.types_pb2 import ResponseHeader

_MOST_REPORTED = 10
# Between two slices of a check: who waits for the lock gets it, which a thread that takes it again
# at once would not leave to others.
_PAUSE_S = 0.0005


class HandlerContext:
    """One cache that an engine may be using at the same time.

    lends_slots: whether engines elsewhere may take slots and store what they computed.
    is_local: whether only this machine can connect, so that errors may say what is broken.
    violations: of invariants; once there are any, every call is refused.
    """

    def __init__(
        self, cache: PrefixCache, leases: Leases, *, lends_slots: bool, is_local: bool
    ) -> None:
        self.cache, self.leases = cache, leases
        self.lends_slots, self._is_local = lends_slots, is_local
        self._violations: list[str] = []
        self._replies = Replies(self._is_void)

    @property
    def violations(self) -> list[str]:
        """What was found here, or else by the cache itself."""
        return self._violations or list(self.cache.violations)

    def check_integrity(self) -> list[str]:
        """`violations`, looked for if none is known."""
        if not self.violations:
            found: list[str] = []
            for lines in self.cache.check_in_steps():
                found += lines
                time.sleep(_PAUSE_S)
            self._violations = self.violations or found
        return self.violations

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Around what is to happen at one revision; leases that are over end first.

        An error that is not ours has the cache checked, and every call refused if it is broken.
        """
        with self.cache.lock:
            if self.violations:
                raise self._refusal()
            try:
                self.leases.settle()
                yield
            except RadixKVError:
                raise
            except BaseException as error:
                self._may_be_broken(error)
                raise

    @contextmanager
    def once(
        self, request: Any, call: Call, response_type: type[ResponseMessage]
    ) -> Iterator[Reply[ResponseMessage]]:
        """`locked`, around what is to happen once for each request id.

        The reply has its message where the request came before; otherwise the caller sets it.
        """
        with self.locked():
            reply = self._replies.find(call.caller.name, request, response_type)
            yield reply
            self._replies.keep(reply)

    def _refusal(self) -> CacheCorruptedError:
        shown = {"violations": self.violations[:_MOST_REPORTED]} if self._is_local else {}
        return CacheCorruptedError(
            "an invariant of the cache is broken; restart the server", **shown
        )

    def _may_be_broken(self, error: BaseException) -> None:
        """A call failed in the middle of a change: refuse service unless the cache is sound."""
        try:
            lines = self.cache.check_integrity()
        except Exception as failed:
            lines = [f"integrity cannot be checked: {failed!r}"]
        if lines and not self.violations:
            self._violations = [f"a call failed with {error!r}", *lines]

    def held_lease(self, request: Any, call: Call) -> LeaseRecord:
        """The lease that the request names, in the epoch that it names. Raises what is wrong."""
        if not request.expected_epoch:
            raise InvalidArgumentError(
                "expected_epoch must be given with a lease: the epoch in which it was granted",
                field="expected_epoch",
            )
        self.check_epoch(request.expected_epoch)
        return self.leases.get(request.lease_id, call.caller)

    def check_epoch(self, expected: int) -> None:
        """Raises EpochMismatchError unless the cache is in that epoch; 0: any."""
        if expected:
            self.cache.events.check_epoch(expected)

    def check_lends(self, rpc_name: str) -> None:
        """Raises UnsupportedError where the engine lends no slots."""
        if not self.lends_slots:
            raise UnsupportedError(
                f"this server's engine keeps its slots to itself and does not serve {rpc_name}; "
                "`radixkv serve` without a model lends them, CacheServer with lends_slots=True"
            )

    def header(self, call: Call) -> ResponseHeader:
        """Where the cache is now. Tenants get no revision, which shows what others do."""
        epoch, revision = self.cache.events.position()
        return ResponseHeader(epoch=epoch, revision=0 if call.caller.is_bound else revision)

    def _is_void(self, request: Any, response: Any) -> bool:
        names = response.lease if "lease" in response.DESCRIPTOR.fields_by_name else request
        lease_id = getattr(names, "lease_id", 0)
        is_over = lease_id != 0 and not self.leases.has(lease_id)
        return is_over or response.header.epoch != self.cache.events.epoch
