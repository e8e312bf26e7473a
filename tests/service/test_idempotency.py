"""Replies to repeated requests: bounded by age, number and bytes."""

import uuid

import pytest

from radixkv.errors import InvalidArgumentError, RequestIdReusedError
from radixkv.service.server import idempotency
from radixkv.service.server.idempotency import Replies
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest, EvictPrefixesResponse
from tests.support.clock import Clock


class Book:
    """Replies that count how often they were made."""

    def __init__(self) -> None:
        self.clock, self.is_void, self.made = Clock(), False, 0
        self.replies = Replies(lambda *_: self.is_void, self.clock)

    def ask(self, request_id: str, num_tokens=1, caller="me"):
        request = EvictPrefixesRequest(num_tokens=num_tokens, request_id=request_id)
        reply = self.replies.find(caller, request, EvictPrefixesResponse)
        if reply.message is None:
            self.made += 1
            reply.message = EvictPrefixesResponse(num_evicted=self.made)
            self.replies.keep(reply)
        return reply.message.num_evicted


@pytest.fixture
def book():
    return Book()


def new_id():
    return str(uuid.uuid4())


def test_the_first_answer_again_until_it_is_old(book):
    id = new_id()
    assert [book.ask(id), book.ask(id)] == [1, 1]
    book.clock.go(599)
    assert book.ask(id) == 1
    book.clock.go(2)
    assert book.ask(id) == 2


def test_without_an_id_each_request_is_another(book):
    assert [book.ask(""), book.ask("")] == [1, 2]
    assert len(book.replies) == 0


def test_ids_of_others_are_others(book):
    id = new_id()
    assert [book.ask(id), book.ask(id, caller="you")] == [1, 2]


def test_another_payload_is_refused(book):
    id = new_id()
    book.ask(id)
    with pytest.raises(RequestIdReusedError, match=id):
        book.ask(id, num_tokens=2)


def test_what_is_void_is_asked_again(book):
    id = new_id()
    book.ask(id)
    book.is_void = True
    assert book.ask(id) == 2


def test_an_id_is_a_uuid(book):
    with pytest.raises(InvalidArgumentError, match="must be a UUID"):
        book.ask("x" * 10_000)


def test_the_oldest_go_first(book, monkeypatch):
    monkeypatch.setattr(idempotency, "_MOST", 3)
    ids = [new_id() for _ in range(4)]
    assert [book.ask(id) for id in ids] == [1, 2, 3, 4]
    assert len(book.replies) == 3
    assert [book.ask(id) for id in ids[1:]] == [2, 3, 4]
    assert book.ask(ids[0]) == 5


def test_bytes_are_bounded(book, monkeypatch):
    monkeypatch.setattr(idempotency, "_MOST_BYTES", 2 * idempotency._ENTRY_BYTES + 10)
    for _ in range(5):
        book.ask(new_id())
    assert len(book.replies) == 2


def test_a_caller_with_many_replies_pushes_out_its_own(book, monkeypatch):
    monkeypatch.setattr(idempotency, "_MOST", 4)
    mine = new_id()
    first = book.ask(mine, caller="me")
    for _ in range(50):
        book.ask(new_id(), caller="you")
    assert book.ask(mine, caller="me") == first
    assert len(book.replies) == 4
