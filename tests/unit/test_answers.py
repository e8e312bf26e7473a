"""What was answered before: bounded by age, number and bytes."""

import uuid

import pytest

from radixkv.errors import InvalidArgumentError, RequestIdReusedError
from radixkv.service.server import answers
from radixkv.service.server.answers import Answers
from radixkv.v1.prefix_cache_pb2 import EvictPrefixesRequest, EvictPrefixesResponse
from tests.service.helpers import Clock


class Book:
    """Answers that count how often they were made."""

    def __init__(self) -> None:
        self.clock, self.is_void, self.made = Clock(), False, 0
        self.answers = Answers(lambda *_: self.is_void, self.clock)

    def ask(self, request_id: str, num_tokens=1, caller="me"):
        def make() -> EvictPrefixesResponse:
            self.made += 1
            return EvictPrefixesResponse(num_evicted=self.made)

        request = EvictPrefixesRequest(num_tokens=num_tokens, request_id=request_id)
        return self.answers.once(caller, request, make).num_evicted


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
    assert len(book.answers) == 0


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
    with pytest.raises(InvalidArgumentError, match="no UUID"):
        book.ask("x" * 10_000)


def test_the_oldest_go_first(book, monkeypatch):
    monkeypatch.setattr(answers, "_MOST", 3)
    ids = [new_id() for _ in range(4)]
    assert [book.ask(id) for id in ids] == [1, 2, 3, 4]
    assert len(book.answers) == 3
    assert [book.ask(id) for id in ids[1:]] == [2, 3, 4]
    assert book.ask(ids[0]) == 5


def test_bytes_are_bounded(book, monkeypatch):
    monkeypatch.setattr(answers, "_MOST_BYTES", 2 * answers._ENTRY_BYTES + 10)
    for _ in range(5):
        book.ask(new_id())
    assert len(book.answers) == 2


def test_an_error_leaves_no_answer(book):
    def fail():
        raise ZeroDivisionError

    request = EvictPrefixesRequest(request_id=new_id())
    with pytest.raises(ZeroDivisionError):
        book.answers.once("me", request, fail)
    assert len(book.answers) == 0
