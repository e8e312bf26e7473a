"""Values that a caller may hand over by mistake, by what they are given for."""

from typing import Any

import numpy as np

from radixkv import Namespace, PrefixCache
from radixkv.cache.request import Request

OBJECT = object()
MATRIX = np.zeros((2, 2), np.int32)
SCALAR = np.array(3)
NAN, INFINITE = float("nan"), float("inf")
# What is neither a number, nor text, nor a collection that anything here takes.
STRANGE = [OBJECT, 1j, SCALAR, MATRIX, np.array([1, None], object), np.array([1], "M8[s]"), type]
NUMBERS = [1.5, NAN, INFINITE, np.float32(1), True, np.bool_(True)]
TEXTS = ["x", "", b"ab", "\ud800"]
COLLECTIONS: list[Any] = [[], [1], (), {}, {1: 2}, set(), [None], [[1]]]


def generator() -> Any:
    """Numbers, once: made anew for each call, as it is used up by one."""
    return (number for number in (1, 2))


FOREIGN = PrefixCache(8, core="python").admit([1, 2])

ODD: dict[str, list[Any]] = {
    "tokens": [None, 3, *NUMBERS, "x", "", b"abc", *STRANGE, {1: 2}, set(), generator, [None],
               [1.5], ["a"], [-1], [2**31], [10**30], [True], [np.bool_(True)], [[1]],
               np.array([1.5]), np.array([True]), np.array([-1]), np.array([2**31])],
    "slots": [None, 3, *NUMBERS, "x", b"abc", *STRANGE, {1: 2}, set(), generator, [None], [1.5],
              ["a"], [-1], [2**31], [10**30], [[1]], np.array([1.5]), np.array([-1])],
    "prompts": [None, 3, *NUMBERS, OBJECT, 1j, SCALAR, "x", b"ab", [3], ["a"], [None], [[1.5]],
                [[-1]], [[2**31]], [[1], [True]], [MATRIX]],
    "client prompts": [None, 3, *NUMBERS, OBJECT, 1j, SCALAR, "x", b"abc", [], ["a"], [None],
                       [-1], [True], [[1.5]], [[-1]], [[1], [True]], [MATRIX], [[]], generator],
    "ids": [None, 3, *NUMBERS, "x", *STRANGE, [None], [1.5], ["a"], [-1], [2**64], [True], [[1]]],
    "several ids": [(None,), (1, 1.5), ("a",), (-1,), (2**64,), (True,), ([1],)],
    "count": [None, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator, -1, -(2**63) - 1],
    "optional count": [*NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator, -1, -(2**63) - 1],
    "int": [None, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "priority": [None, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, 2**31, -(2**31) - 1],
    "flag": [None, 0, 1, 1.5, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "namespace": [None, 3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, Namespace, generator],
    "optional namespace": [3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, Namespace, generator],
    "content": [None, 3, *NUMBERS, "x", b"ab", *STRANGE, {1: 2}, [None], [1], [(0, 1)],
                [(None, 1, b"x")], [(0, None, b"x")], [(0, 1, "x")], [(0, 1, None)], [(0, 0, b"x")],
                [(-1, 1, b"x")], [(0, 10**30, b"x")], [(0, True, b"x")], [(0.0, 1, b"x")],
                [(0, 1, b"x" * 257)], [(0, 1, b"x"), (0, 1, b"x")], [MATRIX], np.zeros((2, 3))],
    "fence": [3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "request": [None, 3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator, Request, FOREIGN],
    "optional request": [3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, Request, FOREIGN],
    "handle": [None, 3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "optional handle": [3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "object": [None, 3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "optional object": [3, *NUMBERS, *TEXTS, *STRANGE, *COLLECTIONS, generator],
    "optional callable": [3, *NUMBERS, *TEXTS, *STRANGE[:-1], *COLLECTIONS, generator],
    "loads": [3, *NUMBERS, *TEXTS, *STRANGE, [], [1], (), set(), {1: 2}, {"c": 1}, {"a": None},
              {"a": "x"}, {"a": NAN}, {"a": -1}, {"a": INFINITE}, {"a": True}, generator],
    "place": [5, *NUMBERS, "ab", "x", *STRANGE, [], (), (1,), (1, 2, 3), (1.5, 2), (None, 1),
              (True, 1), (2**64, 0), (-1, 5), {1: 2}],
    "client loads": [3, *NUMBERS, *TEXTS, *STRANGE, [], [1], (), set(), {1: 2}, {"a": None},
                     {"a": "x"}, {"a": NAN}, {"a": -1}, {"a": True}, {"\ud800": 1}, generator],
    "shares": [None, 3, *NUMBERS, *TEXTS, *STRANGE, [], [1], (), set(), {1: 2}, {"a": 1}],
    "objects": [None, 3, *NUMBERS, *STRANGE, "x", b"ab", [None], [1], {1: 2}, [[1]]],
    "name": [None, 3, *NUMBERS, *STRANGE, *COLLECTIONS, generator],
    "optional name": [3, *NUMBERS, *STRANGE, *COLLECTIONS, generator],
    "text": [None, 3, *NUMBERS, b"ab", "\ud800", *STRANGE, *COLLECTIONS, generator],
    "optional text": [3, *NUMBERS, b"ab", "\ud800", *STRANGE, *COLLECTIONS, generator],
    "seconds": [None, NAN, INFINITE, -INFINITE, -1, -0.5, True, *TEXTS, *STRANGE, *COLLECTIONS],
    "window": [None, NAN, -1, -0.5, True, *TEXTS, *STRANGE, *COLLECTIONS],
    "optional seconds": [NAN, -1, -0.5, True, *TEXTS, *STRANGE, *COLLECTIONS, generator],
}  # fmt: skip


def given(odd: Any) -> Any:
    """The value as it is handed over."""
    return odd() if odd is generator else odd
