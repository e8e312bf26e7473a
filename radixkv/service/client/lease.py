"""A lease as its holder has it: it renews itself, and is not used when it may have ended.

The holder's clock runs from when the grant or renewal was sent, the server's from when it arrived,
so the holder's ends first. The holder refuses `LEASE_MARGIN_S` before that, and the server reuses
no slot for a grace after. A holder that was frozen thus finds its time over when it goes on, and
overwrites no one's K/V if it checks before each use of its slots. What begins after a check must be
done within the grace: a process that is frozen between a check and a write writes late.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Self

import grpc

from radixkv.errors import (
    EpochMismatchError,
    LeaseExpiredError,
    LeaseNotFoundError,
    RadixKVError,
)
from radixkv.rpc import codec
from radixkv.rpc.limits import LEASE_MARGIN_S
from radixkv.service.client import lease_calls
from radixkv.service.client.lease_calls import LeaseInfo, LeaseRef
from radixkv.service.client.lost_answers import AsyncLostAnswers, LostAnswers, may_have_happened
from radixkv.service.client.methods import awaited_under, blocking_under
from radixkv.v1.lease_pb2 import KeepLeaseAliveRequest, KeepLeaseAliveResponse

_RENEWALS_A_TTL = 3


def now_s() -> float:
    """Seconds that go on while the process, or the whole machine, is stopped."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Term:
    """How long a lease is good, by its holder's own clock."""

    def __init__(self, info: LeaseInfo, sent_at: float, clock: Callable[[], float]) -> None:
        self.ref = LeaseRef(info.id, info.epoch)
        self.ttl_s = info.ttl_s
        self.is_lost = False
        self.clock = clock
        self._ends_at = sent_at + info.ttl_s

    @property
    def pause_s(self) -> float:
        """Between renewals."""
        return self.ttl_s / _RENEWALS_A_TTL

    def request(self) -> KeepLeaseAliveRequest:
        """One renewal."""
        return KeepLeaseAliveRequest(lease_id=self.ref.id, expected_epoch=self.ref.epoch)

    def renewed(self, response: KeepLeaseAliveResponse, sent_at: float) -> None:
        """The answer to a renewal that was sent then; the lease may be gone."""
        if response.HasField("ttl"):
            self._ends_at = sent_at + codec.read_seconds(response.ttl)
        else:
            self.is_lost = True

    def check(self) -> None:
        """Raises LeaseExpiredError if the lease has ended, or may have."""
        left_s = self._ends_at - self.clock()
        if self.is_lost or left_s <= LEASE_MARGIN_S:
            why = "the server ended it" if self.is_lost else f"{left_s:.3f} s are left by our clock"
            raise LeaseExpiredError(
                f"lease {self.ref.id} may have ended ({why}); use none of its slots and pins",
                lease=self.ref.id,
            )


class Lease:
    """What a remote engine holds of a cache, for as long as it renews it. Thread-safe.

    Every call checks the lease first; before every other use of its slots (a kernel, a copy) call
    `check`. Ends with `close`, by which everything that it held is dropped. A call that raises has
    taken nothing, also where its answer was lost (a deadline, a connection that broke, an
    interrupt): what it took is given back behind the scenes. To ask for the answer again instead,
    call with a `request_id` of your own, a UUID, and again with the same one; then nothing is given
    back. `holdings` shows whether a lost `insert` stored its tokens: those slots are on loan no
    longer.

    Parameters
    ----------
    client
        The client that it was granted to.
    info
        What the server granted.
    term
        How long it is good.
    """

    def __init__(self, client: Any, info: LeaseInfo, term: Term) -> None:
        self._client, self._term = client, term
        self.id, self.epoch, self.ttl_s = info.id, info.epoch, info.ttl_s
        self.pool_id, self.holder = info.pool_id, info.holder
        self._closed = threading.Event()
        self._lost_answers = LostAnswers(client.send, lambda: self._term.is_lost)
        self._stream: Any = None
        self._thread = threading.Thread(target=self._renew, name="radixkv-lease", daemon=True)
        self._thread.start()

    pin = blocking_under(lease_calls.pin)
    allocate = blocking_under(lease_calls.allocate)
    free = blocking_under(lease_calls.free)
    insert = blocking_under(lease_calls.insert)
    release = blocking_under(lease_calls.release)
    holdings = blocking_under(lease_calls.holdings)

    def check(self) -> None:
        """Check the lease by its holder's own clock, before its slots are used.

        Raises
        ------
        LeaseExpiredError
            If the lease has ended, or may have.
        """
        self._term.check()

    def checked_ref(self) -> LeaseRef:
        """What names the lease in calls.

        Returns
        -------
        LeaseRef
            Its id, and the epoch in which it was granted.

        Raises
        ------
        LeaseExpiredError
            As `check` does.
        """
        self._term.check()
        return self._term.ref

    def send(self, call: Any) -> Any:
        """See `Client.send`."""
        try:
            return self._client.send(call)
        except BaseException as error:
            if may_have_happened(error):
                self._lost_answers.add(call)
            raise

    def _renew(self) -> None:
        while not (self._closed.is_set() or self._term.is_lost):
            sent: deque[float] = deque()
            with suppress(grpc.RpcError, RadixKVError):
                self._stream = self._client.open_keep_alive(self._requests(sent))
                for response in self._stream:
                    self._term.renewed(response, sent.popleft())
                    if self._term.is_lost:
                        return
            self._closed.wait(self._term.pause_s / 10)

    def _requests(self, sent: deque[float]) -> Iterator[KeepLeaseAliveRequest]:
        while True:
            sent.append(self._term.clock())
            yield self._term.request()
            if self._closed.wait(self._term.pause_s):
                return

    def close(self) -> None:
        """End the lease: its pins are dropped, its slots free after the server's grace."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._lost_answers.close()
        if self._stream is not None:
            self._stream.cancel()
        self._thread.join()
        with suppress(LeaseNotFoundError, EpochMismatchError):
            self._client.revoke_lease(self.id, self.epoch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RadixKVError):  # it ends by itself where the server is unreachable
            self.close()


class AsyncLease:
    """`Lease` for asyncio; belongs to the event loop that made it."""

    def __init__(self, client: Any, info: LeaseInfo, term: Term) -> None:
        self._client, self._term = client, term
        self.id, self.epoch, self.ttl_s = info.id, info.epoch, info.ttl_s
        self.pool_id, self.holder = info.pool_id, info.holder
        self._lost_answers = AsyncLostAnswers(client.send, lambda: self._term.is_lost)
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._renew())

    pin = awaited_under(lease_calls.pin)
    allocate = awaited_under(lease_calls.allocate)
    free = awaited_under(lease_calls.free)
    insert = awaited_under(lease_calls.insert)
    release = awaited_under(lease_calls.release)
    holdings = awaited_under(lease_calls.holdings)

    def check(self) -> None:
        """Check the lease by its holder's own clock, before its slots are used.

        Raises
        ------
        LeaseExpiredError
            If the lease has ended, or may have.
        """
        self._term.check()

    def checked_ref(self) -> LeaseRef:
        """What names the lease in calls.

        Returns
        -------
        LeaseRef
            Its id, and the epoch in which it was granted.

        Raises
        ------
        LeaseExpiredError
            As `check` does.
        """
        self._term.check()
        return self._term.ref

    async def send(self, call: Any) -> Any:
        """See `Client.send`."""
        try:
            return await self._client.send(call)
        except BaseException as error:
            if may_have_happened(error):
                self._lost_answers.add(call)
            raise

    async def _renew(self) -> None:
        while not self._term.is_lost:
            with suppress(grpc.RpcError, RadixKVError):
                stream = self._client.open_keep_alive()
                while not self._term.is_lost:
                    sent_at = self._term.clock()
                    await stream.write(self._term.request())
                    response = await stream.read()
                    if not isinstance(response, KeepLeaseAliveResponse):
                        break
                    self._term.renewed(response, sent_at)
                    await asyncio.sleep(self._term.pause_s)
            await asyncio.sleep(self._term.pause_s / 10)

    async def close(self) -> None:
        """See `Lease.close`."""
        task, self._task = self._task, None
        if task is None:
            return
        self._lost_answers.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(LeaseNotFoundError, EpochMismatchError):
            await self._client.revoke_lease(self.id, self.epoch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(RadixKVError):
            await self.close()


class PendingLease:
    """A lease that is asked for once it is awaited, or entered: `async with client.lease() as it`.

    grant: asks for it.
    """

    def __init__(self, grant: Callable[[], Awaitable[AsyncLease]]) -> None:
        self._grant = grant
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return self._grant().__await__()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._grant()
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(*_)
