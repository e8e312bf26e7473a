"""Clients of a cache's server, blocking and async, over the calls of `calls.py`."""

from radixkv.service.client import admin_calls, calls, lease_calls
from radixkv.service.client.connection import AsyncConnection, BlockingConnection
from radixkv.service.client.lease import AsyncLease, Lease, PendingLease, Term
from radixkv.service.client.methods import awaited, blocking, built
from radixkv.service.client.watch import AsyncWatch, Watch
from radixkv.tree import Namespace


class Client(BlockingConnection):
    """A blocking client; thread-safe. Errors are those of the library, raised as if it were here.

    Connects at the first call. Calls are repeated while the server is unavailable, within their
    time; those that must not happen twice carry an id by which the server recognizes them.

    Parameters
    ----------
    target
        "host:port" or "unix:/path".
    token
        One of the server's tokens file.
    tls
        See `Tls`.
    timeout_s
        Seconds for calls without a time of their own; None: 1 for `match`, `lease_info`,
        `revoke_lease` and those under a lease, and 10 for the others.
    coalesce
        Matches of single prompts that come while one is under way go together.

    Raises
    ------
    InvalidArgumentError
        For a target that is not an address.
    ForkedProcessError
        In a process that was forked from one which used gRPC.
    """

    match = blocking(calls.match)
    server_info = blocking(calls.server_info)
    stats = blocking(calls.stats)
    lease_info = blocking(lease_calls.lease_info)
    leases = blocking(lease_calls.leases)
    revoke_lease = blocking(lease_calls.revoke_lease)
    evict = blocking(admin_calls.evict)
    evict_below = blocking(admin_calls.evict_below)
    clear = blocking(admin_calls.clear)
    check = blocking(admin_calls.check)

    def lease(
        self,
        ttl_s: float = 10.0,
        holder: str = "",
        pool_id: str = "",
        *,
        replaces_pool: bool = False,
    ) -> Lease:
        """A lease that renews itself until it is closed.

        Parameters
        ----------
        ttl_s
            Seconds that it lives without being renewed.
        holder
            The client's name for itself, at most 128 bytes.
        pool_id
            The K/V pool that its slots live in; without one it may hold pins alone.
        replaces_pool
            Name another pool although leases of the present one live; they end, and the cache is
            cleared. For the admin role.

        Returns
        -------
        Lease
            Already granted.

        Raises
        ------
        LiveRequestsError
            For another pool, without `replaces_pool` or without the admin role.
        """
        sent_at = self._clock()
        info = self.send(built(lease_calls.grant, ttl_s, holder, pool_id, replaces_pool))
        return Lease(self, info, Term(info, sent_at, self._clock))

    def watch(
        self, namespace: Namespace | None = None, *, after: tuple[int, int] | None = None
    ) -> Watch:
        """What becomes cached and what is evicted, from a snapshot on; see `Watch`.

        Parameters
        ----------
        namespace
            Only what is stored there; None: all.
        after
            Go on from this (epoch, revision), as the last update said, instead.

        Returns
        -------
        Watch
            To be iterated, and closed.
        """
        return Watch(self._open_watch, self.target, namespace, after)


class AsyncClient(AsyncConnection):
    """`Client` for asyncio: the same calls, awaited. Belongs to the event loop that made it."""

    match = awaited(calls.match)
    server_info = awaited(calls.server_info)
    stats = awaited(calls.stats)
    lease_info = awaited(lease_calls.lease_info)
    leases = awaited(lease_calls.leases)
    revoke_lease = awaited(lease_calls.revoke_lease)
    evict = awaited(admin_calls.evict)
    evict_below = awaited(admin_calls.evict_below)
    clear = awaited(admin_calls.clear)
    check = awaited(admin_calls.check)

    def lease(
        self,
        ttl_s: float = 10.0,
        holder: str = "",
        pool_id: str = "",
        *,
        replaces_pool: bool = False,
    ) -> PendingLease:
        """See `Client.lease`. Awaited it is the lease; `async with` takes it either way."""

        async def grant() -> AsyncLease:
            sent_at = self._clock()
            call = built(lease_calls.grant, ttl_s, holder, pool_id, replaces_pool)
            info = await self.send(call)
            return AsyncLease(self, info, Term(info, sent_at, self._clock))

        return PendingLease(grant)

    def watch(
        self, namespace: Namespace | None = None, *, after: tuple[int, int] | None = None
    ) -> AsyncWatch:
        """See `Client.watch`."""
        return AsyncWatch(self._open_watch, self.target, namespace, after)
