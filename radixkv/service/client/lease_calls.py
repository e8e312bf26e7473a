"""Calls of a lease, and calls about leases; see `calls.py`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

from radixkv.arguments import as_flag, as_ids, as_priority, between, list_of
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidSlotsError
from radixkv.rpc import codec, method_table
from radixkv.rpc.codec import Prompt
from radixkv.service.client.calls import ClientCall, MatchReply, Prompts, match, new_request_id
from radixkv.tree import Namespace, TokenIds, as_slots, as_token_ids
from radixkv.tree.content import Content
from radixkv.v1 import lease_pb2
from radixkv.v1.lease_pb2 import GetLeaseRequest, GrantLeaseRequest, RevokeLeaseRequest
from radixkv.v1.prefix_cache_pb2 import (
    AllocateSlotsRequest,
    AllocateSlotsResponse,
    FreeSlotsRequest,
    InsertPrefixRequest,
    InsertPrefixResponse,
    PinAction,
    PrefixInsert,
    ReleasePinsRequest,
)

_NO_TOKENS: TokenIds = ()


class LeaseRef(NamedTuple):
    """The id of a lease, and the epoch in which it was granted."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease and what it holds, at one moment.

    Attributes
    ----------
    id
        Its id.
    ttl_s
        Seconds that it lives without being renewed.
    remaining_s
        Seconds that are left.
    holder
        The client's name for itself, at most 128 bytes.
    pool_id
        The name of the K/V pool.
    num_pins
        Pins that are held.
    num_slots
        Slots on loan to it.
    epoch
        In which it was granted.
    """

    id: int
    ttl_s: float
    remaining_s: float
    holder: str
    pool_id: str
    num_pins: int
    num_slots: int
    epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class LeaseHoldings:
    """What a lease holds.

    Attributes
    ----------
    lease
        The lease.
    slots
        On loan to it, (n,) int32, ascending.
    pin_ids
        Of its pins.
    """

    lease: LeaseInfo
    slots: Int32Array
    pin_ids: tuple[int, ...]


class LeasePage(NamedTuple):
    """Some leases, by id, and the token for the next page; "" on the last one.

    Attributes
    ----------
    leases
        Of this page.
    next_page_token
        For the next page; "": this is the last one.
    """

    leases: list[LeaseInfo]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Allocated:
    """Slots on loan.

    Attributes
    ----------
    slots
        (n,) int32, whole pages.
    num_evicted
        Tokens evicted to make room.
    """

    slots: Int32Array
    num_evicted: int


@dataclass(frozen=True, slots=True)
class InsertCall:
    """Tokens whose K/V is in `slots`: those beyond the pin's length, or all without a pin.

    Attributes
    ----------
    token_ids
        (n,) int32, or what `as_token_ids` reads.
    slots
        (n,) int32, one a token, on loan to the lease.
    pin_id
        0 without a pin.
    keep
        Whether the pin goes on, on all that is cached now (without a pin: a new one).
    content
        Spans of these tokens.
    priority
        What the policy of that name goes by, -2**31 to 2**31 - 1; the pin's tokens get it too, if
        theirs is lower.
    """

    token_ids: TokenIds = _NO_TOKENS
    slots: TokenIds = _NO_TOKENS
    pin_id: int = 0
    keep: bool = False
    content: Content = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class InsertReply:
    """What became of an insert. Lengths are in tokens, the pin's included.

    Both in tokens, the pin's included.

    Attributes
    ----------
    existing_length
        Tokens that were cached before.
    cached_length
        That are now.
    replacements
        (n,) int32, the cache's slots for the tokens from the pin's end to existing_length. Point
        req_to_token at them, and free your own for these tokens when no kernel reads them any more.
    pin_id
        0 without a pin that is kept.
    """

    existing_length: int
    cached_length: int
    replacements: Int32Array
    pin_id: int


Inserts: TypeAlias = InsertCall | Sequence[InsertCall]


def grant(
    ttl_s: float,
    holder: str = "",
    pool_id: str = "",
    replaces_pool: bool = False,
    *,
    timeout_s: float | None = None,
) -> ClientCall[LeaseInfo]:
    """A new lease."""
    request = GrantLeaseRequest(
        ttl=codec.write_seconds(ttl_s),
        holder=holder,
        pool_id=pool_id,
        replaces_pool=replaces_pool,
        request_id=new_request_id(),
    )
    return ClientCall(
        method_table.GRANT_LEASE, request, timeout_s, lambda r: _read_lease(r.lease, r.header.epoch)
    )


def lease_info(lease_id: int, *, timeout_s: float | None = None) -> ClientCall[LeaseInfo]:
    """One lease.

    Parameters
    ----------
    lease_id
        The lease's id.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    LeaseInfo
        As it is now.
    """
    request = GetLeaseRequest(lease_id=lease_id)
    return ClientCall(
        method_table.GET_LEASE, request, timeout_s, lambda r: _read_lease(r.lease, r.header.epoch)
    )


def holdings(lease: LeaseRef, *, timeout_s: float | None = None) -> ClientCall[LeaseHoldings]:
    """All slots and pins of the lease, those too that came with a response which was lost.

    Parameters
    ----------
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    LeaseHoldings
        Slots as (n,) int32, and ids of pins.
    """
    request = GetLeaseRequest(lease_id=lease.id, want_holdings=True)
    return ClientCall(method_table.GET_LEASE, request, timeout_s, _read_holdings)


def leases(
    page_token: str = "", page_size: int = 1000, *, timeout_s: float | None = None
) -> ClientCall[LeasePage]:
    """One page of leases: the caller's own, or all with the admin role.

    Parameters
    ----------
    page_token
        Of the page before; "": the first page.
    page_size
        Leases a page, at most 1,000.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    LeasePage
        By id, and the token for the next page.
    """
    request = lease_pb2.ListLeasesRequest(page_size=page_size, page_token=page_token)
    return ClientCall(method_table.LIST_LEASES, request, timeout_s, _read_page)


def revoke_lease(
    lease_id: int, epoch: int, *, timeout_s: float | None = None
) -> ClientCall[tuple[int, int]]:
    """End a lease; how many pins and slots it held.

    Parameters
    ----------
    lease_id
        The lease's id.
    epoch
        The life of the cache that it belongs to.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    tuple[int, int]
        Pins and slots that it held.

    Raises
    ------
    LeaseNotFoundError
        Where it has ended, also by a first attempt whose answer was lost.
    """
    request = RevokeLeaseRequest(lease_id=lease_id, expected_epoch=epoch)
    return ClientCall(
        method_table.REVOKE_LEASE, request, timeout_s, lambda r: (r.num_pins, r.num_slots)
    )


# ---- under a lease ----


def pin(
    lease: LeaseRef,
    prompts: Prompts,
    namespace: Namespace | None = None,
    *,
    want_slots: bool = True,
    leave_last_token: bool = True,
    timeout_s: float | None = None,
    request_id: str | None = None,
) -> ClientCall[MatchReply]:
    """`Client.match`, with a pin on each match: nothing evicts it until it is released.

    By default with the slots, and at most all but the last token of each prompt, which is left to
    compute so that there are logits.

    Parameters
    ----------
    prompts
        As for `Client.match`.
    namespace
        What must be equal besides the tokens.
    want_slots
        Return the slots too.
    leave_last_token
        Match at most all but the last token.
    timeout_s
        Seconds; None: as `Client` says.
    request_id
        See `Lease`.

    Returns
    -------
    MatchReply
        Of each prompt the tokens cached, their slots as (n,) int32, and the pin.
    """
    call = match(
        prompts,
        namespace,
        want_slots=want_slots,
        leave_last_token=leave_last_token,
        expected_epoch=lease.epoch,
        timeout_s=timeout_s,
    )
    call.request.lease_id = lease.id  # type: ignore[attr-defined]
    call.request.request_id = request_id or new_request_id()  # type: ignore[attr-defined]
    if request_id is not None:
        return call
    return replace(call, undo=lambda reply: _release_all(lease, [m.pin_id for m in reply.matches]))


def allocate(
    lease: LeaseRef, n: int, *, timeout_s: float | None = None, request_id: str | None = None
) -> ClientCall[Allocated]:
    """`n` slots, rounded up to whole pages, evicting if needed.

    A priority comes with `insert`: it is one of cached tokens, and nothing is cached here.

    Parameters
    ----------
    n
        Slots, rounded up to whole pages.
    timeout_s
        Seconds; None: as `Client` says.
    request_id
        See `Lease`.

    Returns
    -------
    Allocated
        (n,) int32 in whole pages, and tokens evicted for them.

    Raises
    ------
    OutOfSlotsError
        Where fewer are free.
    """
    request = AllocateSlotsRequest(
        num_slots=n,
        lease_id=lease.id,
        expected_epoch=lease.epoch,
        request_id=request_id or new_request_id(),
    )
    call = ClientCall(method_table.ALLOCATE_SLOTS, request, timeout_s, _read_allocated)
    return call if request_id else replace(call, undo=lambda found: free(lease, found.slots))


def free(lease: LeaseRef, slots: TokenIds, *, timeout_s: float | None = None) -> ClientCall[None]:
    """Give back slots that were allocated and that the cache did not take, in whole pages.

    Parameters
    ----------
    slots
        (n,) int32, in whole pages.
    timeout_s
        Seconds; None: as `Client` says.
    """
    request = FreeSlotsRequest(
        slots=codec.pack(as_slots(slots)),
        lease_id=lease.id,
        expected_epoch=lease.epoch,
        request_id=new_request_id(),
    )
    return ClientCall(method_table.FREE_SLOTS, request, timeout_s, lambda _: None)


def insert(
    lease: LeaseRef,
    inserts: Inserts,
    namespace: Namespace | None = None,
    *,
    timeout_s: float | None = None,
    request_id: str | None = None,
) -> ClientCall[list[InsertReply]]:
    """Store what is computed, all of it or, where the server raises an error, nothing. Frees
    nothing.

    Parameters
    ----------
    inserts
        One `InsertCall`, or several.
    namespace
        What must be equal besides the tokens.
    timeout_s
        Seconds; None: as `Client` says.
    request_id
        See `Lease`.

    Returns
    -------
    list[InsertReply]
        One an insert, in order.
    """
    given = [inserts] if isinstance(inserts, InsertCall) else inserts
    batch = list_of(InsertCall, given, "inserts")
    codec.check_batch(len(batch), "inserts")
    request = InsertPrefixRequest(
        namespace=codec.write_namespace(namespace) if namespace is not None else None,
        inserts=[_write_insert(item, f"inserts[{at}]") for at, item in enumerate(batch)],
        lease_id=lease.id,
        expected_epoch=lease.epoch,
        request_id=request_id or new_request_id(),
    )
    call = ClientCall(method_table.INSERT_PREFIX, request, timeout_s, _read_inserted)
    if request_id is not None:
        return call
    return replace(call, undo=lambda done: _release_all(lease, _new_pins(batch, done)))


def release(
    lease: LeaseRef, pin_ids: Sequence[int], *, timeout_s: float | None = None
) -> ClientCall[int]:
    """Drop pins; how many were still held.

    Parameters
    ----------
    pin_ids
        Of the pins; one that has ended is no error.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    int
        Pins that were still held.
    """
    request = ReleasePinsRequest(pin_ids=as_ids(pin_ids, "pin_ids"), lease_id=lease.id)
    return ClientCall(method_table.RELEASE_PINS, request, timeout_s, lambda r: int(r.num_released))


def _new_pins(batch: Sequence[InsertCall], done: Sequence[InsertReply]) -> list[int]:
    return [reply.pin_id for item, reply in zip(batch, done, strict=True) if not item.pin_id]


def _release_all(lease: LeaseRef, pin_ids: Sequence[int]) -> ClientCall[int] | None:
    held = [pin_id for pin_id in pin_ids if pin_id]
    return release(lease, held) if held else None


def _write_insert(item: InsertCall, name: str) -> PrefixInsert:
    slots = as_slots(item.slots, f"{name}.slots")
    token_ids = as_token_ids(item.token_ids, f"{name}.token_ids")
    sequence = None
    if len(token_ids):
        sequence = codec.write_sequence(Prompt(token_ids, item.content), f"{name}.token_ids")
    if len(slots) != len(token_ids):
        raise InvalidSlotsError(f"{name}.slots must be one a token; got {len(slots)}")
    is_kept = as_flag(item.keep, "keep")
    keep = PinAction.PIN_ACTION_MOVE if is_kept else PinAction.PIN_ACTION_RELEASE
    return PrefixInsert(
        sequence=sequence,
        slots=codec.pack(slots),
        pin_id=between(0, 2**64 - 1, pin_id=item.pin_id),
        pin_action=keep,
        priority=as_priority(item.priority),
    )


def _read_lease(lease: lease_pb2.Lease, epoch: int) -> LeaseInfo:
    return LeaseInfo(
        id=lease.lease_id,
        ttl_s=codec.read_seconds(lease.ttl),
        remaining_s=codec.read_seconds(lease.remaining),
        holder=lease.holder,
        pool_id=lease.pool_id,
        num_pins=lease.num_pins,
        num_slots=lease.num_slots,
        epoch=epoch,
    )


def _read_holdings(response: lease_pb2.GetLeaseResponse) -> LeaseHoldings:
    info = _read_lease(response.lease, response.header.epoch)
    return LeaseHoldings(info, codec.unpack(response.slots), tuple(response.pin_ids))


def _read_page(response: lease_pb2.ListLeasesResponse) -> LeasePage:
    read = partial(_read_lease, epoch=response.header.epoch)
    return LeasePage(list(map(read, response.leases)), response.next_page_token)


def _read_allocated(response: AllocateSlotsResponse) -> Allocated:
    return Allocated(codec.unpack(response.slots), response.num_evicted)


def _read_inserted(response: InsertPrefixResponse) -> list[InsertReply]:
    return [
        InsertReply(
            result.existing_length,
            result.cached_length,
            codec.unpack(result.replacements),
            result.pin_id,
        )
        for result in response.results
    ]
