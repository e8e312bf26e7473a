from radixkv.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PinAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PIN_ACTION_UNSPECIFIED: _ClassVar[PinAction]
    PIN_ACTION_RELEASE: _ClassVar[PinAction]
    PIN_ACTION_MOVE: _ClassVar[PinAction]
PIN_ACTION_UNSPECIFIED: PinAction
PIN_ACTION_RELEASE: PinAction
PIN_ACTION_MOVE: PinAction

class MatchPrefixRequest(_message.Message):
    __slots__ = ("namespace", "sequences", "want_slots", "lease_id", "leave_last_token", "request_id", "expected_epoch", "probe")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    WANT_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    LEAVE_LAST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    namespace: _types_pb2.Namespace
    sequences: _containers.RepeatedCompositeFieldContainer[_types_pb2.TokenSequence]
    want_slots: bool
    lease_id: int
    leave_last_token: bool
    request_id: str
    expected_epoch: int
    probe: bool
    def __init__(self, namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[_types_pb2.TokenSequence, _Mapping]]] = ..., want_slots: bool = ..., lease_id: _Optional[int] = ..., leave_last_token: bool = ..., request_id: _Optional[str] = ..., expected_epoch: _Optional[int] = ..., probe: bool = ...) -> None: ...

class MatchPrefixResponse(_message.Message):
    __slots__ = ("header", "matches")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    matches: _containers.RepeatedCompositeFieldContainer[PrefixMatch]
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., matches: _Optional[_Iterable[_Union[PrefixMatch, _Mapping]]] = ...) -> None: ...

class PrefixMatch(_message.Message):
    __slots__ = ("matched_length", "slots", "pin_id")
    MATCHED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    matched_length: int
    slots: bytes
    pin_id: int
    def __init__(self, matched_length: _Optional[int] = ..., slots: _Optional[bytes] = ..., pin_id: _Optional[int] = ...) -> None: ...

class AllocateSlotsRequest(_message.Message):
    __slots__ = ("num_slots", "lease_id", "request_id", "expected_epoch")
    NUM_SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    num_slots: int
    lease_id: int
    request_id: str
    expected_epoch: int
    def __init__(self, num_slots: _Optional[int] = ..., lease_id: _Optional[int] = ..., request_id: _Optional[str] = ..., expected_epoch: _Optional[int] = ...) -> None: ...

class AllocateSlotsResponse(_message.Message):
    __slots__ = ("header", "slots", "num_evicted")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUM_EVICTED_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    slots: bytes
    num_evicted: int
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., slots: _Optional[bytes] = ..., num_evicted: _Optional[int] = ...) -> None: ...

class FreeSlotsRequest(_message.Message):
    __slots__ = ("slots", "lease_id", "expected_epoch", "request_id")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    slots: bytes
    lease_id: int
    expected_epoch: int
    request_id: str
    def __init__(self, slots: _Optional[bytes] = ..., lease_id: _Optional[int] = ..., expected_epoch: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class FreeSlotsResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class InsertPrefixRequest(_message.Message):
    __slots__ = ("namespace", "inserts", "lease_id", "request_id", "expected_epoch")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    INSERTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    namespace: _types_pb2.Namespace
    inserts: _containers.RepeatedCompositeFieldContainer[PrefixInsert]
    lease_id: int
    request_id: str
    expected_epoch: int
    def __init__(self, namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., inserts: _Optional[_Iterable[_Union[PrefixInsert, _Mapping]]] = ..., lease_id: _Optional[int] = ..., request_id: _Optional[str] = ..., expected_epoch: _Optional[int] = ...) -> None: ...

class PrefixInsert(_message.Message):
    __slots__ = ("sequence", "slots", "pin_id", "pin_action", "priority")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    PIN_ACTION_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    sequence: _types_pb2.TokenSequence
    slots: bytes
    pin_id: int
    pin_action: PinAction
    priority: int
    def __init__(self, sequence: _Optional[_Union[_types_pb2.TokenSequence, _Mapping]] = ..., slots: _Optional[bytes] = ..., pin_id: _Optional[int] = ..., pin_action: _Optional[_Union[PinAction, str]] = ..., priority: _Optional[int] = ...) -> None: ...

class InsertPrefixResponse(_message.Message):
    __slots__ = ("header", "results")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    results: _containers.RepeatedCompositeFieldContainer[PrefixInserted]
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., results: _Optional[_Iterable[_Union[PrefixInserted, _Mapping]]] = ...) -> None: ...

class PrefixInserted(_message.Message):
    __slots__ = ("existing_length", "cached_length", "replacements", "pin_id")
    EXISTING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CACHED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    REPLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    existing_length: int
    cached_length: int
    replacements: bytes
    pin_id: int
    def __init__(self, existing_length: _Optional[int] = ..., cached_length: _Optional[int] = ..., replacements: _Optional[bytes] = ..., pin_id: _Optional[int] = ...) -> None: ...

class ReleasePinsRequest(_message.Message):
    __slots__ = ("pin_ids", "lease_id")
    PIN_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    pin_ids: _containers.RepeatedScalarFieldContainer[int]
    lease_id: int
    def __init__(self, pin_ids: _Optional[_Iterable[int]] = ..., lease_id: _Optional[int] = ...) -> None: ...

class ReleasePinsResponse(_message.Message):
    __slots__ = ("header", "num_released")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NUM_RELEASED_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    num_released: int
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., num_released: _Optional[int] = ...) -> None: ...

class EvictPrefixesRequest(_message.Message):
    __slots__ = ("num_tokens", "request_id", "prefix", "namespace")
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    num_tokens: int
    request_id: str
    prefix: _types_pb2.TokenSequence
    namespace: _types_pb2.Namespace
    def __init__(self, num_tokens: _Optional[int] = ..., request_id: _Optional[str] = ..., prefix: _Optional[_Union[_types_pb2.TokenSequence, _Mapping]] = ..., namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ...) -> None: ...

class EvictPrefixesResponse(_message.Message):
    __slots__ = ("header", "num_evicted")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NUM_EVICTED_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    num_evicted: int
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., num_evicted: _Optional[int] = ...) -> None: ...
