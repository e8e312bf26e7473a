"""Sizes, deadlines and retries."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from radixkv import PrefixCache, errors
from radixkv.rpc import limits
from radixkv.rpc.limits import MAX_BATCH_SEQUENCES, MAX_MESSAGE_BYTES
from radixkv.service import CacheServer, Client
from radixkv.v1.info_pb2 import GetStatsResponse
from radixkv.v1.prefix_cache_pb2 import MatchPrefixRequest
from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub
from radixkv.v1.types_pb2 import TokenSequence
from tests.support.service import SlowCache, connect, hold


def test_the_server_reports_its_limits(cache, client):
    import radixkv

    info = client.server_info()
    assert info.max_message_bytes == MAX_MESSAGE_BYTES == 16 * 2**20
    assert info.max_batch_sequences == MAX_BATCH_SEQUENCES
    assert (info.num_slots, info.page_size, info.core) == (64, 1, cache.core)
    assert (info.version, info.grpc_version) == (radixkv.__version__, grpc.__version__)


def test_B22_a_batch_of_long_prompts_passes_the_default_limit():
    """16 keys of 100,000 ids, above gRPC's default of 4 MiB, with their slots on the way back."""
    rng = np.random.default_rng(22)
    prompts = rng.integers(16_384, 128_000, (16, 100_000), dtype=np.int32)
    cache = PrefixCache(16 * 100_000)
    for prompt in prompts:
        hold(cache, prompt)
    with CacheServer(cache, "127.0.0.1:0") as server, connect(server.address) as client:
        reply = client.match(prompts, want_slots=True)
        assert reply.lengths == [100_000] * 16
        assert len(np.unique(np.concatenate([match.slots for match in reply.matches]))) == 1_600_000
        ids = [TokenSequence(ids=prompt.tolist()) for prompt in prompts]
        with grpc.insecure_channel(server.address) as channel:
            response = PrefixCacheServiceStub(channel).MatchPrefix(
                MatchPrefixRequest(sequences=ids), timeout=30
            )
        assert [match.matched_length for match in response.matches] == [100_000] * 16


def test_B22_what_is_over_the_limit_is_refused_before_anything_changes(cache, client, channel):
    hold(cache, [1])
    before = cache.stats()
    too_long = np.ones(MAX_MESSAGE_BYTES // 4, np.int32)
    with pytest.raises(errors.MessageTooLargeError, match="split the call") as caught:
        client.match(too_long)
    assert caught.value.details["max_message_bytes"] == MAX_MESSAGE_BYTES
    assert caught.value.details["size"] > MAX_MESSAGE_BYTES
    request = MatchPrefixRequest(sequences=[TokenSequence(packed=too_long.tobytes())])
    with pytest.raises(grpc.RpcError) as refused:
        PrefixCacheServiceStub(channel).MatchPrefix(request)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_MESSAGE_BYTES) in refused.value.details()
    assert cache.stats() == before
    assert client.match([1]).lengths == [1]


def test_B22_an_answer_over_the_limit_is_refused_before_anything_changes(cache, channel, client):
    """Small ids take a byte each to ask about, and four to answer with slots."""
    before = cache.stats()
    request = MatchPrefixRequest(
        sequences=[TokenSequence(ids=[1] * (MAX_MESSAGE_BYTES // 4))], want_slots=True
    )
    with pytest.raises(grpc.RpcError) as refused:
        PrefixCacheServiceStub(channel).MatchPrefix(request)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "slots could take" in refused.value.details()
    assert cache.stats() == before
    request.want_slots = False
    assert PrefixCacheServiceStub(channel).MatchPrefix(request).matches[0].matched_length == 0


def test_the_longest_prompt_that_fits(client):
    room = MAX_MESSAGE_BYTES - 64
    assert client.match(np.ones(room // 4, np.int32), want_slots=False).lengths == [0]


@pytest.fixture
def slow():
    """A server, on a cache whose matches wait until they are let go."""
    cache = SlowCache(64)
    with CacheServer(cache, "127.0.0.1:0") as server:
        yield cache, server
        cache.go.set()


def check_health(channel, service=""):
    request = health_pb2.HealthCheckRequest(service=service)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=60).status


def test_a_call_past_its_deadline_never_begins(slow):
    """The first keeps the writer; what is given up before its turn leaves no trace."""
    cache, server = slow
    with connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.match, [1, 2, 3])
        assert cache.is_inside.wait(timeout=60)
        with pytest.raises(errors.DeadlineExceededError):
            client.match([4] * 1000, timeout_s=0.1)
        # What follows on the same connection is answered after the server began to give up.
        check_health(client._channel)
        cache.go.set()
        assert first.result().lengths == [0]
        assert client.match([5]).lengths == [0]
        assert client.stats().lookup_tokens == 3 + 1


def test_health_answers_while_the_cache_is_busy(slow):
    cache, server = slow
    with connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)
        for service in ("", "radixkv.v1.PrefixCacheService", "radixkv.v1.InfoService"):
            status = check_health(client._channel, service)
            assert status == health_pb2.HealthCheckResponse.SERVING
        assert not first.done()
        cache.go.set()


def test_calls_without_a_deadline_get_one(slow, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_CALL_S", 0.05)
    request = MatchPrefixRequest(sequences=[TokenSequence(ids=[1])])
    with (
        grpc.insecure_channel(slow[1].address) as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        PrefixCacheServiceStub(channel).MatchPrefix(request)
    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert refused.value.details() == "no response within 0.05 s"


def unavailable_at_first(refusals: int, code=grpc.StatusCode.UNAVAILABLE):
    """A plain gRPC server that refuses GetStats some times, then answers; and its calls."""
    calls = []

    def answer(_, context):
        calls.append(1)
        if len(calls) <= refusals:
            context.abort(code, "not now")
        return GetStatsResponse(free_slots=5).SerializeToString()

    handler = grpc.method_handlers_generic_handler(
        "radixkv.v1.InfoService", {"GetStats": grpc.unary_unary_rpc_method_handler(answer)}
    )
    server = grpc.server(ThreadPoolExecutor(1), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}", calls


def test_unavailable_is_tried_again():
    server, address, calls = unavailable_at_first(2)
    with connect(address) as client:
        assert client.stats().free_slots == 5
    assert len(calls) == 3
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ServiceUnavailableError),
        (grpc.StatusCode.INTERNAL, errors.ServiceError),
        (grpc.StatusCode.UNKNOWN, errors.ServiceError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.UnsupportedError),
    ],
)
def test_anything_else_is_not_tried_again(code, error):
    server, address, calls = unavailable_at_first(1, code)
    with connect(address) as client, pytest.raises(error, match="not now") as caught:
        client.stats()
    assert (len(calls), caught.value.details["code"]) == (1, code.name)
    server.stop(None).wait()


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "1"])
def test_a_timeout_is_a_time(client, timeout_s):
    with pytest.raises(errors.InvalidArgumentError, match="timeout_s must be"):
        client.match([1], timeout_s=timeout_s)
    with pytest.raises(errors.InvalidArgumentError, match="timeout_s must be"):
        Client("127.0.0.1:1", timeout_s=timeout_s)
