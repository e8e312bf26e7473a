"""Checks of the numbers that callers give. NumPy's ints are ints; bools are not."""

from operator import index
from typing import Any

import numpy as np

from radixkv.errors import InvalidArgumentError


def at_least(low: int, **named: int) -> int:
    """The one value of `named` as an int of at least `low`; InvalidArgumentError otherwise."""
    ((name, value),) = named.items()
    if type(value) is int and value >= low:
        return value
    if not _is_int(value) or value < low:
        raise InvalidArgumentError(
            f"{name} must be an int of at least {low}; got {value!r}", **{name: value}
        )
    return int(value)


def between(low: int, high: int, **named: int) -> int:
    """The one value of `named` as an int from `low` to `high`; InvalidArgumentError otherwise."""
    ((name, value),) = named.items()
    if type(value) is int and low <= value <= high:
        return value
    if not _is_int(value) or not low <= value <= high:
        raise InvalidArgumentError(
            f"{name} must be an int from {low} to {high}; got {value!r}", **{name: value}
        )
    return int(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_int(value: Any, name: str) -> int:
    """`value` as an int; InvalidArgumentError if it is not an int."""
    try:
        return index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} must be an int; got {value!r}") from None


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
