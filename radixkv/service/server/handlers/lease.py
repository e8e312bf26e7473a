"""LeaseService."""

from itertools import islice

from radixkv.errors import InvalidArgumentError, MessageTooLargeError
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.limits import MAX_MESSAGE_BYTES, MAX_PINS
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.service.server.leases import LeaseRecord
from radixkv.v1 import lease_pb2
from radixkv.v1.lease_pb2 import (
    GetLeaseRequest,
    GetLeaseResponse,
    GrantLeaseRequest,
    GrantLeaseResponse,
    KeepLeaseAliveRequest,
    KeepLeaseAliveResponse,
    ListLeasesRequest,
    ListLeasesResponse,
    RevokeLeaseRequest,
    RevokeLeaseResponse,
)

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000
_LONGEST_TOKEN = len(str(2**64))


def _check_fits(num_slots: int) -> None:
    size = 4 * num_slots + 16 * MAX_PINS
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLargeError(
            f"holdings must fit in a message of {MAX_MESSAGE_BYTES} bytes; got {num_slots} slots",
            size=size,
            max_message_bytes=MAX_MESSAGE_BYTES,
        )


class LeaseHandlers:
    """Leases: a caller sees its own, the admin role all."""

    def __init__(self, context: HandlerContext) -> None:
        self._context, self._leases = context, context.leases

    def grant_lease(self, request: GrantLeaseRequest, call: Call) -> GrantLeaseResponse:
        """A new lease; replacing the pool clears the cache first."""
        with self._context.once(request, call, GrantLeaseResponse) as reply:
            if reply.message is None:
                reply.message = self._grant(request, call)
        return reply.message

    def _grant(self, request: GrantLeaseRequest, call: Call) -> GrantLeaseResponse:
        ttl_s = codec.read_seconds(request.ttl)
        lease = self._leases.grant(
            call.caller,
            ttl_s,
            request.holder,
            request.pool_id,
            replaces_pool=request.replaces_pool,
        )
        return GrantLeaseResponse(header=self._context.header(call), lease=self._message(lease))

    def keep_lease_alive(
        self, request: KeepLeaseAliveRequest, call: Call
    ) -> KeepLeaseAliveResponse:
        """No ttl: the lease is gone."""
        with self._context.locked():
            response = KeepLeaseAliveResponse(lease_id=request.lease_id)
            is_present = request.expected_epoch == self._context.cache.events.epoch
            if is_present and self._leases.has(request.lease_id, call.caller):
                lease = self._leases.get(request.lease_id, call.caller)
                self._leases.renew(lease)
                response.ttl.CopyFrom(codec.write_seconds(lease.ttl_s))
            response.header.CopyFrom(self._context.header(call))
            return response

    def note_renewal(self, request: KeepLeaseAliveRequest, call: Call) -> None:
        """A renewal that came before its lease's end counts, however long it waits for its turn."""
        self._leases.note_renewal(request.lease_id, request.expected_epoch, call.caller)

    def revoke_lease(self, request: RevokeLeaseRequest, call: Call) -> RevokeLeaseResponse:
        """What it held is dropped; its slots are free after the grace."""
        with self._context.locked():
            lease = self._context.held_lease(request, call)
            num_pins, num_slots = self._leases.revoke(lease)
            return RevokeLeaseResponse(
                header=self._context.header(call), num_pins=num_pins, num_slots=num_slots
            )

    def get_lease(self, request: GetLeaseRequest, call: Call) -> GetLeaseResponse:
        """Its remaining time and what it holds."""
        with self._context.locked():
            lease = self._leases.get(request.lease_id, call.caller)
            response = GetLeaseResponse(
                header=self._context.header(call), lease=self._message(lease)
            )
            if request.want_holdings:
                _check_fits(lease.num_slots)
                response.slots = codec.pack(self._leases.slots(lease))
                response.pin_ids.extend(lease.pins)
            return response

    def list_leases(self, request: ListLeasesRequest, call: Call) -> ListLeasesResponse:
        """One page, by id."""
        if not 0 <= request.page_size <= _LARGEST_PAGE:
            raise InvalidArgumentError(
                f"page_size must be 0 to {_LARGEST_PAGE}; got {request.page_size}",
                field="page_size",
            )
        token = request.page_token
        if token and not (token.isdecimal() and len(token) <= _LONGEST_TOKEN):
            raise InvalidArgumentError(
                "page_token must be one that this server gave; got other text", field="page_token"
            )
        size = request.page_size or _DEFAULT_PAGE
        with self._context.locked():
            after = int(token or 0)
            page = list(islice(self._leases.after(after, call.caller), size + 1))
            return ListLeasesResponse(
                header=self._context.header(call),
                leases=map(self._message, page[:size]),
                next_page_token=str(page[size - 1].id) if len(page) > size else "",
            )

    def _message(self, lease: LeaseRecord) -> lease_pb2.Lease:
        return lease_pb2.Lease(
            lease_id=lease.id,
            ttl=codec.write_seconds(lease.ttl_s),
            remaining=codec.write_seconds(self._leases.remaining_s(lease)),
            holder=lease.holder,
            num_pins=len(lease.pins),
            num_slots=lease.num_slots,
            pool_id=lease.pool_id,
        )
