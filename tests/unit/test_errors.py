"""Every error says what happened, carries its values and has a name that stays."""

import copy
import inspect
import pickle
from typing import Any

import pytest

from radixkv import Namespace, errors, new_tree
from radixkv.errors import InvalidArgumentError, RadixKVError
from radixkv.memory import ReqToTokenPool, new_allocator

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, RadixKVError)
]


@pytest.mark.parametrize("error", CLASSES)
def test_an_error_is_one_of_ours_and_says_what_it_means(error):
    assert issubclass(error, RadixKVError)
    assert error.__doc__
    assert error.__doc__.strip().endswith(".")
    assert error.reason
    assert error.reason == error.reason.upper()


def test_no_two_errors_have_one_reason():
    reasons = [error.reason for error in CLASSES]
    assert len(set(reasons)) == len(reasons)


def test_a_wrong_argument_is_also_a_value_error():
    wrong = {error for error in CLASSES if issubclass(error, ValueError)}
    assert wrong == {error for error in CLASSES if issubclass(error, InvalidArgumentError)}


@pytest.mark.parametrize("error", CLASSES)
def test_an_error_keeps_its_message_and_details(error):
    raised = error("slot 7 is free already", slot=7, name="x")
    assert str(raised) == "slot 7 is free already"
    assert raised.details == {"slot": 7, "name": "x"}
    assert error("no more to say").details == {}


@pytest.mark.parametrize("error", CLASSES)
@pytest.mark.parametrize(
    "send", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy]
)
def test_an_error_crosses_a_process_border(error, send):
    back = send(error("slot 7 is free already", slot=7))
    assert type(back) is error
    assert (str(back), back.details, back.reason) == (
        "slot 7 is free already", {"slot": 7}, error.reason
    )  # fmt: skip


TEXT: Any = "tenant"
BYTES: Any = b"x"

# What is done, the value that the message names, and what it says would be right.
CALLS = {
    "a tree of page size 0": (lambda: new_tree(page_size=0), "0", "at least 1"),
    "a tree without a policy": (lambda: new_tree(policy="arc"), "'arc'", "lru, lfu"),
    "a tree without a core": (lambda: new_tree(core="rust"), "'rust'", '"python"'),
    "a negative token": (lambda: new_tree().probe([1, -3]), "-3", "0 to 2**31 - 1"),
    "a slot for no token": (lambda: new_tree().insert([1], [2, 3]), "got 2", "one for each"),
    "a span behind the end": (
        lambda: new_tree().probe([1], content=[(0, 7, b"x")]), "0 to 7", "inside the 1 tokens"
    ),
    "an eviction of -1": (lambda: new_tree().evict(-1), "-1", "at least 0"),
    "a salt of bytes": (lambda: Namespace(salt=BYTES), "b'x'", "a str or None"),
    "a namespace of text": (lambda: new_tree().probe([1], TEXT), "'tenant'", "Namespace"),
    "a pool of -4 slots": (lambda: new_allocator(-4), "-4", "a positive multiple"),
    "a free of slot 0": (lambda: new_allocator(4).free([0]), "slots must be from 1 to 4", "got 0"),
    "a pool of 0 rows": (lambda: ReqToTokenPool(0, 4), "0", "at least 1"),
    "a free of row 9": (lambda: ReqToTokenPool(2, 4).free(9), "row must be held", "0 to 1; got 9"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "value", "right"), CALLS.values(), ids=CALLS)
def test_a_wrong_argument_is_named_with_what_would_be_right(call, value, right):
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert value in str(caught.value)
    assert right in str(caught.value)
