"""Where a row of a gateway, a proxy or a batch file has its request, and where its response."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from radixkv.prompts import fields
from radixkv.prompts.fields import Row

_REQUESTS = ("body", "request", "request.body", "request_body", "requestBody", "payload", "params",
             "kwargs", "request_args", "input", "data")  # fmt: skip
_RESPONSES = ("response", "response.body", "response_body", "responseBody", "result", "output")


def request_of(row: Row, is_request: Callable[[Row], bool]) -> Row | None:
    """The row, or the object inside it, that is a request; None where neither is."""
    return next((each for each in _objects(row, _REQUESTS) if is_request(each)), None)


def with_responses(row: Row) -> Iterator[Row]:
    """The row and the objects inside it that may be the response, the innermost first."""
    return reversed([*_objects(row, _RESPONSES)])


def _objects(row: Row, paths: tuple[str, ...]) -> Iterator[Row]:
    yield row
    for path in paths:
        found = as_object(fields.find(row, path))
        if found is not None:
            yield found
            # GuideLLM keeps how a request was sent as text, and the request as its body.
            if (body := as_object(found.get("body"))) is not None:
                yield body


def as_object(value: Any) -> Row | None:
    """An object, or JSON of one in a string, as gateways store bodies."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None
