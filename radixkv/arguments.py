"""Checks of the numbers that callers give. NumPy's ints are ints; bools are not."""

from collections.abc import Iterable
from math import inf
from typing import Any, TypeVar

import numpy as np

from radixkv.errors import InvalidArgumentError

T = TypeVar("T")


def at_least(low: int, **named: int) -> int:
    """The one value of `named` as an int of at least `low`; InvalidArgumentError otherwise."""
    ((name, value),) = named.items()
    if type(value) is int and value >= low:
        return value
    if not is_int(value) or value < low:
        raise InvalidArgumentError(
            f"{name} must be an int of at least {low}; got {value!r}", **{name: value}
        )
    return int(value)


def between(low: int, high: int, **named: int) -> int:
    """The one value of `named` as an int from `low` to `high`; InvalidArgumentError otherwise."""
    ((name, value),) = named.items()
    if type(value) is int and low <= value <= high:
        return value
    if not is_int(value) or not low <= value <= high:
        raise InvalidArgumentError(
            f"{name} must be an int from {low} to {high}; got {value!r}", **{name: value}
        )
    return int(value)


def is_int(value: object) -> bool:
    """Whether it is an int, of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_int(value: Any, name: str) -> int:
    """`value` as an int; InvalidArgumentError if it is not an int."""
    if not is_int(value):
        raise InvalidArgumentError(f"{name} must be an int; got {value!r}")
    return int(value)


def as_priority(value: Any) -> int:
    """`value` as an int32, which a priority is on the wire; InvalidArgumentError otherwise."""
    return between(-(2**31), 2**31 - 1, priority=value)


def as_flag(value: Any, name: str) -> bool:
    """`value` as a bool; InvalidArgumentError for all but True and False.

    What else has a truth, or has none, as arrays, is more likely to stand in a wrong place.
    """
    if value is True or value is False:
        return bool(value)
    if not isinstance(value, np.bool_):
        raise InvalidArgumentError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def as_text(value: Any, name: str) -> str:
    """`value`, a str that UTF-8 can hold; InvalidArgumentError otherwise."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} must be a str; got {value!r}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"{name} must be text without lone surrogates; got {value!r}"
            ) from None
    return value


def as_number(value: Any, name: str, *, least: float = 0.0, most: float = inf) -> float:
    """`value`, a number from `least` to `most`; InvalidArgumentError otherwise."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if not is_number or isinstance(value, bool) or not least <= value <= most:
        raise InvalidArgumentError(
            f"{name} must be a number from {least:g} to {most:g}; got {value!r}"
        )
    return float(value)


def as_ids(values: Iterable[int], name: str) -> list[int]:
    """`values` as a list of ints that a message holds; InvalidArgumentError otherwise."""
    try:
        ids = list(values)
    except TypeError:
        raise InvalidArgumentError(f"{name} must be a sequence of ints; got {values!r}") from None
    for each in ids:
        if not is_int(each) or not 0 <= each < 2**64:
            raise InvalidArgumentError(f"{name} must be ints from 0 to 2**64 - 1; got {each!r}")
    return ids


def list_of(kind: type[T], values: Iterable[T], name: str) -> list[T]:
    """`values` as a list; InvalidArgumentError unless each is a `kind`."""
    try:
        given = list(values)
    except TypeError:
        given = [values]  # type: ignore[list-item]
    for each in given:
        if not isinstance(each, kind):
            raise InvalidArgumentError(f"{name} must be of type {kind.__name__}; got {each!r}")
    return given


def check_whole_pages(length: int, page_size: int) -> None:
    """Raises InvalidArgumentError for a part of a page."""
    if length % page_size:
        raise InvalidArgumentError(
            f"token_ids must be whole pages of {page_size}; got {length} tokens"
        )


def check_page_size(page_size: object) -> None:
    """Raises InvalidArgumentError unless it is an int of at least 1, and of no other type."""
    if type(page_size) is not int or page_size < 1:
        raise InvalidArgumentError(f"page_size must be an int of at least 1; got {page_size!r}")
