"""Numbers that callers give, checked alike everywhere: NumPy's ints are ints, bools are not."""

from operator import index
from typing import Any

import numpy as np

from radixkv.errors import InvalidArgumentError


def at_least(low: int, **named: int) -> int:
    """The one value of `named` as an int; InvalidArgumentError names it if it is none or less."""
    ((name, value),) = named.items()
    if type(value) is int and value >= low:
        return value
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise InvalidArgumentError(
            f"{name} is {value!r}; it takes an int of {low} or more", **{name: value}
        )
    return int(value)


def between(low: int, high: int, **named: int) -> int:
    """As `at_least`, and no more than `high`."""
    ((name, value),) = named.items()
    if type(value) is int and low <= value <= high:
        return value
    value = at_least(low, **named)
    if value > high:
        raise InvalidArgumentError(f"{name} is {value}; it takes {low} to {high}", **{name: value})
    return value


def as_int(value: Any, name: str) -> int:
    """`value` as an int; InvalidArgumentError if it is not an int."""
    try:
        return index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} is {value!r}; it takes an int") from None
