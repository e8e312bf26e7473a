import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from radixkv.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lease(_message.Message):
    __slots__ = ("lease_id", "ttl", "remaining", "holder", "num_pins", "num_slots", "pool_id")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    NUM_PINS_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    ttl: _duration_pb2.Duration
    remaining: _duration_pb2.Duration
    holder: str
    num_pins: int
    num_slots: int
    pool_id: str
    def __init__(self, lease_id: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., remaining: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., holder: _Optional[str] = ..., num_pins: _Optional[int] = ..., num_slots: _Optional[int] = ..., pool_id: _Optional[str] = ...) -> None: ...

class GrantLeaseRequest(_message.Message):
    __slots__ = ("ttl", "holder", "request_id", "pool_id", "replaces_pool")
    TTL_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    POOL_ID_FIELD_NUMBER: _ClassVar[int]
    REPLACES_POOL_FIELD_NUMBER: _ClassVar[int]
    ttl: _duration_pb2.Duration
    holder: str
    request_id: str
    pool_id: str
    replaces_pool: bool
    def __init__(self, ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., holder: _Optional[str] = ..., request_id: _Optional[str] = ..., pool_id: _Optional[str] = ..., replaces_pool: bool = ...) -> None: ...

class GrantLeaseResponse(_message.Message):
    __slots__ = ("header", "lease")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    lease: Lease
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class KeepLeaseAliveRequest(_message.Message):
    __slots__ = ("lease_id", "expected_epoch")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    expected_epoch: int
    def __init__(self, lease_id: _Optional[int] = ..., expected_epoch: _Optional[int] = ...) -> None: ...

class KeepLeaseAliveResponse(_message.Message):
    __slots__ = ("header", "lease_id", "ttl")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    lease_id: int
    ttl: _duration_pb2.Duration
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., lease_id: _Optional[int] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RevokeLeaseRequest(_message.Message):
    __slots__ = ("lease_id", "expected_epoch")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    expected_epoch: int
    def __init__(self, lease_id: _Optional[int] = ..., expected_epoch: _Optional[int] = ...) -> None: ...

class RevokeLeaseResponse(_message.Message):
    __slots__ = ("header", "num_pins", "num_slots")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NUM_PINS_FIELD_NUMBER: _ClassVar[int]
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    num_pins: int
    num_slots: int
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., num_pins: _Optional[int] = ..., num_slots: _Optional[int] = ...) -> None: ...

class GetLeaseRequest(_message.Message):
    __slots__ = ("lease_id", "want_holdings")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    WANT_HOLDINGS_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    want_holdings: bool
    def __init__(self, lease_id: _Optional[int] = ..., want_holdings: bool = ...) -> None: ...

class GetLeaseResponse(_message.Message):
    __slots__ = ("header", "lease", "slots", "pin_ids")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PIN_IDS_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    lease: Lease
    slots: bytes
    pin_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., slots: _Optional[bytes] = ..., pin_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ("leases", "next_page_token", "header")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    next_page_token: str
    header: _types_pb2.ResponseHeader
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...
