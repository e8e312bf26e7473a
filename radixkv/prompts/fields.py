"""Fields of one line of a log, checked: an error names the field and what would be right."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeAlias

from radixkv.arrays import Int32Array
from radixkv.errors import InvalidTokensError
from radixkv.tree import as_token_ids

_BETWEEN_BRACKETS = re.compile(r"\[\d+\]")
Row: TypeAlias = Mapping[str, Any]
TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class FieldError(Exception):
    """A field of a line that cannot be read.

    reason: the problem without what differs from line to line, to count lines by.
    """

    def __init__(self, field: str, problem: str, reason: str | None = None) -> None:
        super().__init__(field, problem)
        self.field, self.problem = field, problem
        self.reason = _BETWEEN_BRACKETS.sub("[]", reason or problem)


def find(row: Row, path: str) -> Any:
    """The value at a path such as `meta.tenant`; None where it is missing."""
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def first_of(row: Row, *paths: str) -> str | None:
    """The first of `paths` at which the row has a value."""
    return next((path for path in paths if find(row, path) is not None), None)


def text(row: Row, path: str) -> str:
    """Text that can be encoded, not empty."""
    value = find(row, path)
    if not isinstance(value, str) or not value:
        wrong(path, value, "text that is not empty")
    return encodable(path, value)


def texts(row: Row, path: str) -> list[str]:
    """A list of text, or a text alone; empty where the field is missing."""
    value = find(row, path)
    found = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        wrong(path, value, "a list of text")
    return [encodable(path, each) for each in found]


def token_ids(row: Row, path: str) -> Int32Array:
    """Token ids, at least one."""
    ids = _as_ids(path, find(row, path))
    if not len(ids):
        wrong(path, [], "at least one token id")
    return ids


def lists_of_ids(row: Row, path: str) -> list[Int32Array]:
    """A list of lists of token ids, or one list of ids; empty where the field is missing."""
    value = find(row, path)
    if not isinstance(value, list):
        return [] if value is None else wrong(path, value, "a list of lists of token ids")
    return [_as_ids(path, each) for each in (value if _is_nested(value) else [value])]


def label(row: Row, path: str | None) -> str | None:
    """A name: text, or a number or truth value as JSON writes it; None where it is missing."""
    value = find(row, path) if path else None
    if value is None or isinstance(value, str):
        return None if value is None else encodable(path or "", value)
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return wrong(path or "", value, "text or a number")


def count(row: Row, path: str, *, low: int) -> int:
    """An int from `low` to 2**31 - 1; in a CSV it is text, and may end in .0."""
    value = find(row, path)
    text = str(value).strip()
    try:
        number = int(text.removesuffix(".0"))
    except ValueError:
        number = -1
    if not low <= number < 2**31:
        wrong(path, value, f"an int from {low} to 2**31 - 1")
    return number


def seconds(row: Row, path: str | None, unit: str | None = None) -> float | None:
    """A number of `unit`, or a date and time in ISO 8601, as seconds; dates count from 1970 (UTC).

    unit: of `TIME_UNITS`; None: seconds, but what would lie after the year 5000 is a time since
    1970 in ms, us or ns.
    """
    value = find(row, path) if path else None
    if value is None or value == "":
        return None
    number = _as_seconds(value, unit)
    if number is None or not math.isfinite(number):
        wrong(path or "", value, "a number, or a date and time as in 2026-01-31T12:00:00Z")
    return number


def wrong(path: str, value: Any, right: str) -> NoReturn:
    """Raises FieldError."""
    if value is None:
        raise FieldError(path, f"{path} must be {right}; it is missing")
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    raise FieldError(path, f"{path} must be {right}; got {shown}", f"{path} must be {right}")


def _as_seconds(value: Any, unit: str | None) -> float | None:
    if isinstance(value, bool):
        return None
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        return number / (TIME_UNITS[unit] if unit else _likely_unit(number))
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def _likely_unit(number: float) -> float:
    """How many a second: 1e11 s is the year 5138, 1e11 ms is 1973."""
    return next((each for each in (1e9, 1e6, 1e3) if 1e8 * each <= abs(number) < 1e10 * each), 1)


def _as_ids(path: str, value: Any) -> Int32Array:
    if not isinstance(value, list):
        wrong(path, value, "a list of token ids")
    # NumPy would take truth values among ints as 0 and 1.
    if bool in map(type, value):
        at = [*map(type, value)].index(bool)
        wrong(f"{path}[{at}]", value[at], "a token id")
    try:
        return as_token_ids(value, path)
    except InvalidTokensError as error:
        raise FieldError(path, str(error)) from None


def _is_nested(value: list[Any]) -> bool:
    return not value or isinstance(value[0], list)


def encodable(path: str, value: str) -> str:
    """The same text. Raises FieldError for half a surrogate pair, which no encoding has."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        problem = f"{path} must be text; got half a surrogate pair"
        raise FieldError(path, f"{problem} at {error.start}", problem) from None
    return value
