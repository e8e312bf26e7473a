import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from radixkv.v1 import types_pb2 as _types_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("header", "version", "core", "page_size", "num_slots", "max_batch_sequences", "max_message_bytes", "max_lease_ttl", "compact_revision", "start_time", "grpc_version", "pool_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CORE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    COMPACT_REVISION_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    GRPC_VERSION_FIELD_NUMBER: _ClassVar[int]
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    version: str
    core: str
    page_size: int
    num_slots: int
    max_batch_sequences: int
    max_message_bytes: int
    max_lease_ttl: _duration_pb2.Duration
    compact_revision: int
    start_time: _timestamp_pb2.Timestamp
    grpc_version: str
    pool_id: str
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., version: _Optional[str] = ..., core: _Optional[str] = ..., page_size: _Optional[int] = ..., num_slots: _Optional[int] = ..., max_batch_sequences: _Optional[int] = ..., max_message_bytes: _Optional[int] = ..., max_lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., compact_revision: _Optional[int] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., grpc_version: _Optional[str] = ..., pool_id: _Optional[str] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: _types_pb2.Namespace
    def __init__(self, namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("header", "free_slots", "allocated_slots", "evictable_size", "protected_size", "num_nodes", "waiting_slots", "num_pins", "num_leases", "lookup_tokens", "hit_tokens", "evicted_tokens")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATED_SLOTS_FIELD_NUMBER: _ClassVar[int]
    EVICTABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_NODES_FIELD_NUMBER: _ClassVar[int]
    WAITING_SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_PINS_FIELD_NUMBER: _ClassVar[int]
    NUM_LEASES_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EVICTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    free_slots: int
    allocated_slots: int
    evictable_size: int
    protected_size: int
    num_nodes: int
    waiting_slots: int
    num_pins: int
    num_leases: int
    lookup_tokens: int
    hit_tokens: int
    evicted_tokens: int
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., free_slots: _Optional[int] = ..., allocated_slots: _Optional[int] = ..., evictable_size: _Optional[int] = ..., protected_size: _Optional[int] = ..., num_nodes: _Optional[int] = ..., waiting_slots: _Optional[int] = ..., num_pins: _Optional[int] = ..., num_leases: _Optional[int] = ..., lookup_tokens: _Optional[int] = ..., hit_tokens: _Optional[int] = ..., evicted_tokens: _Optional[int] = ...) -> None: ...
