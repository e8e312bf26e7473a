"""Every refusal, as a client in another language sees it and as ours raises it."""

import grpc
import numpy as np
import pytest
from grpc_status import rpc_status

from radixkv import Namespace, PrefixCache, errors
from radixkv.rpc.limits import MAX_BATCH_SEQUENCES
from radixkv.rpc.status import TABLE, to_status
from radixkv.service import CacheServer, Prompt
from radixkv.v1.prefix_cache_pb2 import AllocateSlotsRequest, MatchPrefixRequest
from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub
from radixkv.v1.types_pb2 import ContentSpan, TokenSequence
from tests.support.service import connect, details, hold, refusal

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def packed(*ids: int) -> TokenSequence:
    return TokenSequence(packed=np.array(ids, "<i4").tobytes())


BAD_MATCHES = {
    "bytes are no int32": (
        {"sequences": [packed(1), TokenSequence(packed=b"12345")]},
        "INVALID_TOKENS",
        "sequences[1]",
        "5 bytes",
    ),
    "negative id": ({"sequences": [packed(1, -7)]}, "INVALID_TOKENS", "sequences[0]", "-7"),
    "id beyond int32": (
        {"sequences": [TokenSequence(ids=[2**31])]},
        "INVALID_TOKENS",
        "sequences[0]",
        "2147483648",
    ),
    "empty sequence": (
        {"sequences": [TokenSequence()]},
        "INVALID_TOKENS",
        "sequences[0]",
        "got neither",
    ),
    "both encodings": (
        {"sequences": [TokenSequence(ids=[1], packed=b"\1\0\0\0")]},
        "INVALID_TOKENS",
        "sequences[0]",
        "packed and ids; got both",
    ),
    "span beyond the prompt": (
        {
            "sequences": [
                TokenSequence(ids=[1, 2], content=[ContentSpan(start=1, length=2, id=b"x")])
            ]
        },
        "INVALID_CONTENT",
        "sequences[0]",
        "1 to 3",
    ),
    "no sequences": ({"sequences": []}, "INVALID_ARGUMENT", "sequences", "prompts; got 0"),
    "too many sequences": (
        {"sequences": [packed(1)] * (MAX_BATCH_SEQUENCES + 1)},
        "BATCH_TOO_LARGE",
        "sequences",
        str(MAX_BATCH_SEQUENCES + 1),
    ),
    "probe with slots": (
        {"sequences": [packed(1)], "probe": True, "want_slots": True},
        "INVALID_ARGUMENT",
        "want_slots",
        "lengths only",
    ),
}


@pytest.mark.parametrize(
    ("fields", "reason", "field", "says"), BAD_MATCHES.values(), ids=BAD_MATCHES
)
def test_what_can_never_work_names_the_field(channel, fields, reason, field, says):
    stub = PrefixCacheServiceStub(channel)
    error = refusal(lambda: stub.MatchPrefix(MatchPrefixRequest(**fields)))
    info, bad_request = details(error)
    assert (error.code(), info.reason) == (INVALID, reason)
    assert says in error.details()
    (violation,) = bad_request.field_violations
    assert (violation.field, violation.reason) == (field, reason)


def test_a_bad_sequence_refuses_the_whole_batch_before_it_begins(cache, channel):
    hold(cache, [1, 2])
    before = cache.stats()
    refusal(
        lambda: PrefixCacheServiceStub(channel).MatchPrefix(
            MatchPrefixRequest(sequences=[packed(1, 2), packed(-1)])
        )
    )
    assert cache.stats() == before


def test_garbage_bytes(channel):
    for path in ("/radixkv.v1.PrefixCacheService/MatchPrefix", "/radixkv.v1.InfoService/GetStats"):
        for garbage in (b"\xff" * 100, b"\x12\xff\xff\xff\xff\x0f", b"\x0a\x02\x0a\x05"):
            error = refusal(lambda path=path, garbage=garbage: channel.unary_unary(path)(garbage))
            info, _ = details(error)
            assert (error.code(), info.reason) == (INVALID, "INVALID_ARGUMENT")
            assert "must be a radixkv.v1." in error.details()


def test_what_is_not_served_says_so(channel):
    error = refusal(lambda: PrefixCacheServiceStub(channel).AllocateSlots(AllocateSlotsRequest()))
    assert (error.code(), details(error)[0].reason) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "UNSUPPORTED",
    )
    assert "keeps its slots to itself and does not serve AllocateSlots" in error.details()
    for path in ("/radixkv.v1.AdminService/Purge", "/radixkv.v1.RouterService/Pick"):
        error = refusal(lambda path=path: list(channel.stream_stream(path)(iter([b""]))))
        assert (error.code(), details(error)[0].reason) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "UNSUPPORTED",
        )
    error = refusal(lambda: channel.unary_unary("/other.Service/Call")(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_reset_is_another_epoch(cache, client):
    hold(cache, [1, 2])
    epoch = client.match([1, 2]).epoch
    assert client.match([1, 2], expected_epoch=epoch).lengths == [2]
    cache.reset()
    lookups = cache.stats().lookup_tokens
    with pytest.raises(errors.EpochMismatchError, match="forget") as caught:
        client.match([1, 2], expected_epoch=epoch)
    now = cache.events.epoch
    assert caught.value.details["epoch"] == now != epoch
    assert caught.value.details["expected_epoch"] == epoch
    assert caught.value.details["code"] == "FAILED_PRECONDITION"
    assert cache.stats().lookup_tokens == lookups
    assert client.match([1, 2], expected_epoch=now).lengths == [0]


LOCAL_REFUSALS = {
    "negative id": (
        lambda client: client.match([[1], [-1]]),
        errors.InvalidTokensError,
        r"prompts\[1\]",
    ),
    "no ids": (
        lambda client: client.match([1, 1.5]),
        errors.InvalidTokensError,
        r"\[1\] must be .* got 1\.5",
    ),
    "text": (lambda client: client.match("abc"), errors.InvalidTokensError, "str"),
    "empty prompt": (
        lambda client: client.match([[]]),
        errors.InvalidTokensError,
        r"prompts\[0\] must have at least one",
    ),
    "no prompts": (lambda client: client.match([]), errors.InvalidArgumentError, "prompts; got 0"),
    "too many": (lambda client: client.match([[1]] * 1025), errors.BatchTooLargeError, "1025"),
    "span": (
        lambda client: client.match(Prompt([1], content=[(0, 2, b"x")])),
        errors.InvalidContentError,
        "0 to 2",
    ),
}


@pytest.mark.parametrize(("call", "error", "says"), LOCAL_REFUSALS.values(), ids=LOCAL_REFUSALS)
def test_the_client_refuses_what_can_never_work_without_asking(call, error, says):
    with connect("127.0.0.1:1") as client, pytest.raises(error, match=says):
        call(client)


def test_the_client_raises_the_librarys_errors(client):
    with pytest.raises(errors.InvalidArgumentError, match="lengths only") as caught:
        client.match([1], probe=True, want_slots=True)
    assert isinstance(caught.value, ValueError)
    assert caught.value.details == {
        "field": "want_slots",
        "code": "INVALID_ARGUMENT",
        "reason": "INVALID_ARGUMENT",
    }


@pytest.mark.parametrize("error", [RuntimeError, errors.NotLockedError])
def test_a_bug_is_internal_and_shows_nothing(caplog, error):
    class BrokenCache(PrefixCache):  # type: ignore[misc]
        """A cache with a bug that talks."""

        def stats(self):
            raise error("prompt [4, 8, 15] of tenant 16 is lost")

    with CacheServer(BrokenCache(4), "127.0.0.1:0") as server, connect(server.address) as client:
        with pytest.raises(errors.ServiceError, match="internal error") as caught:
            client.stats()
        assert "tenant" not in str(caught.value)
        assert caught.value.details["code"] == "INTERNAL"
        assert client.match([1]).lengths == [0]
    assert "GetStats failed" in caplog.text
    assert "tenant 16" in caplog.text


def test_an_address_without_a_server():
    with (
        connect("127.0.0.1:1") as client,
        pytest.raises(errors.ServiceUnavailableError, match=r"127\.0\.0\.1:1"),
    ):
        client.stats()


@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.__name__)
def test_every_row_of_the_table_survives_the_wire(error):
    """Through a server of plain gRPC that refuses with that row."""
    from concurrent.futures import ThreadPoolExecutor

    def refuse(_, context):
        context.abort_with_status(
            rpc_status.to_status(to_status(error("the message", epoch=5, name="x")))
        )

    handler = grpc.method_handlers_generic_handler(
        "radixkv.v1.InfoService", {"GetStats": grpc.unary_unary_rpc_method_handler(refuse)}
    )
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with connect(f"127.0.0.1:{port}") as client, pytest.raises(error) as caught:
            client.stats()
    finally:
        server.stop(None).wait()
    assert type(caught.value) is error
    assert str(caught.value) == "the message"
    assert caught.value.details.items() >= {"epoch": 5, "name": "x", "reason": error.reason}.items()


def test_reasons_are_distinct():
    assert len({error.reason for error in TABLE}) == len(TABLE)


def test_a_long_message_still_arrives():
    """Trailing metadata has room for 8 KiB; what is longer would lose the whole answer."""
    status = to_status(errors.InvalidContentError("x" * 100_000, value="y" * 100_000))
    assert status.ByteSize() < 4096


def test_a_namespace_that_is_no_text(channel):
    """Bytes that are no UTF-8 never become a namespace."""
    garbage = (
        b"\x0a\x04\x0a\x02\xff\xfe" + MatchPrefixRequest(sequences=[packed(1)]).SerializeToString()
    )
    error = refusal(
        lambda: channel.unary_unary("/radixkv.v1.PrefixCacheService/MatchPrefix")(garbage)
    )
    assert error.code() is INVALID


def test_the_largest_weight_version(client):
    assert client.match([1], Namespace(weight_version=2**64 - 1)).lengths == [0]
