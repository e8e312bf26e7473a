"""What was answered: a request that is repeated under its id gets its first answer again."""

import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from radixkv.errors import InvalidArgumentError, RequestIdReusedError

Response = TypeVar("Response", bound=Message)

_LONGEST_AGE_S = 600.0
_MOST, _MOST_BYTES = 65_536, 32 << 20
_ENTRY_BYTES = 512  # what an entry costs beside its answer, roughly


class _Entry(NamedTuple):
    answered_at: float
    digest: bytes
    response: Any
    size: int


class Answers:
    """Bounded by age, number and bytes; the oldest go first.

    is_void: whether the answer to a request means nothing any more, because its lease or its epoch
    is over.
    """

    def __init__(
        self, is_void: Callable[[Any, Any], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_void, self._clock = is_void, clock
        self._entries: OrderedDict[tuple[str, str, str], _Entry] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def once(self, caller: str, request: Any, make: Callable[[], Response]) -> Response:
        """What `make` gives, or the first answer to the same request of the same caller.

        Errors are not kept: they changed nothing. Raises RequestIdReusedError for another payload
        under the same id, InvalidArgumentError for an id that is no UUID.
        """
        if not request.request_id:
            return make()
        _check_id(request.request_id)
        key = (caller, request.DESCRIPTOR.full_name, request.request_id)
        digest = hashlib.blake2b(request.SerializeToString(deterministic=True)).digest()
        self._drop_old()
        entry = self._entries.get(key)
        if entry is not None and self._is_void(request, entry.response):
            self._drop(key)
        elif entry is not None:
            if entry.digest != digest:
                raise RequestIdReusedError(
                    f"request_id {request.request_id} came before with another request",
                    request_id=request.request_id,
                )
            response: Response = entry.response
            return response
        response = make()
        self._keep(key, _Entry(self._clock(), digest, response, response.ByteSize()))
        return response

    def _keep(self, key: tuple[str, str, str], entry: _Entry) -> None:
        self._entries[key] = entry
        self._bytes += entry.size + _ENTRY_BYTES
        while len(self._entries) > _MOST or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str, str]) -> None:
        self._bytes -= self._entries.pop(key).size + _ENTRY_BYTES

    def _drop_old(self) -> None:
        end = self._clock() - _LONGEST_AGE_S
        while self._entries and next(iter(self._entries.values())).answered_at <= end:
            self._drop(next(iter(self._entries)))


def _check_id(request_id: str) -> None:
    try:
        uuid.UUID(request_id)
    except ValueError:
        raise InvalidArgumentError(
            "request_id is no UUID; it takes one, or none", field="request_id"
        ) from None
