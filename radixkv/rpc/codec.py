"""Tokens, slots, namespaces and times between Python and messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.duration_pb2 import Duration

from radixkv.arrays import Int32Array
from radixkv.errors import BatchTooLargeError, InvalidArgumentError, InvalidTokensError
from radixkv.rpc.limits import MAX_BATCH_SEQUENCES
from radixkv.tree import ContentSpan, Namespace, TokenIds, as_token_ids, tokens
from radixkv.tree.content import Content, check_content, cut_content
from radixkv.v1 import types_pb2


class Prompt(NamedTuple):
    """A prompt whose placeholder tokens stand for something: spans (start, length, id: bytes).

    Attributes
    ----------
    token_ids
        (n,) int32, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
    content
        What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
    """

    token_ids: TokenIds
    content: Content = ()


# What a message's bytes are joined of; arrays stay where the caller has them.
Encoded: TypeAlias = tuple[bytes, bytes | memoryview]


class Key(NamedTuple):
    """A prompt as it was received and checked. token_ids: (n,) int32, n > 0."""

    token_ids: Int32Array
    content: tuple[ContentSpan, ...]

    def without_last(self) -> "Key":
        """The key of all tokens but the last, and the content of those."""
        length = len(self.token_ids) - 1
        return Key(self.token_ids[:length], cut_content(self.content, length))


def check_batch(size: int, field: str = "sequences") -> None:
    """Raises unless one call may hold `size` prompts."""
    sizes = {"field": field, "size": size, "max_batch_sequences": MAX_BATCH_SEQUENCES}
    if size > MAX_BATCH_SEQUENCES:
        raise BatchTooLargeError(
            f"{field} must be 1 to {MAX_BATCH_SEQUENCES} prompts; got {size}: split the call",
            **sizes,
        )
    if not size:
        raise InvalidArgumentError(
            f"{field} must be 1 to {MAX_BATCH_SEQUENCES} prompts; got 0", **sizes
        )


def write_sequence(prompt: Prompt, name: str) -> types_pb2.TokenSequence:
    """The message for a prompt; raises InvalidTokensError, InvalidContentError."""
    token_ids = _some_token_ids(prompt.token_ids, name)
    spans = check_content(prompt.content, len(token_ids))
    return types_pb2.TokenSequence(
        packed=pack(token_ids),
        content=[types_pb2.ContentSpan(start=s.start, length=s.length, id=s.id) for s in spans],
    )


def encode_sequence(prompt: Prompt, name: str, field: int) -> Encoded:
    """The same as that field of a message, which may end with any number of them; see `Encoded`.

    Without content it is framed here, in place. Protobuf would copy a message of many prompts three
    times, into buffers that double and are new from the kernel each time: 0.8 ms for 64 of 2,000
    tokens, more than all the rest of the call.
    """
    if prompt.content:
        sequence = write_sequence(prompt, name).SerializeToString()
        return _tag(field, len(sequence)), sequence
    token_ids = _some_token_ids(prompt.token_ids, name).astype("<i4", copy=False)
    return _tags(field, token_ids.nbytes), token_ids.data


def _some_token_ids(token_ids: TokenIds, name: str) -> Int32Array:
    out = as_token_ids(token_ids, name)
    if not out.size:
        raise InvalidTokensError(f"{name} must have at least one token; got none")
    return out


@lru_cache
def _tags(field: int, size: int) -> bytes:
    """What stands before the packed tokens of a sequence in that field."""
    inner = _tag(types_pb2.TokenSequence.PACKED_FIELD_NUMBER, size)
    return _tag(field, len(inner) + size) + inner


def _tag(field: int, size: int) -> bytes:
    """What stands before `size` bytes of a field, in protobuf's wire format."""
    length_delimited = 2
    return _varint(field << 3 | length_delimited) + _varint(size)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_sequences(request: Any, data: bytes) -> list[Key]:
    """The prompts of a call; an error names the field that is wrong.

    data: the request as it came. Where all is in order, the native core reads them from there, in a
    quarter of the time.
    """
    field = request.SEQUENCES_FIELD_NUMBER
    found = tokens.read_message_ids(data, field, types_pb2.TokenSequence.PACKED_FIELD_NUMBER)
    if found is not None:
        return [Key(token_ids, ()) for token_ids in found]
    return [read_sequence(each, f"sequences[{at}]") for at, each in enumerate(request.sequences)]


def read_sequence(sequence: types_pb2.TokenSequence, name: str) -> Key:
    """One prompt; an error names it."""
    with blame(name):
        return _read_sequence(sequence, name)


def _read_sequence(sequence: types_pb2.TokenSequence, name: str) -> Key:
    packed, content = sequence.packed, sequence.content
    if bool(packed) == bool(sequence.ids):
        given = "both" if packed else "neither"
        raise InvalidTokensError(f"{name} must have one of packed and ids; got {given}")
    token_ids = as_token_ids(packed or np.array(sequence.ids[:], np.int64), name)
    if not content:
        return Key(token_ids, ())
    spans = [(span.start, span.length, span.id) for span in content]
    return Key(token_ids, tuple(check_content(spans, len(token_ids))))


@contextmanager
def blame(field: str) -> Iterator[None]:
    """Adds the field to errors of arguments."""
    try:
        yield
    except InvalidArgumentError as error:
        error.details["field"] = field
        raise


def pack(values: Int32Array) -> bytes:
    """Little-endian int32."""
    return values.astype("<i4", copy=False).tobytes()


def unpack(data: bytes) -> Int32Array:
    """(n,) int32, read-only."""
    return np.frombuffer(data, "<i4").astype(np.int32, copy=False)


def write_namespace(namespace: Namespace) -> types_pb2.Namespace:
    """The message; None stays unset, which is not empty."""
    return types_pb2.Namespace(
        salt=namespace.salt,
        adapter=namespace.adapter,
        extra_key=namespace.extra_key,
        weight_version=namespace.weight_version,
    )


def read_namespace(message: types_pb2.Namespace) -> Namespace:
    """The namespace; an unset message is the default one."""

    def text(field: str) -> str | None:
        return getattr(message, field) if message.HasField(field) else None

    return Namespace(text("salt"), text("adapter"), text("extra_key"), message.weight_version)


def write_seconds(seconds: float) -> Duration:
    """The message, to the nanosecond."""
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def read_seconds(message: Duration) -> float:
    """Seconds; an unset message is 0."""
    return message.ToNanoseconds() / 1e9
