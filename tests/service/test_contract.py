"""What proto/ says in words holds: a client in another language has no other source."""

import re
from pathlib import Path

import pytest
from google.rpc import code_pb2, error_details_pb2

from radixkv.cache.events import Event
from radixkv.rpc.method_table import SERVICES
from radixkv.rpc.status import TABLE, to_status
from radixkv.tree import Stored, Trimmed
from radixkv.v1.errors_pb2 import ErrorReason
from tests.support.service import connect, hold

PROTO = Path(__file__).parents[2] / "proto/radixkv/v1"
RETRY_INFO = error_details_pb2.RetryInfo.DESCRIPTOR


def text_of(comment: str) -> str:
    return " ".join(comment.replace("//", " ").split())


def reasons() -> dict[str, tuple[str, bool]]:
    """The gRPC code of each reason, and whether to retry, as errors.proto says."""
    found = {}
    source = (PROTO / "errors.proto").read_text()
    for comment, name in re.findall(r"((?:^  //.*\n)+)  ERROR_REASON_(\w+) = ", source, re.M):
        said = text_of(comment)
        retries = re.findall(r"do not retry|retry", said, re.IGNORECASE)
        assert name == "UNSPECIFIED" or len(retries) == 1, name
        found[name] = said.split(".")[0], retries == ["Retry"]
    return found


def test_every_reason_is_in_the_contract_with_its_code():
    named = reasons()
    assert {f"ERROR_REASON_{name}" for name in named} == set(ErrorReason.keys())
    codes = {error.reason: code_pb2.Code.Name(row.code) for error, row in TABLE.items()}
    del named["UNSPECIFIED"]
    assert {reason: code for reason, (code, _) in named.items()} == {
        **codes,
        "INTERNAL": "INTERNAL",
    }


def test_what_comes_with_a_delay_is_to_be_retried():
    named = reasons()
    for error in TABLE:
        _, *beside = to_status(error("x")).details
        if any(detail.Is(RETRY_INFO) for detail in beside):
            assert named[error.reason][1], error.reason


@pytest.mark.parametrize("service", [*SERVICES, "radixkv.v1.RouterService"])
def test_each_service_says_how_callers_show_who_they_are(service):
    name = service.rpartition(".")[2]
    (comment,) = (
        text_of(found)
        for path in PROTO.glob("*.proto")
        for found in re.findall(rf"((?:^//.*\n)+)service {name} ", path.read_text(), re.M)
    )
    assert '"authorization: Bearer TOKEN"' in comment


def example() -> list[tuple[str, list[int], list[str]]]:
    """The lines of the worked example in watch.proto: what is done, its numbers, what is told."""
    source = (PROTO / "watch.proto").read_text()
    lines = re.findall(r"^//   (insert|evict) (.*?)  +(.*)$", source, re.M)
    return [
        (verb, [int(n) for n in re.findall(r"\d+", given)], re.split("; *", " ".join(told.split())))
        for verb, given, told in lines
    ]


def shown(event: Event) -> str:
    change = event.change
    if isinstance(change, Stored):
        return (
            f"Stored run {change.run} parent_run {change.parent_run} "
            f"parent_offset {change.parent_offset} tokens {change.codes.tolist()}".replace(",", "")
        )
    assert isinstance(change, Trimmed)
    return f"Trimmed run {change.run} keep {change.keep}"


def test_the_worked_example_of_a_watch_is_what_a_watch_tells(cache, server):
    lines = example()
    assert [verb for verb, _, _ in lines] == ["insert"] * 3 + ["evict"] * 3
    with connect(server.address) as client, client.watch() as watch:
        assert next(watch).is_start
        for verb, numbers, told in lines:
            if verb == "insert":
                hold(cache, numbers)
            else:
                cache.evict(numbers[0])
            update = next(watch)
            assert [shown(event) for event in update.events] == told
        assert client.match([[1, 2, 3, 4]], probe=True).lengths == [3]
