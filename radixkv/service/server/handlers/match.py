"""MatchPrefix and ReleasePins."""

from collections.abc import Callable, Sequence

from radixkv.errors import BatchTooLargeError, InvalidArgumentError, MessageTooLargeError
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.codec import Key
from radixkv.rpc.limits import MAX_MESSAGE_BYTES, MAX_PINS_A_RELEASE
from radixkv.service.server.handlers.context import HandlerContext
from radixkv.tree import Namespace
from radixkv.v1.prefix_cache_pb2 import (
    MatchPrefixRequest,
    MatchPrefixResponse,
    PrefixMatch,
    ReleasePinsRequest,
    ReleasePinsResponse,
)

# Room in an answer for what is not slots: the header, and each match's own fields.
_ENVELOPE_BYTES, _MATCH_BYTES = 64, 32
# Counts look-ups: namespace, tokens looked up, tokens found.
LookUpCounter = Callable[[Namespace, int, int], None]


class MatchHandlers:
    """Look-ups and pins. count: is called with each look-up that counts as use; probes do not."""

    def __init__(self, context: HandlerContext, count: LookUpCounter | None = None) -> None:
        self._context, self._count = context, count

    def match_prefix(self, request: MatchPrefixRequest, call: Call) -> MatchPrefixResponse:
        """The whole batch at one revision, or an error and nothing changed."""
        _check_options(request)
        codec.check_batch(len(request.sequences))
        namespace = codec.read_namespace(request.namespace)
        call.caller.check_namespace(namespace)
        with self._context.once(request, call, MatchPrefixResponse) as reply:
            if reply.message is None:
                reply.message = self._match_prefix(request, call, namespace)
        return reply.message

    def _match_prefix(
        self, request: MatchPrefixRequest, call: Call, namespace: Namespace
    ) -> MatchPrefixResponse:
        keys = codec.read_sequences(request, call.data)
        if request.leave_last_token:
            keys = [key.without_last() for key in keys]
        if request.want_slots:
            _check_answer_size(keys)
        self._context.check_epoch(request.expected_epoch)
        if request.probe:
            matches = [PrefixMatch(matched_length=n) for n in self._probe(keys, namespace)]
        else:
            if request.lease_id:
                matches = self._pin(request, call, keys, namespace)
            else:
                matches = self._match(request.want_slots, keys, namespace)
            if self._count is not None:
                looked_up = sum(len(key.token_ids) for key in keys)
                self._count(namespace, looked_up, sum(match.matched_length for match in matches))
        return MatchPrefixResponse(header=self._context.header(call), matches=matches)

    def _probe(self, keys: Sequence[Key], namespace: Namespace) -> list[int]:
        cache = self._context.cache
        if any(key.content for key in keys):
            return [cache.probe(k.token_ids, namespace, content=k.content) for k in keys]
        return cache.probe_batch([key.token_ids for key in keys], namespace)

    def _match(
        self, want_slots: bool, keys: Sequence[Key], namespace: Namespace
    ) -> list[PrefixMatch]:
        cache = self._context.cache
        if any(key.content for key in keys):
            found = [cache.match_prefix(k.token_ids, namespace, content=k.content) for k in keys]
        elif want_slots:
            found = cache.match_batch([key.token_ids for key in keys], namespace)
        else:
            lengths = cache.match_lengths([key.token_ids for key in keys], namespace)
            return [PrefixMatch(matched_length=length) for length in lengths]
        if not want_slots:
            return [PrefixMatch(matched_length=match.length) for match in found]
        return [
            PrefixMatch(matched_length=match.length, slots=codec.pack(match.slots))
            for match in found
        ]

    def _pin(
        self,
        request: MatchPrefixRequest,
        call: Call,
        keys: Sequence[Key],
        namespace: Namespace,
    ) -> list[PrefixMatch]:
        context = self._context
        lease = context.held_lease(request, call)
        context.leases.check_pins(call.caller, lease, len(keys))
        matches = []
        for key in keys:
            pin = context.cache.loans.pin(key.token_ids, namespace, content=key.content)
            slots = codec.pack(pin.slots) if request.want_slots else b""
            pin_id = context.leases.add_pin(lease, pin)
            matches.append(PrefixMatch(matched_length=len(pin.slots), slots=slots, pin_id=pin_id))
        return matches

    def release_pins(self, request: ReleasePinsRequest, call: Call) -> ReleasePinsResponse:
        """Pins that are not held, or not by this lease, are left alone."""
        if len(request.pin_ids) > MAX_PINS_A_RELEASE:
            raise BatchTooLargeError(
                f"pin_ids must be at most {MAX_PINS_A_RELEASE}; got {len(request.pin_ids)}",
                field="pin_ids",
            )
        with self._context.locked():
            lease = self._context.leases.get(request.lease_id, call.caller)
            dropped = [self._context.leases.drop_pin(lease, pin_id) for pin_id in request.pin_ids]
            return ReleasePinsResponse(header=self._context.header(call), num_released=sum(dropped))


def _check_options(request: MatchPrefixRequest) -> None:
    for field in ("want_slots", "lease_id"):
        if request.probe and getattr(request, field):
            raise InvalidArgumentError(
                f"{field} must be unset with probe, which gives lengths only; got both", field=field
            )


def _check_answer_size(keys: Sequence[Key]) -> None:
    size = _ENVELOPE_BYTES + sum(4 * len(key.token_ids) + _MATCH_BYTES for key in keys)
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLargeError(
            f"slots must fit in a message of {MAX_MESSAGE_BYTES} bytes; got prompts whose slots "
            f"could take {size}: split the call",
            size=size,
            max_message_bytes=MAX_MESSAGE_BYTES,
        )
