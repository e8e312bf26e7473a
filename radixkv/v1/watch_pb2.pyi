from radixkv.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchRequest(_message.Message):
    __slots__ = ("start_revision", "epoch", "namespace", "snapshot", "progress_notify")
    START_REVISION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_NOTIFY_FIELD_NUMBER: _ClassVar[int]
    start_revision: int
    epoch: int
    namespace: _types_pb2.Namespace
    snapshot: bool
    progress_notify: bool
    def __init__(self, start_revision: _Optional[int] = ..., epoch: _Optional[int] = ..., namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., snapshot: bool = ..., progress_notify: bool = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("header", "events", "snapshot", "snapshot_done", "more")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_DONE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    events: _containers.RepeatedCompositeFieldContainer[Event]
    snapshot: bool
    snapshot_done: bool
    more: bool
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., snapshot: bool = ..., snapshot_done: bool = ..., more: bool = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("revision", "stored", "trimmed", "cleared")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    revision: int
    stored: Stored
    trimmed: Trimmed
    cleared: Cleared
    def __init__(self, revision: _Optional[int] = ..., stored: _Optional[_Union[Stored, _Mapping]] = ..., trimmed: _Optional[_Union[Trimmed, _Mapping]] = ..., cleared: _Optional[_Union[Cleared, _Mapping]] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("run", "parent_run", "parent_offset", "tokens", "namespace", "run_offset")
    RUN_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_FIELD_NUMBER: _ClassVar[int]
    PARENT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    RUN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    run: int
    parent_run: int
    parent_offset: int
    tokens: bytes
    namespace: _types_pb2.Namespace
    run_offset: int
    def __init__(self, run: _Optional[int] = ..., parent_run: _Optional[int] = ..., parent_offset: _Optional[int] = ..., tokens: _Optional[bytes] = ..., namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., run_offset: _Optional[int] = ...) -> None: ...

class Trimmed(_message.Message):
    __slots__ = ("run", "keep")
    RUN_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    run: int
    keep: int
    def __init__(self, run: _Optional[int] = ..., keep: _Optional[int] = ...) -> None: ...

class Cleared(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
