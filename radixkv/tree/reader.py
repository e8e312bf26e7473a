"""Reads token ids and slots into int32 arrays, whatever the caller has."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from radixkv.arguments import as_flag
from radixkv.arrays import EMPTY, INT32_MAX, Int32Array
from radixkv.errors import InvalidSlotsError, InvalidTokensError
from radixkv.tree.content import NO_CONTENT, Content, read_content

# Also any CPU tensor: whatever NumPy can read through the array protocol.
TokenIds: TypeAlias = (
    "Sequence[int] | bytes | bytearray | memoryview | array[int] | NDArray[Any] | Any"
)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads token ids and slots, the common kinds as fast as its core can.

    read_ids: the ids of a list, tuple or int array; None: NumPy has to read it (or refuse it).
    copy_ids: the same, copied as `copy_token_ids` does.
    append_ids: the same, written to an array from a position on, and how many they are; None also
    where they do not fit.
    read_message_ids: see `radixkv.tree.tokens`.
    """

    read_ids: Callable[[object], Int32Array | None]
    copy_ids: Callable[[object], tuple[Int32Array, int] | None]
    append_ids: Callable[[object, Int32Array, int], int | None]
    read_message_ids: Callable[[bytes, int, int], list[Int32Array] | None]

    def token_ids(self, values: TokenIds, name: str = "token_ids") -> Int32Array:
        """`values` as int32 of shape (n,), every id from 0 to 2**31 - 1.

        int32 buffers are read in place; `bytes` are little-endian int32; other integers are
        converted. Raises InvalidTokensError naming the first bad position. Cost: O(n).
        """
        ids = self.read_ids(values)
        return _as_int32(values, name, InvalidTokensError) if ids is None else ids

    def copy_token_ids(self, values: TokenIds) -> tuple[Int32Array, int]:
        """A copy of `token_ids(values)` in an array with room for more, and how many they are.

        Raises InvalidTokensError. Cost: O(n).
        """
        copied = self.copy_ids(values)
        if copied is not None:
            return copied
        ids = _as_int32(values, "token_ids", InvalidTokensError)
        buffer = np.empty(len(ids) + len(ids) // 4 + 16, np.int32)
        buffer[: len(ids)] = ids
        return buffer, len(ids)

    def slots(self, values: TokenIds, name: str = "slots") -> Int32Array:
        """As `token_ids`; raises InvalidSlotsError."""
        slots = self.read_ids(values)
        return _as_int32(values, name, InvalidSlotsError) if slots is None else slots

    def token_ids_once(self, values: TokenIds, checked: bool) -> Int32Array:
        """`token_ids(values)`; as they are if they were `checked` before."""
        return values if checked and is_read(values) else self.token_ids(values)

    def slots_once(self, values: TokenIds, checked: bool) -> Int32Array:
        """`slots(values)`; as they are if they were `checked` before."""
        return values if checked and is_read(values) else self.slots(values)

    def key(
        self, token_ids: TokenIds, content: Content, checked: bool
    ) -> tuple[Int32Array, Content]:
        """`token_ids` and the spans inside them; both as they are if they were `checked` before.

        Raises InvalidTokensError, InvalidContentError, InvalidArgumentError for another `checked`.
        """
        trusted = checked is not False and as_flag(checked, "checked")
        tokens = self.token_ids_once(token_ids, trusted)
        if content is NO_CONTENT:
            return tokens, NO_CONTENT
        return tokens, read_content(content, len(tokens), trusted)

    def keys(self, prompts: Sequence[TokenIds], checked: bool) -> Sequence[Int32Array]:
        """`prompts`; as they are if they were `checked` before."""
        if checked is False or not as_flag(checked, "checked"):
            return self.prompts(prompts)
        if isinstance(prompts, list | tuple) and all(map(is_read, prompts)):
            return prompts
        return self.prompts(prompts)

    def prompts(self, values: Sequence[TokenIds]) -> list[Int32Array]:
        """`token_ids` of each prompt; an error names the prompt by its number.

        Any iterable will do. Raises InvalidTokensError.
        """
        try:
            prompts = iter(values)
        except TypeError:
            raise InvalidTokensError(
                f"prompts must be a sequence of prompts; got {type(values).__name__}", value=values
            ) from None
        read: list[Int32Array] = []
        for at, prompt in enumerate(prompts):
            ids = self.read_ids(prompt)
            read.append(
                _as_int32(prompt, f"prompts[{at}]", InvalidTokensError) if ids is None else ids
            )
        return read


def is_read(ids: TokenIds) -> TypeGuard[Int32Array]:
    """Whether it is what a `Reader` gives."""
    return type(ids) is np.ndarray and ids.ndim == 1 and ids.dtype == np.int32


_BOOLS = {bool, np.bool_}


def _read_nothing(*values: object) -> None:
    return None


# All through NumPy.
PYTHON_READER = Reader(_read_nothing, _read_nothing, _read_nothing, _read_nothing)


def _as_int32(
    values: Any, name: str, error: type[InvalidTokensError] | type[InvalidSlotsError]
) -> Int32Array:
    if isinstance(values, bytes | bytearray):
        if len(values) % 4:
            raise error(
                f"{name} must have a multiple of 4 bytes; got {len(values)} bytes", size=len(values)
            )
        values = np.frombuffer(values, "<i4")
    out = _to_array(values, name, error)
    if out.ndim != 1:
        raise error(f"{name} must have one dimension; got shape {out.shape}", shape=out.shape)
    if not out.size:
        return EMPTY
    if out.dtype.kind not in "iu":
        _name_bad_item(values, name, error, f"dtype {out.dtype}")
    # int32 has nothing above the range, and is most of what comes.
    if out.min() < 0 or (out.dtype != np.int32 and out.max() > INT32_MAX):
        at = int(np.argmax((out < 0) | (out > INT32_MAX)))
        raise error(
            f"{name}[{at}] must be an int from 0 to 2**31 - 1; got {int(out[at])}",
            index=at,
            value=int(out[at]),
        )
    return np.ascontiguousarray(out, np.int32)


def _to_array(
    values: Any, name: str, error: type[InvalidTokensError] | type[InvalidSlotsError]
) -> NDArray[Any]:
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise error(f"{name} must be a sequence of ints; got {type(values).__name__}", value=values)
    # NumPy reads a bool among ints as 0 or 1.
    if isinstance(values, list | tuple) and not _BOOLS.isdisjoint(map(type, values)):
        _name_bad_item(values, name, error, "bools")
    try:
        return np.asarray(values)
    except (ValueError, OverflowError, TypeError, RuntimeError):
        _name_bad_item(values, name, error, "items that are not ints")


def _name_bad_item(
    values: Any,
    name: str,
    error: type[InvalidTokensError] | type[InvalidSlotsError],
    otherwise: str,
) -> NoReturn:
    if isinstance(values, list | tuple):
        for at, value in enumerate(values):
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise error(
                    f"{name}[{at}] must be an int from 0 to 2**31 - 1; "
                    f"got {value!r} ({type(value).__name__})",
                    index=at,
                    value=value,
                )
            if not 0 <= value <= INT32_MAX:
                raise error(
                    f"{name}[{at}] must be an int from 0 to 2**31 - 1; got {value}",
                    index=at,
                    value=value,
                )
    raise error(f"{name} must be int32; got {otherwise}")
