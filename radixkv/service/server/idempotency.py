"""Replies to requests with a request id: a request that is repeated gets its first reply again."""

import hashlib
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from google.protobuf.message import Message

from radixkv.errors import InvalidArgumentError, RequestIdReusedError

_LONGEST_AGE_S = 600.0
_MOST, _MOST_BYTES = 65_536, 32 << 20
_ENTRY_BYTES = 512  # what an entry costs besides its reply, roughly

ResponseMessage = TypeVar("ResponseMessage", bound=Message)

# The caller, the type of the request, its id.
_Key: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class Reply(Generic[ResponseMessage]):
    """The reply to one request. message: None until there is one.

    key, digest: of the request, where it has an id.
    """

    message: ResponseMessage | None = None
    key: _Key | None = None
    digest: bytes = b""


class _Entry(NamedTuple):
    replied_at: float
    digest: bytes
    message: Any
    size: int


class Replies:
    """Replies of the last ten minutes, bounded by number and bytes.

    Of too many the oldest of the caller with the most bytes goes, so that no caller pushes out what
    others may ask for again.
    is_void: whether the reply to a request means nothing now, because its lease or epoch is over.
    """

    def __init__(
        self, is_void: Callable[[Any, Any], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_void, self._clock = is_void, clock
        self._of: dict[str, OrderedDict[_Key, _Entry]] = {}  # by caller
        self._bytes_of: Counter[str] = Counter()
        self._num_entries = 0

    def __len__(self) -> int:
        return self._num_entries

    def find(
        self, caller: str, request: Any, response_type: type[ResponseMessage]
    ) -> Reply[ResponseMessage]:
        """The first reply to the same request of the same caller, or an empty one.

        Raises RequestIdReusedError for another payload under the same id, InvalidArgumentError for
        an id that is not a UUID.
        """
        if not request.request_id:
            return Reply()
        _check_id(request.request_id)
        key = (caller, request.DESCRIPTOR.full_name, request.request_id)
        digest = hashlib.blake2b(request.SerializeToString(deterministic=True)).digest()
        self._drop_old(caller)
        kept = self._of.get(caller)
        entry = None if kept is None else kept.get(key)
        if entry is None:
            return Reply(None, key, digest)
        if self._is_void(request, entry.message):
            self._drop(key)
            return Reply(None, key, digest)
        if entry.digest != digest:
            raise RequestIdReusedError(
                f"request_id must be new for each request; got {request.request_id}, which came "
                "before with another request",
                request_id=request.request_id,
            )
        return Reply(entry.message, key, digest)

    def keep(self, reply: Reply[Any]) -> None:
        """Keep a reply, for repeated requests. Errors are not kept: they changed nothing."""
        if reply.key is None or reply.message is None:
            return
        caller, *_ = reply.key
        entries = self._of.setdefault(caller, OrderedDict())
        if reply.key in entries:
            return
        size = reply.message.ByteSize() + _ENTRY_BYTES
        entries[reply.key] = _Entry(self._clock(), reply.digest, reply.message, size)
        self._bytes_of[caller] += size
        self._num_entries += 1
        while self._num_entries > _MOST or self._bytes_of.total() > _MOST_BYTES:
            ((largest, _),) = self._bytes_of.most_common(1)
            self._drop(next(iter(self._of[largest])))

    def _drop(self, key: _Key) -> None:
        caller, *_ = key
        self._bytes_of[caller] -= self._of[caller].pop(key).size
        self._num_entries -= 1
        if not self._of[caller]:
            del self._of[caller], self._bytes_of[caller]

    def _drop_old(self, caller: str) -> None:
        end = self._clock() - _LONGEST_AGE_S
        while entries := self._of.get(caller):
            key, entry = next(iter(entries.items()))
            if entry.replied_at > end:
                return
            self._drop(key)


def _check_id(request_id: str) -> None:
    try:
        uuid.UUID(request_id)
    except ValueError:
        raise InvalidArgumentError(
            "request_id must be a UUID, or empty; got other text", field="request_id"
        ) from None
