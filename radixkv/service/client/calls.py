"""The calls of both clients: each function builds a request and says how to read its response."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from google.protobuf.message import Message

from radixkv.arrays import Int32Array
from radixkv.errors import InvalidTokensError, MessageTooLargeError
from radixkv.rpc import codec
from radixkv.rpc.codec import Encoded, Prompt
from radixkv.rpc.limits import MAX_MESSAGE_BYTES
from radixkv.rpc.method_table import GET_SERVER_INFO, GET_STATS, MATCH_PREFIX, Rpc
from radixkv.tree import Namespace, TokenIds
from radixkv.v1.info_pb2 import GetServerInfoRequest, GetServerInfoResponse, GetStatsResponse
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest, MatchPrefixResponse

Result = TypeVar("Result")
Prompts: TypeAlias = "TokenIds | Prompt | Sequence[TokenIds | Prompt]"


@dataclass(frozen=True, slots=True)
class ClientCall(Generic[Result]):
    """A request, and how to read its response.

    prompts: fields that come after those of `request`, read from the caller's arrays by `encode`.
    undo: the call that gives back what this one took under a lease; None: it took nothing.
    """

    rpc: Rpc[Any, Any]
    request: Message
    timeout_s: float | None
    read: Callable[[Any], Result]
    prompts: Sequence[Encoded] = ()
    undo: "Callable[[Result], ClientCall[Any] | None] | None" = None

    def encode(self) -> bytes:
        """The message as it goes over the wire; raises MessageTooLargeError."""
        data = b"".join((self.request.SerializeToString(), *chain.from_iterable(self.prompts)))
        if len(data) > MAX_MESSAGE_BYTES:
            raise MessageTooLargeError(
                f"a message must be at most {MAX_MESSAGE_BYTES} bytes; got {len(data)}: "
                "split the call",
                size=len(data),
                max_message_bytes=MAX_MESSAGE_BYTES,
            )
        return data


@dataclass(frozen=True, slots=True)
class Match:
    """What is cached of one prompt.

    Attributes
    ----------
    length
        Tokens cached.
    slots
        (length,) int32, if asked for.
    pin_id
        0 without a pin.
    """

    length: int
    slots: Int32Array | None = None
    pin_id: int = 0


@dataclass(frozen=True, slots=True)
class MatchReply:
    """One match a prompt, in the order asked, all true at one revision of one epoch.

    Attributes
    ----------
    matches
        One a prompt, in the order asked.
    epoch
        The life of the cache that answered.
    revision
        When they were true; 0 for a token that is bound to a salt.
    """

    matches: tuple[Match, ...]
    epoch: int
    revision: int

    @property
    def lengths(self) -> list[int]:
        """Tokens cached of each prompt."""
        return [match.length for match in self.matches]


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Limits and identity of a server.

    Attributes
    ----------
    version
        Of radixkv.
    grpc_version
        Of grpcio.
    core
        "native" or "python".
    page_size
        Tokens a page.
    num_slots
        Slots of the pool.
    max_batch_sequences
        Prompts a call.
    max_message_bytes
        Bytes a message.
    max_lease_ttl_s
        Seconds of the longest lease.
    compact_revision
        A watch may resume after it.
    pool_id
        The pool that is cached; "": none is named.
    start_time
        In UTC.
    epoch
        The life of the cache.
    revision
        The number of its last change.
    """

    version: str
    grpc_version: str
    core: str
    page_size: int
    num_slots: int
    max_batch_sequences: int
    max_message_bytes: int
    max_lease_ttl_s: float
    compact_revision: int
    pool_id: str
    start_time: datetime  # in UTC
    epoch: int
    revision: int


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Sizes in tokens, their sum is the pool; counters since the cache was made.

    Attributes
    ----------
    free_slots
        Slots that nothing holds.
    allocated_slots
        Private to requests, or on loan.
    evictable_size
        Cached tokens under no lock.
    protected_size
        Cached tokens under a lock.
    waiting_slots
        Behind a fence, or of leases that ended.
    num_nodes
        Nodes of the tree.
    num_pins
        Pins that are held.
    num_leases
        Leases that have not ended.
    lookup_tokens
        Tokens looked up.
    hit_tokens
        Of those, tokens that were cached.
    evicted_tokens
        Tokens evicted.
    epoch
        The life of the cache.
    revision
        The number of its last change.
    """

    free_slots: int
    allocated_slots: int
    evictable_size: int
    protected_size: int
    waiting_slots: int
    num_nodes: int
    num_pins: int
    num_leases: int
    lookup_tokens: int
    hit_tokens: int
    evicted_tokens: int
    epoch: int
    revision: int


def match(
    prompts: Prompts,
    namespace: Namespace | None = None,
    *,
    probe: bool = False,
    want_slots: bool = False,
    leave_last_token: bool = False,
    expected_epoch: int = 0,
    timeout_s: float | None = None,
) -> ClientCall[MatchReply]:
    """How much is cached of one prompt, or of each of up to `max_batch_sequences` in one call.

    A prompt is a list, array, bytes (little-endian int32) or NumPy array of token ids, or a
    `Prompt` where content spans go with it.

    Parameters
    ----------
    prompts
        One prompt, or up to `max_batch_sequences`: each (n,) int32, a list, bytes of little-endian
        int32, or a `Prompt`.
    namespace
        What must be equal besides the tokens; None: the default.
    probe
        Look only, recency stays as it is.
    want_slots
        Also the slots, which may be evicted at any moment after the answer.
    leave_last_token
        Match at most all but the last.
    expected_epoch
        EpochMismatchError unless the cache is in this epoch; 0: any.
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    MatchReply
        Tokens cached of each prompt, and slots if asked for.
    """
    request = MATCH_PREFIX.request(
        namespace=codec.write_namespace(namespace) if namespace is not None else None,
        want_slots=want_slots,
        leave_last_token=leave_last_token,
        expected_epoch=expected_epoch,
        probe=probe,
    )
    read = partial(_read_matches, want_slots=want_slots)
    return ClientCall(MATCH_PREFIX, request, timeout_s, read, _encode_prompts(prompts))


def server_info(*, timeout_s: float | None = None) -> ClientCall[ServerInfo]:
    """Limits and identity of the server.

    Parameters
    ----------
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    ServerInfo
        As it is now.
    """
    return ClientCall(GET_SERVER_INFO, GetServerInfoRequest(), timeout_s, _read_server_info)


def stats(
    namespace: Namespace | None = None, *, timeout_s: float | None = None
) -> ClientCall[ServerStats]:
    """Sizes and counters of the cache at one revision.

    Parameters
    ----------
    namespace
        What is resident of it alone (sizes, nodes and pins; the rest is 0).
    timeout_s
        Seconds; None: as `Client` says.

    Returns
    -------
    ServerStats
        Sizes in tokens; counters since the cache was made.
    """
    message = codec.write_namespace(namespace) if namespace is not None else None
    request = GET_STATS.request(namespace=message)
    return ClientCall(GET_STATS, request, timeout_s, _read_stats)


def new_request_id() -> str:
    """An id by which the server recognizes a call that is repeated."""
    return str(uuid.uuid4())


def _encode_prompts(prompts: Prompts) -> list[Encoded]:
    try:
        batch = [prompts] if _is_one(prompts) else list(prompts)
    except TypeError:
        raise InvalidTokensError(
            f"prompts must be a prompt or a sequence of prompts; got {type(prompts).__name__}"
        ) from None
    codec.check_batch(len(batch), "prompts")
    field = MatchPrefixRequest.SEQUENCES_FIELD_NUMBER
    return [
        codec.encode_sequence(
            item if isinstance(item, Prompt) else Prompt(item), f"prompts[{at}]", field
        )
        for at, item in enumerate(batch)
    ]


def _is_one(prompts: Prompts) -> bool:
    """Whether it is one prompt: a matrix is a batch, a list too unless it begins with an int."""
    if isinstance(prompts, Prompt):
        return True
    if isinstance(prompts, list | tuple):
        return bool(prompts) and isinstance(prompts[0], int | np.integer)
    return getattr(prompts, "ndim", 1) == 1


def _read_matches(response: MatchPrefixResponse, *, want_slots: bool) -> MatchReply:
    matches = (
        Match(match.matched_length, codec.unpack(match.slots) if want_slots else None, match.pin_id)
        for match in response.matches
    )
    return MatchReply(tuple(matches), response.header.epoch, response.header.revision)


def _read_server_info(response: GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(
        version=response.version,
        grpc_version=response.grpc_version,
        core=response.core,
        page_size=response.page_size,
        num_slots=response.num_slots,
        max_batch_sequences=response.max_batch_sequences,
        max_message_bytes=response.max_message_bytes,
        max_lease_ttl_s=codec.read_seconds(response.max_lease_ttl),
        compact_revision=response.compact_revision,
        pool_id=response.pool_id,
        start_time=response.start_time.ToDatetime(UTC),
        epoch=response.header.epoch,
        revision=response.header.revision,
    )


def _read_stats(response: GetStatsResponse) -> ServerStats:
    return ServerStats(
        free_slots=response.free_slots,
        allocated_slots=response.allocated_slots,
        evictable_size=response.evictable_size,
        protected_size=response.protected_size,
        waiting_slots=response.waiting_slots,
        num_nodes=response.num_nodes,
        num_pins=response.num_pins,
        num_leases=response.num_leases,
        lookup_tokens=response.lookup_tokens,
        hit_tokens=response.hit_tokens,
        evicted_tokens=response.evicted_tokens,
        epoch=response.header.epoch,
        revision=response.header.revision,
    )
