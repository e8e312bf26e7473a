"""Token ids and slots as int32 arrays, whatever the caller has."""

from array import array
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from radixkv.errors import InvalidArgumentError, InvalidSlotsError, InvalidTokensError

Int32Array: TypeAlias = NDArray[np.int32]
# Also any CPU tensor: whatever NumPy can read through the array protocol.
TokenIds: TypeAlias = (
    "Sequence[int] | bytes | bytearray | memoryview | array[int] | NDArray[Any] | Any"
)

INT32_MAX = 2**31 - 1
EMPTY: Int32Array = np.empty(0, np.int32)
EMPTY.flags.writeable = False


def _read_nothing(*values: object) -> None:
    return None


# What reads ids faster than NumPy, or answers None; the native core brings both.
read_ids: Callable[[object], Int32Array | None] = _read_nothing
# (message, field of its sequences, field of their packed ids) -> the ids of each.
read_message_ids: Callable[[bytes, int, int], list[Int32Array] | None] = _read_nothing


def as_token_ids(values: TokenIds, name: str = "token_ids") -> Int32Array:
    """`values` as int32 of shape (n,), every id from 0 to 2**31 - 1.

    int32 buffers are read in place; `bytes` are little-endian int32; other integers are converted.
    Raises InvalidTokensError naming the first bad position.
    """
    return _as_int32(values, name, InvalidTokensError)


def as_prompts(values: Sequence[TokenIds]) -> list[Int32Array]:
    """`as_token_ids` of each prompt, which an error names by its number."""
    return [
        as_token_ids(prompt, f"prompts[{at}]") if ids is None else ids
        for at, (prompt, ids) in enumerate(zip(values, map(read_ids, values), strict=True))
    ]


def as_slots(values: TokenIds, name: str = "slots") -> Int32Array:
    """`values` as int32 of shape (n,), every slot from 0 to 2**31 - 1; see `as_token_ids`."""
    return _as_int32(values, name, InvalidSlotsError)


def as_int(value: Any, name: str) -> int:
    """`value` as an int; InvalidArgumentError for what is none."""
    try:
        return index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} is {value!r}; it takes an int") from None


def _as_int32(
    values: Any, name: str, error: type[InvalidTokensError] | type[InvalidSlotsError]
) -> Int32Array:
    read = read_ids(values)
    if read is not None:
        return read
    if isinstance(values, bytes | bytearray):
        if len(values) % 4:
            raise error(
                f"{name} has {len(values)} bytes; int32 takes a multiple of 4", size=len(values)
            )
        values = np.frombuffer(values, "<i4")
    out = _to_array(values, name, error)
    if out.ndim != 1:
        raise error(f"{name} has shape {out.shape}; it takes one dimension", shape=out.shape)
    if not out.size:
        return EMPTY
    if out.dtype.kind not in "iu":
        _name_bad_item(values, name, error, f"dtype {out.dtype}")
    # int32 has nothing above the range, and is most of what comes.
    if out.min() < 0 or (out.dtype != np.int32 and out.max() > INT32_MAX):
        at = int(np.argmax((out < 0) | (out > INT32_MAX)))
        raise error(
            f"{name}[{at}] is {int(out[at])}; it takes 0 to 2**31 - 1", index=at, value=int(out[at])
        )
    return np.ascontiguousarray(out, np.int32)


def _to_array(
    values: Any, name: str, error: type[InvalidTokensError] | type[InvalidSlotsError]
) -> NDArray[Any]:
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise error(f"{name} is {type(values).__name__}; it takes a sequence of ints", value=values)
    try:
        return np.asarray(values)
    except (ValueError, OverflowError, TypeError, RuntimeError):
        _name_bad_item(values, name, error, "items that are no ints")


def _name_bad_item(
    values: Any,
    name: str,
    error: type[InvalidTokensError] | type[InvalidSlotsError],
    otherwise: str,
) -> NoReturn:
    if isinstance(values, list | tuple):
        for at, value in enumerate(values):
            if not isinstance(value, int | np.integer):
                raise error(
                    f"{name}[{at}] is {value!r} ({type(value).__name__}); "
                    "it takes an int from 0 to 2**31 - 1",
                    index=at,
                    value=value,
                )
            if not 0 <= value <= INT32_MAX:
                raise error(
                    f"{name}[{at}] is {value}; it takes 0 to 2**31 - 1", index=at, value=value
                )
    raise error(f"{name} has {otherwise}; it takes int32")
