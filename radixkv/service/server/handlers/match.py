"""MatchPrefix and ReleasePins."""

from collections.abc import Callable, Sequence

from radixkv.errors import BatchTooLargeError, InvalidArgumentError, MessageTooLargeError
from radixkv.rpc import codec
from radixkv.rpc.call import Call
from radixkv.rpc.codec import Key
from radixkv.rpc.limits import MAX_MESSAGE_BYTES, MAX_PINS_A_RELEASE
from radixkv.service.server.handlers.desk import Desk
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
# Hears of look-ups: namespace, tokens looked up, tokens found.
Heard = Callable[[Namespace, int, int], None]


class MatchHandlers:
    """Look-ups and pins. heard: is told of each look-up that counts as use; probes do not."""

    def __init__(self, desk: Desk, heard: Heard | None = None) -> None:
        self._desk, self._heard = desk, heard

    def match_prefix(self, request: MatchPrefixRequest, call: Call) -> MatchPrefixResponse:
        """The whole batch at one revision, or an error and nothing changed."""
        _check_options(request)
        codec.check_batch(len(request.sequences))
        call.caller.check_namespace(codec.read_namespace(request.namespace))
        return self._desk.once(call, request, self._match_prefix)

    def _match_prefix(self, request: MatchPrefixRequest, call: Call) -> MatchPrefixResponse:
        keys = codec.read_sequences(request, call.data)
        if request.leave_last_token:
            keys = [key.without_last() for key in keys]
        if request.want_slots:
            _check_answer_size(keys)
        namespace = codec.read_namespace(request.namespace)
        self._desk.check_epoch(request.expected_epoch)
        if request.probe:
            matches = [PrefixMatch(matched_length=n) for n in self._probe(keys, namespace)]
        else:
            look = self._pin if request.lease_id else self._match
            matches = look(request, call, keys, namespace)
            if self._heard is not None:
                looked_up = sum(len(key.token_ids) for key in keys)
                self._heard(namespace, looked_up, sum(match.matched_length for match in matches))
        return MatchPrefixResponse(header=self._desk.header(), matches=matches)

    def _probe(self, keys: Sequence[Key], namespace: Namespace) -> list[int]:
        cache = self._desk.cache
        if any(key.content for key in keys):
            return [cache.probe(k.token_ids, namespace, content=k.content) for k in keys]
        return cache.probe_batch([key.token_ids for key in keys], namespace)

    def _match(
        self,
        request: MatchPrefixRequest,
        _: Call,
        keys: Sequence[Key],
        namespace: Namespace,
    ) -> list[PrefixMatch]:
        cache = self._desk.cache
        if any(key.content for key in keys):
            found = [cache.match_prefix(k.token_ids, namespace, content=k.content) for k in keys]
        elif request.want_slots:
            found = cache.match_batch([key.token_ids for key in keys], namespace)
        else:
            lengths = cache.match_lengths([key.token_ids for key in keys], namespace)
            return [PrefixMatch(matched_length=length) for length in lengths]
        if not request.want_slots:
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
        desk = self._desk
        lease = desk.held_lease(request, call)
        desk.leases.check_room(len(keys))
        matches = []
        for key in keys:
            pin = desk.cache.loans.pin(key.token_ids, namespace, content=key.content)
            length, slots = len(pin.slots), b""
            if request.want_slots:
                slots = codec.pack(pin.slots)
            pin_id = desk.leases.add_pin(lease, pin)
            matches.append(PrefixMatch(matched_length=length, slots=slots, pin_id=pin_id))
        return matches

    def release_pins(self, request: ReleasePinsRequest, call: Call) -> ReleasePinsResponse:
        """Pins that are not held, or not by this lease, are left alone."""
        if len(request.pin_ids) > MAX_PINS_A_RELEASE:
            raise BatchTooLargeError(
                f"{len(request.pin_ids)} pins; a call takes {MAX_PINS_A_RELEASE}: split it",
                field="pin_ids",
            )
        with self._desk.turn():
            lease = self._desk.leases.get(request.lease_id, call.caller)
            dropped = [self._desk.leases.drop_pin(lease, pin_id) for pin_id in request.pin_ids]
            return ReleasePinsResponse(header=self._desk.header(), num_released=sum(dropped))


def _check_options(request: MatchPrefixRequest) -> None:
    for field in ("want_slots", "lease_id"):
        if request.probe and getattr(request, field):
            raise InvalidArgumentError(
                f"a probe gives lengths only; ask with one of probe and {field}", field=field
            )


def _check_answer_size(keys: Sequence[Key]) -> None:
    size = _ENVELOPE_BYTES + sum(4 * len(key.token_ids) + _MATCH_BYTES for key in keys)
    if size > MAX_MESSAGE_BYTES:
        raise MessageTooLargeError(
            f"the slots could take {size} bytes; a message takes {MAX_MESSAGE_BYTES}: "
            "split the call",
            size=size,
            max_message_bytes=MAX_MESSAGE_BYTES,
        )
