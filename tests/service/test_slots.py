"""The life of a remote engine's request: match, allocate, compute, insert, free."""

import uuid

import grpc
import numpy as np
import pytest

from radixkv import Namespace, PrefixCache, errors
from radixkv.service import CacheServer, InsertCall, Prompt
from radixkv.service.client import lease_calls
from radixkv.v1 import prefix_cache_pb2 as pb
from radixkv.v1.prefix_cache_pb2_grpc import PrefixCacheServiceStub
from radixkv.v1.types_pb2 import TokenSequence
from tests.support.service import connect, details, refusal

RELEASE, MOVE = pb.PIN_ACTION_RELEASE, pb.PIN_ACTION_MOVE


@pytest.fixture
def server_options(clock):
    return {"alone": True, "clock": clock}


@pytest.fixture
def lease(client):
    with client.lease(60, pool_id="p") as lease:
        yield lease


@pytest.fixture
def stub(channel):
    return PrefixCacheServiceStub(channel)


def packed(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def sizes(cache):
    stats = cache.stats()
    return (stats.free, stats.allocated, stats.evictable, stats.protected, stats.waiting)


def test_one_request_from_its_prompt_to_its_end(cache, client, lease):
    prompt = list(range(10))
    (pin,) = lease.pin(prompt).matches
    assert (pin.length, pin.slots.tolist()) == (0, [])
    slots = lease.allocate(10).slots
    (done,) = lease.insert(InsertCall(prompt, slots, pin.pin_id, keep=True))
    assert (done.existing_length, done.cached_length, done.pin_id) == (0, 10, pin.pin_id)
    assert sizes(cache) == (54, 0, 0, 10, 0)
    more = lease.allocate(2).slots
    (end,) = lease.insert(InsertCall([10, 11], more, pin.pin_id))
    assert (end.cached_length, end.pin_id) == (12, 0)
    assert sizes(cache) == (52, 0, 12, 0, 0)
    again = lease.pin([*prompt, 99]).matches[0]
    assert again.slots.tolist() == slots.tolist()
    assert lease.release([again.pin_id, again.pin_id, 7]) == 1
    assert client.check() == []


def test_a_full_hit_leaves_one_token_to_compute(lease):
    lease.insert(InsertCall([1, 2, 3], lease.allocate(3).slots))
    (pin,) = lease.pin([1, 2, 3]).matches
    assert pin.length == 2


def test_the_reply_names_whose_slots_stay_where_two_compute_the_same(cache, client, lease):
    """The read-after-free that an implicit free would make cannot be written."""
    with client.lease(60, pool_id="p") as other:
        pins = [each.pin([1, 2, 3, 4]).matches[0] for each in (lease, other)]
        mine, theirs = lease.allocate(4).slots, other.allocate(4).slots
        other.insert(InsertCall([1, 2, 3], theirs[:3], pins[1].pin_id))
        (done,) = lease.insert(InsertCall([1, 2, 3, 4], mine, pins[0].pin_id, keep=True))
        assert done.existing_length == 3
        assert done.replacements.tolist() == theirs[:3].tolist()
        assert sizes(cache)[1] == 3 + 1, "its own copies are its own until it frees them"
        lease.free(mine[:3])
        other.free(theirs[3:])
        assert sizes(cache) == (60, 0, 0, 4, 0)
        assert client.check() == []


def test_a_batch_of_inserts(cache, client, lease):
    slots = lease.allocate(6).slots
    first, second = lease.insert(
        [InsertCall([1, 2, 3], slots[:3]), InsertCall([1, 2, 4], slots[3:])], Namespace(salt="a")
    )
    assert (first.existing_length, second.existing_length) == (0, 2)
    assert client.match([1, 2, 4], Namespace(salt="a")).lengths == [3]
    assert client.match([1, 2, 4]).lengths == [0]


def test_eviction_makes_room_and_pins_do_not(client, lease):
    lease.insert(InsertCall(range(40), lease.allocate(40).slots))
    kept = lease.pin(range(10), leave_last_token=False).matches[0]
    found = lease.allocate(54)
    assert (len(found.slots), found.num_evicted) == (54, 30)
    with pytest.raises(errors.OutOfSlotsError) as caught:
        lease.allocate(1)
    assert caught.value.details["available"] == 0
    assert caught.value.details["retry_after_s"] == 0.1
    lease.release([kept.pin_id])
    assert lease.allocate(1).num_evicted == 1


@pytest.mark.parametrize("policy", ["priority", "lru"])
def test_a_priority_comes_with_an_insert(policy):
    """What has a higher one is evicted later, although it was used first."""
    with (
        CacheServer(PrefixCache(16, policy=policy), "127.0.0.1:0", alone=True) as server,
        connect(server.address) as client,
        client.lease(60, pool_id="p") as lease,
    ):
        for prompt, priority in (([1, 2], 5), ([3, 4], -(2**31))):
            slots = lease.allocate(2).slots
            lease.insert(InsertCall(prompt, slots, priority=priority))
        client.evict(2)
        kept = client.match([[1, 2], [3, 4]], probe=True).lengths
        assert kept == ([2, 0] if policy == "priority" else [0, 2])
        with pytest.raises(errors.InvalidArgumentError, match="priority must be"):
            lease.insert(InsertCall([1], lease.allocate(1).slots, priority=2**31))


def test_content_of_remote_prompts(client, lease):
    slots = lease.allocate(4).slots
    lease.insert(InsertCall([5, 9, 9, 6], slots, content=[(1, 2, b"x")]))
    assert client.match(Prompt([5, 9, 9, 6], [(1, 2, b"x")])).lengths == [4]
    assert client.match(Prompt([5, 9, 9, 6], [(1, 2, b"y")])).lengths == [1]


def test_the_client_refuses_what_can_never_work(lease):
    for wrong, error in (
        (InsertCall([1, 2], [1]), errors.InvalidSlotsError),
        (InsertCall([-1], [1]), errors.InvalidTokensError),
        (InsertCall([1], ["x"]), errors.InvalidSlotsError),
    ):
        with pytest.raises(error):
            lease.insert(wrong)
    with pytest.raises(errors.InvalidArgumentError):
        lease.insert([])


# ---- refusals, as another language sees them ----


def insert_of(**fields):
    insert = {"sequence": TokenSequence(ids=[1]), "slots": packed(1), "pin_action": RELEASE}
    return {"inserts": [pb.PrefixInsert(**{**insert, **fields})]}


PRECONDITION, INVALID = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
BAD = {
    "no lease": ("AllocateSlots", {"num_slots": 1, "lease_id": 9}, NOT_FOUND, "LEASE_NOT_FOUND"),
    "no epoch": (
        "AllocateSlots",
        {"num_slots": 1, "expected_epoch": 0},
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "another epoch": (
        "AllocateSlots",
        {"num_slots": 1, "expected_epoch": 5},
        PRECONDITION,
        "EPOCH_MISMATCH",
    ),
    "no slots": ("AllocateSlots", {"num_slots": 0}, INVALID, "INVALID_ARGUMENT"),
    "more slots than a message holds": (
        "AllocateSlots",
        {"num_slots": 5_000_000},
        INVALID,
        "MESSAGE_TOO_LARGE",
    ),
    "more slots than there are": (
        "AllocateSlots",
        {"num_slots": 65},
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "OUT_OF_SLOTS",
    ),
    "freeing a free slot": ("FreeSlots", {"slots": packed(60)}, PRECONDITION, "SLOT_NOT_OWNED"),
    "freeing slot 0": ("FreeSlots", {"slots": packed(0)}, INVALID, "SLOT_COUNT_MISMATCH"),
    "freeing beyond the pool": (
        "FreeSlots",
        {"slots": packed(65)},
        INVALID,
        "SLOT_COUNT_MISMATCH",
    ),
    "freeing half a slot": ("FreeSlots", {"slots": b"123"}, INVALID, "SLOT_COUNT_MISMATCH"),
    "freeing twice in one": ("FreeSlots", {"slots": packed(1, 1)}, PRECONDITION, "SLOT_NOT_OWNED"),
    "inserting another's slot": (
        "InsertPrefix",
        insert_of(slots=packed(60)),
        PRECONDITION,
        "SLOT_NOT_OWNED",
    ),
    "fewer slots than tokens": (
        "InsertPrefix",
        insert_of(slots=b""),
        INVALID,
        "SLOT_COUNT_MISMATCH",
    ),
    "no action": ("InsertPrefix", insert_of(pin_action=0), INVALID, "INVALID_ARGUMENT"),
    "an unknown pin": ("InsertPrefix", insert_of(pin_id=77), NOT_FOUND, "PIN_NOT_FOUND"),
    "no tokens": (
        "InsertPrefix",
        insert_of(sequence=TokenSequence(), slots=b""),
        INVALID,
        "INVALID_TOKENS",
    ),
    "no inserts": ("InsertPrefix", {"inserts": []}, INVALID, "INVALID_ARGUMENT"),
    "too many inserts": (
        "InsertPrefix",
        {"inserts": [pb.PrefixInsert(pin_action=RELEASE)] * 1025},
        INVALID,
        "BATCH_TOO_LARGE",
    ),
    "too many pins": ("ReleasePins", {"pin_ids": range(4097)}, INVALID, "BATCH_TOO_LARGE"),
    "a request id that is none": (
        "AllocateSlots",
        {"num_slots": 1, "request_id": "me"},
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "a probe with a pin": (
        "MatchPrefix",
        {"sequences": [TokenSequence(ids=[1])], "probe": True},
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "stale weights": (
        "InsertPrefix",
        {**insert_of(), "namespace": {"weight_version": 7}},
        PRECONDITION,
        "STALE_WEIGHTS",
    ),
}


@pytest.mark.parametrize(("rpc", "fields", "code", "reason"), BAD.values(), ids=BAD)
def test_what_is_refused_changes_nothing(cache, client, lease, stub, rpc, fields, code, reason):
    lease.allocate(3)
    before = (sizes(cache), cache.events.position(), client.lease_info(lease.id).num_pins)
    request = getattr(pb, f"{rpc}Request")
    named = {"lease_id": lease.id}
    if "expected_epoch" in request.DESCRIPTOR.fields_by_name:
        named["expected_epoch"] = lease.epoch
    error = refusal(lambda: getattr(stub, rpc)(request(**{**named, **fields})))
    info, beside = details(error)
    assert (error.code(), info.reason) == (code, reason)
    if reason in ("SLOT_NOT_OWNED",):
        assert beside.violations[0].type == reason
    if reason == "OUT_OF_SLOTS":
        assert beside.retry_delay.ToMilliseconds() == 100
        assert dict(info.metadata).items() >= {"requested": "65", "available": "61"}.items()
    if reason.endswith("NOT_FOUND"):
        assert beside.resource_name in ("9", "77")
    after = (sizes(cache), cache.events.position(), client.lease_info(lease.id).num_pins)
    assert after == before
    assert client.check() == []


def test_a_pin_of_another_lease_is_left_alone(client, lease):
    (pin,) = lease.pin([1]).matches
    with client.lease(60) as other:
        assert other.release([pin.pin_id]) == 0
    assert lease.release([pin.pin_id]) == 1


# ---- the same request twice ----


def sent(call):
    """The request as the server gets it, another object each time."""
    return type(call.request).FromString(call.encode())


def test_a_repeat_gets_the_first_answer_and_changes_nothing(cache, client, lease, stub):
    ref = lease_calls.LeaseRef(lease.id, lease.epoch)
    for rpc, call in (
        ("AllocateSlots", lease_calls.allocate(ref, 3)),
        ("MatchPrefix", lease_calls.pin(ref, [1, 2])),
    ):
        first = getattr(stub, rpc)(sent(call))
        before = (sizes(cache), client.lease_info(lease.id).num_pins, client.stats())
        assert getattr(stub, rpc)(sent(call)) == first
        assert (sizes(cache), client.lease_info(lease.id).num_pins, client.stats()) == before
    slots = lease.allocate(2).slots
    insert = lease_calls.insert(ref, InsertCall([1, 2], slots, keep=True))
    first = stub.InsertPrefix(sent(insert))
    assert stub.InsertPrefix(sent(insert)) == first
    free = lease_calls.free(ref, lease.allocate(1).slots)
    stub.FreeSlots(sent(free))
    stub.FreeSlots(sent(free))
    assert client.check() == []


def test_another_request_under_the_same_id_is_refused(stub, lease):
    ref = lease_calls.LeaseRef(lease.id, lease.epoch)
    first, other = lease_calls.allocate(ref, 3).request, lease_calls.allocate(ref, 4).request
    other.request_id = first.request_id
    stub.AllocateSlots(first)
    error = refusal(lambda: stub.AllocateSlots(other))
    assert (error.code(), details(error)[0].reason) == (INVALID, "REQUEST_ID_REUSED")


def test_an_answer_dies_with_its_lease(cache, client, stub):
    lease = client.lease(60, pool_id="p")
    keeper = client.lease(60, pool_id="p")
    request = lease_calls.allocate(lease_calls.LeaseRef(lease.id, lease.epoch), 3).request
    stub.AllocateSlots(request)
    lease.close()
    error = refusal(lambda: stub.AllocateSlots(request))
    assert details(error)[0].reason == "LEASE_NOT_FOUND"
    keeper.close()


def test_an_answer_dies_with_its_epoch(cache, client, lease, stub):
    request = pb.EvictPrefixesRequest(num_tokens=2, request_id=str(uuid.uuid4()))
    lease.insert(InsertCall([1, 2, 3], lease.allocate(3).slots))
    assert stub.EvictPrefixes(request).num_evicted == 2
    assert stub.EvictPrefixes(request).num_evicted == 2
    assert cache.stats().evictable == 1
    client.clear(force=True)
    assert stub.EvictPrefixes(request).num_evicted == 0


def test_an_error_is_not_kept(stub, lease):
    """What was refused changed nothing: the same request may succeed later."""
    ref = lease_calls.LeaseRef(lease.id, lease.epoch)
    held = lease.allocate(64).slots
    request = lease_calls.allocate(ref, 1).request
    assert details(refusal(lambda: stub.AllocateSlots(request)))[0].reason == "OUT_OF_SLOTS"
    lease.free(held)
    assert len(stub.AllocateSlots(request).slots) == 4


def test_a_grant_twice_is_one_lease(client, channel):
    from radixkv.v1.lease_pb2_grpc import LeaseServiceStub

    request = lease_calls.grant(60).request
    stub = LeaseServiceStub(channel)
    assert stub.GrantLease(request) == stub.GrantLease(request)
    assert client.stats().num_leases == 1


def test_what_a_larger_cache_keeps_at_most(address):
    """`max_cached_tokens` holds for what remote engines store as well."""
    cache = PrefixCache(64, max_cached_tokens=5)
    with (
        CacheServer(cache, address, alone=True) as server,
        connect(server.address) as client,
        client.lease(60, pool_id="p") as lease,
    ):
        lease.insert(InsertCall(range(10), lease.allocate(10).slots))
        assert client.match(range(10)).lengths == [5]
        assert client.check() == []
