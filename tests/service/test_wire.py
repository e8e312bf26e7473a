"""Prompts on the wire: what is written and read without protobuf is what protobuf makes of it."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from radixkv.errors import InvalidTokensError
from radixkv.rpc import codec
from radixkv.rpc.codec import Prompt
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest
from radixkv.v1.types_pb2 import TokenSequence

core = pytest.importorskip("radixkv.kernels._core", reason="the native core is not built")
FIELD, PACKED = MatchPrefixRequest.SEQUENCES_FIELD_NUMBER, TokenSequence.PACKED_FIELD_NUMBER
LONGEST = 70_000  # tags take from two to seven bytes

ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40)
spans = st.just(()) | st.just([(0, 1, b"image")])


def plain(sequence):
    """What the native core answers for a message with that sequence alone."""
    message = MatchPrefixRequest(sequences=[sequence]).SerializeToString()
    return core.read_message_ids(message, FIELD, PACKED)


@given(ids, spans)
@example([7] * LONGEST, ())
def test_a_sequence_is_encoded_as_protobuf_does(token_ids, content):
    prompt = Prompt(token_ids, content)
    message = MatchPrefixRequest(sequences=[codec.write_sequence(prompt, "prompt")])
    encoded = b"".join(codec.encode_sequence(prompt, "prompt", FIELD))
    assert encoded == message.SerializeToString()


@given(st.lists(ids), st.integers(0, 2**63 - 1), st.text())
@example([[1] * LONGEST, [2] * 31, [3] * 32], 1, "a")
def test_packed_ids_are_read_from_among_other_fields(prompts, lease_id, request_id):
    request = MatchPrefixRequest(
        sequences=[TokenSequence(packed=codec.pack(np.array(p, np.int32))) for p in prompts],
        lease_id=lease_id,
        request_id=request_id,
        expected_epoch=lease_id,
        probe=True,
    )
    request.namespace.salt = request_id
    data = request.SerializeToString()
    assert [each.tolist() for each in core.read_message_ids(data, FIELD, PACKED)] == prompts
    assert [key.token_ids.tolist() for key in codec.read_sequences(request, data)] == prompts


@pytest.mark.parametrize(
    "sequence",
    [
        TokenSequence(),
        TokenSequence(ids=[1]),
        TokenSequence(packed=bytes(4), ids=[1]),
        TokenSequence(packed=bytes(4), content=[{"start": 0, "length": 1, "id": b"a"}]),
        TokenSequence(packed=bytes(7)),
        TokenSequence(packed=b"\xff\xff\xff\xff"),
    ],
    ids=["empty", "ids", "both", "content", "no whole id", "negative"],
)
def test_all_else_is_left_to_protobuf(sequence):
    assert plain(sequence) is None


def test_an_error_names_the_sequence():
    good, bad = TokenSequence(packed=bytes(4)), TokenSequence(packed=b"\xff\xff\xff\xff")
    request = MatchPrefixRequest(sequences=[good, bad])
    with pytest.raises(
        InvalidTokensError, match=r"sequences\[1\]\[0\] must be .* got -1"
    ) as caught:
        codec.read_sequences(request, request.SerializeToString())
    assert caught.value.details["field"] == "sequences[1]"


@given(st.lists(ids, min_size=1, max_size=3), st.data())
def test_what_is_read_of_a_damaged_message_is_what_protobuf_reads(prompts, data):
    sequences = [TokenSequence(packed=codec.pack(np.array(p, np.int32))) for p in prompts]
    message = bytearray(MatchPrefixRequest(sequences=sequences, lease_id=3).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    del message[data.draw(st.integers(1, len(message))) :]
    found = core.read_message_ids(bytes(message), FIELD, PACKED)
    try:
        request = MatchPrefixRequest.FromString(bytes(message))
    except DecodeError:
        return
    if found is not None:
        assert [codec.pack(each) for each in found] == [s.packed for s in request.sequences]
        assert not any(each.ids or each.content for each in request.sequences)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_left(message):
    found = core.read_message_ids(message, FIELD, PACKED)
    assert found is None or all(each.dtype == np.int32 for each in found)
