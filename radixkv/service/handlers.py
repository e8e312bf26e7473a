"""What the RPCs answer, from one `PrefixCache`; knows messages, nothing of connections."""

from collections.abc import Sequence

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

import radixkv
from radixkv.cache import PrefixCache
from radixkv.errors import (
    InvalidArgumentError,
    MessageTooLargeError,
    UnsupportedError,
)
from radixkv.service import codec
from radixkv.service.auth import Principal
from radixkv.service.codec import Key
from radixkv.service.limits import MAX_BATCH_SEQUENCES, MAX_MESSAGE_BYTES
from radixkv.tree import Namespace
from radixkv.v1.info_pb2 import (
    GetServerInfoResponse,
    GetStatsRequest,
    GetStatsResponse,
)
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest, MatchPrefixResponse, PrefixMatch
from radixkv.v1.types_pb2 import ResponseHeader

# Room in an answer for what is not slots: the header, and each match's own fields.
_ENVELOPE_BYTES, _MATCH_BYTES = 64, 32


class Handlers:
    """Answers from `cache`, which an engine may be using at the same time."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        # Held over a whole batch, so that it is answered at one revision.
        self._lock = cache.lock
        self._start_time = Timestamp()
        self._start_time.GetCurrentTime()

    def match_prefix(self, request: MatchPrefixRequest, _: Principal) -> MatchPrefixResponse:
        """The whole batch at one revision, or an error and nothing changed."""
        _check_options(request)
        codec.check_batch(len(request.sequences))
        keys = codec.read_sequences(request.sequences)
        if request.leave_last_token:
            keys = [key.without_last() for key in keys]
        if request.want_slots:
            _check_answer_size(keys)
        namespace = codec.read_namespace(request.namespace)
        look = self._probe if request.probe else self._match
        with self._lock:
            if request.expected_epoch:
                self._cache.events.check_epoch(request.expected_epoch)
            matches = [look(key, namespace, request.want_slots) for key in keys]
            return MatchPrefixResponse(header=self._header(), matches=matches)

    def _probe(self, key: Key, namespace: Namespace, _: bool) -> PrefixMatch:
        length = self._cache.probe(key.token_ids, namespace, content=key.content)
        return PrefixMatch(matched_length=length)

    def _match(self, key: Key, namespace: Namespace, want_slots: bool) -> PrefixMatch:
        match = self._cache.match_prefix(key.token_ids, namespace, content=key.content)
        slots = codec.pack(match.slots) if want_slots else b""
        return PrefixMatch(matched_length=match.length, slots=slots)

    def get_server_info(self, *_: object) -> GetServerInfoResponse:
        return GetServerInfoResponse(
            header=self._header(),
            version=radixkv.__version__,
            grpc_version=grpc.__version__,
            core=self._cache.core,
            page_size=self._cache.page_size,
            num_slots=self._cache.num_slots,
            max_batch_sequences=MAX_BATCH_SEQUENCES,
            max_message_bytes=MAX_MESSAGE_BYTES,
            start_time=self._start_time,
        )

    def get_stats(self, request: GetStatsRequest, _: Principal) -> GetStatsResponse:
        if request.HasField("namespace"):
            raise UnsupportedError("the cache counts no namespace apart; ask without one")
        stats = self._cache.stats()
        return GetStatsResponse(
            header=ResponseHeader(epoch=stats.epoch, revision=stats.revision),
            free_slots=stats.free,
            allocated_slots=stats.allocated,
            evictable_size=stats.evictable,
            protected_size=stats.protected,
            waiting_slots=stats.waiting,
            num_nodes=stats.num_nodes,
            lookup_tokens=stats.lookup_tokens,
            hit_tokens=stats.hit_tokens,
            evicted_tokens=stats.evicted_tokens,
        )

    def _header(self) -> ResponseHeader:
        with self._lock:
            events = self._cache.events
            return ResponseHeader(epoch=events.epoch, revision=events.revision)


def _check_options(request: MatchPrefixRequest) -> None:
    if request.lease_id:
        raise UnsupportedError(
            f"lease_id is {request.lease_id}: this server has no leases and pins nothing yet; "
            "leave it at 0",
            lease_id=request.lease_id,
        )
    if request.probe and request.want_slots:
        raise InvalidArgumentError(
            "a probe gives lengths only; ask with one of probe and want_slots", field="want_slots"
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
