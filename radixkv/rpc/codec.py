"""Tokens, slots and namespaces between Python and messages."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from radixkv.errors import BatchTooLargeError, InvalidArgumentError, InvalidTokensError
from radixkv.rpc.limits import MAX_BATCH_SEQUENCES
from radixkv.tree import ContentSpan, Namespace, TokenIds, as_token_ids
from radixkv.tree.content import Content, check_content, cut_content
from radixkv.tree.tokens import Int32Array
from radixkv.v1 import types_pb2


class Prompt(NamedTuple):
    """A prompt whose placeholder tokens stand for something: spans (start, length, id: bytes)."""

    token_ids: TokenIds
    content: Content = ()


class Key(NamedTuple):
    """A prompt as it was received and checked. token_ids: (n,) int32, n > 0."""

    token_ids: Int32Array
    content: tuple[ContentSpan, ...]

    def without_last(self) -> "Key":
        length = len(self.token_ids) - 1
        return Key(self.token_ids[:length], cut_content(self.content, length))


def check_batch(size: int, field: str = "sequences") -> None:
    """Raises unless one call may hold `size` prompts."""
    sizes = {"field": field, "size": size, "max_batch_sequences": MAX_BATCH_SEQUENCES}
    if size > MAX_BATCH_SEQUENCES:
        raise BatchTooLargeError(
            f"{size} prompts; a call takes {MAX_BATCH_SEQUENCES}: split it", **sizes
        )
    if not size:
        raise InvalidArgumentError(f"no prompts; a call takes 1 to {MAX_BATCH_SEQUENCES}", **sizes)


def write_sequence(prompt: Prompt, name: str) -> types_pb2.TokenSequence:
    """The message for a prompt; raises InvalidTokensError, InvalidContentError."""
    token_ids = as_token_ids(prompt.token_ids, name)
    if not token_ids.size:
        raise InvalidTokensError(f"{name} is empty; it takes at least one token")
    spans = check_content(prompt.content, len(token_ids))
    return types_pb2.TokenSequence(
        packed=pack(token_ids),
        content=[types_pb2.ContentSpan(start=s.start, length=s.length, id=s.id) for s in spans],
    )


def read_sequences(sequences: Sequence[types_pb2.TokenSequence]) -> list[Key]:
    """The prompts of a call; an error names the field that is wrong."""
    return [read_sequence(sequence, f"sequences[{at}]") for at, sequence in enumerate(sequences)]


def read_sequence(sequence: types_pb2.TokenSequence, name: str) -> Key:
    """One prompt; an error names it."""
    try:
        return _read_sequence(sequence, name)
    except InvalidArgumentError as error:
        error.details["field"] = name
        raise


def _read_sequence(sequence: types_pb2.TokenSequence, name: str) -> Key:
    packed, content = sequence.packed, sequence.content
    if bool(packed) == bool(sequence.ids):
        given = "both packed and ids" if packed else "no tokens"
        raise InvalidTokensError(f"{name} has {given}; it takes one of packed and ids")
    if not packed:
        token_ids = as_token_ids(np.array(sequence.ids[:], np.int64), name)
    else:  # arrays are checked faster than bytes; what is no whole number of ids stays bytes
        token_ids = as_token_ids(packed if len(packed) % 4 else np.frombuffer(packed, "<i4"), name)
    if not content:
        return Key(token_ids, ())
    spans = [(span.start, span.length, span.id) for span in content]
    return Key(token_ids, tuple(check_content(spans, len(token_ids))))


@contextmanager
def blame(field: str) -> Iterator[None]:
    """Errors of arguments name the field."""
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
