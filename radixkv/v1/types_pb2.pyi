from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResponseHeader(_message.Message):
    __slots__ = ("epoch", "revision")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    revision: int
    def __init__(self, epoch: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class TokenSequence(_message.Message):
    __slots__ = ("packed", "ids", "content")
    PACKED_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    packed: bytes
    ids: _containers.RepeatedScalarFieldContainer[int]
    content: _containers.RepeatedCompositeFieldContainer[ContentSpan]
    def __init__(self, packed: _Optional[bytes] = ..., ids: _Optional[_Iterable[int]] = ..., content: _Optional[_Iterable[_Union[ContentSpan, _Mapping]]] = ...) -> None: ...

class ContentSpan(_message.Message):
    __slots__ = ("start", "length", "id")
    START_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    start: int
    length: int
    id: bytes
    def __init__(self, start: _Optional[int] = ..., length: _Optional[int] = ..., id: _Optional[bytes] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ("salt", "adapter", "extra_key", "weight_version")
    SALT_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    EXTRA_KEY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    salt: str
    adapter: str
    extra_key: str
    weight_version: int
    def __init__(self, salt: _Optional[str] = ..., adapter: _Optional[str] = ..., extra_key: _Optional[str] = ..., weight_version: _Optional[int] = ...) -> None: ...
