"""AllocateSlots, FreeSlots, InsertPrefix: for engines that run elsewhere."""

from radixkv.arrays import EMPTY, Int32Array
from radixkv.cache.loans import Insert, Inserted
from radixkv.errors import (
    InvalidArgumentError,
    InvalidSlotsError,
    InvalidTokensError,
    MessageTooLargeError,
    OutOfSlotsError,
    PinNotFoundError,
    StaleHandleError,
)
from radixkv.pages import round_up
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.limits import MAX_MESSAGE_BYTES
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.service.server.leases import LeaseRecord
from radixkv.tree import Namespace, as_slots
from radixkv.v1.prefix_cache_pb2 import (
    AllocateSlotsRequest,
    AllocateSlotsResponse,
    FreeSlotsRequest,
    FreeSlotsResponse,
    InsertPrefixRequest,
    InsertPrefixResponse,
    PinAction,
    PrefixInsert,
    PrefixInserted,
)


class SlotHandlers:
    """Each call happens whole or not at all."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._cache, self._loans = context.cache, context.cache.loans

    def allocate_slots(self, request: AllocateSlotsRequest, call: Call) -> AllocateSlotsResponse:
        """Slots on loan to the lease, evicting if needed."""
        self._context.check_lends("AllocateSlots")
        if not request.num_slots:
            raise InvalidArgumentError("num_slots must be at least 1; got 0", field="num_slots")
        if 4 * request.num_slots > MAX_MESSAGE_BYTES - 64:
            raise MessageTooLargeError(
                f"num_slots must fit in a message; got {request.num_slots}: split the call",
                max_message_bytes=MAX_MESSAGE_BYTES,
            )
        with self._context.once(request, call, AllocateSlotsResponse) as reply:
            if reply.message is None:
                reply.message = self._allocate(request, call)
        return reply.message

    def _allocate(self, request: AllocateSlotsRequest, call: Call) -> AllocateSlotsResponse:
        lease = self._context.held_lease(request, call)
        leases, borrower = self._context.leases, self._context.leases.borrower(lease)
        leases.check_slots(call.caller, lease, round_up(request.num_slots, self._cache.page_size))
        # Which tenant an engine's slots are for is not known until they are stored.
        space = Namespace(salt=call.caller.salt) if call.caller.is_bound else None
        found = self._loans.allocate(borrower, request.num_slots, space)
        if found is None:
            raise self._out_of_slots(request.num_slots, call)
        slots, num_evicted = found
        leases.count_slots(lease, len(slots))
        if call.caller.is_bound:  # it would show what others have cached
            num_evicted = 0
        return AllocateSlotsResponse(
            header=self._context.header(call), slots=codec.pack(slots), num_evicted=num_evicted
        )

    def _out_of_slots(self, requested: int, call: Call) -> OutOfSlotsError:
        """The error; only callers that see all tenants get how many slots there are."""
        details: dict[str, int] = {"requested": requested}
        has = "there is no room for them now"
        if not call.caller.is_bound:
            tree = self._cache.tree
            details["available"] = self._cache.free_size + tree.room_for()
            details["reserved"] = tree.evictable_size - tree.room_for()
            has = f"{details['available']} are free or evictable"
            if details["reserved"]:
                has += f", {details['reserved']} are cached within reserves"
        return OutOfSlotsError(
            f"num_slots must be at most what is free; got {requested}, {has}",
            **details,
            retry_after_s=0.1,
        )

    def free_slots(self, request: FreeSlotsRequest, call: Call) -> FreeSlotsResponse:
        """Free slots that are on loan to the lease."""
        self._context.check_lends("FreeSlots")
        with self._context.once(request, call, FreeSlotsResponse) as reply:
            if reply.message is None:
                reply.message = self._free(request, call)
        return reply.message

    def _free(self, request: FreeSlotsRequest, call: Call) -> FreeSlotsResponse:
        lease = self._context.held_lease(request, call)
        slots = _read_slots(request.slots, "slots")
        self._loans.give_back(self._context.leases.borrower(lease), slots)
        self._context.leases.count_slots(lease, -len(slots))
        return FreeSlotsResponse(header=self._context.header(call))

    def insert_prefix(self, request: InsertPrefixRequest, call: Call) -> InsertPrefixResponse:
        """Store sequences in the tree; the reply says what was cached before, nothing is freed."""
        self._context.check_lends("InsertPrefix")
        codec.check_batch(len(request.inserts), "inserts")
        namespace = codec.read_namespace(request.namespace)
        call.caller.check_namespace(namespace)
        with self._context.once(request, call, InsertPrefixResponse) as reply:
            if reply.message is None:
                reply.message = self._insert(request, call, namespace)
        return reply.message

    def _insert(
        self, request: InsertPrefixRequest, call: Call, namespace: Namespace
    ) -> InsertPrefixResponse:
        context = self._context
        lease = context.held_lease(request, call)
        inserts = [
            self._read_insert(lease, message, f"inserts[{at}]")
            for at, message in enumerate(request.inserts)
        ]
        new_pins = sum(insert.keep and insert.pin is None for insert in inserts)
        context.leases.check_pins(call.caller, lease, new_pins)
        try:
            borrower = context.leases.borrower(lease)
            done = self._loans.store(borrower, inserts, namespace, checked=True)
        except StaleHandleError as error:
            raise PinNotFoundError(str(error), pin=0) from error
        stored = sum(max(0, each.cached_length - each.existing_length) for each in done)
        context.leases.count_slots(lease, -stored)
        results = [
            self._finish(lease, message, inserted)
            for message, inserted in zip(request.inserts, done, strict=True)
        ]
        return InsertPrefixResponse(header=context.header(call), results=results)

    def _read_insert(self, lease: LeaseRecord, message: PrefixInsert, name: str) -> Insert:
        if message.pin_action == PinAction.PIN_ACTION_UNSPECIFIED:
            raise InvalidArgumentError(
                f"{name}.pin_action must be RELEASE or MOVE; got UNSPECIFIED",
                field=f"{name}.pin_action",
            )
        pin = self._context.leases.pin(lease, message.pin_id) if message.pin_id else None
        key = codec.Key(EMPTY, ())
        if message.sequence.packed or message.sequence.ids:
            key = codec.read_sequence(message.sequence, f"{name}.sequence")
        elif pin is None:
            raise InvalidTokensError(
                f"{name}.sequence must have tokens, or {name}.pin_id a pin; got neither",
                field=f"{name}.sequence",
            )
        slots = _read_slots(message.slots, f"{name}.slots")
        if len(slots) != len(key.token_ids):
            raise InvalidSlotsError(
                f"{name}.slots must be {len(key.token_ids)}, one a token; got {len(slots)}",
                field=f"{name}.slots",
            )
        keep = message.pin_action == PinAction.PIN_ACTION_MOVE
        return Insert(key.token_ids, slots, key.content, pin, keep, message.priority)

    def _finish(self, lease: LeaseRecord, message: PrefixInsert, done: Inserted) -> PrefixInserted:
        """The pin that was moved keeps its id."""
        pin_id = message.pin_id
        if pin_id and done.pin is not None:
            lease.pins[pin_id] = done.pin
        elif pin_id:
            self._context.leases.drop_pin(lease, pin_id)
            pin_id = 0
        elif done.pin is not None:
            pin_id = self._context.leases.add_pin(lease, done.pin)
        return PrefixInserted(
            existing_length=done.existing_length,
            cached_length=done.cached_length,
            replacements=codec.pack(done.replacements),
            pin_id=pin_id,
        )


def _read_slots(data: bytes, name: str) -> Int32Array:
    with codec.blame(name):
        return as_slots(data, name) if data else EMPTY
