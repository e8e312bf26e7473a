from radixkv.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClearCacheRequest(_message.Message):
    __slots__ = ("force", "request_id")
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    force: bool
    request_id: str
    def __init__(self, force: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class ClearCacheResponse(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ...) -> None: ...

class CheckIntegrityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CheckIntegrityResponse(_message.Message):
    __slots__ = ("header", "violations")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    violations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., violations: _Optional[_Iterable[str]] = ...) -> None: ...

class DumpTreeRequest(_message.Message):
    __slots__ = ("namespace", "max_depth", "want_tokens")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    WANT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    namespace: _types_pb2.Namespace
    max_depth: int
    want_tokens: bool
    def __init__(self, namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., max_depth: _Optional[int] = ..., want_tokens: bool = ...) -> None: ...

class DumpTreeResponse(_message.Message):
    __slots__ = ("header", "nodes")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    header: _types_pb2.ResponseHeader
    nodes: _containers.RepeatedCompositeFieldContainer[TreeNode]
    def __init__(self, header: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[TreeNode, _Mapping]]] = ...) -> None: ...

class TreeNode(_message.Message):
    __slots__ = ("node_id", "parent_id", "num_tokens", "lock_ref", "recency", "tokens", "tokens_offset")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOCK_REF_FIELD_NUMBER: _ClassVar[int]
    RECENCY_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    parent_id: int
    num_tokens: int
    lock_ref: int
    recency: int
    tokens: bytes
    tokens_offset: int
    def __init__(self, node_id: _Optional[int] = ..., parent_id: _Optional[int] = ..., num_tokens: _Optional[int] = ..., lock_ref: _Optional[int] = ..., recency: _Optional[int] = ..., tokens: _Optional[bytes] = ..., tokens_offset: _Optional[int] = ...) -> None: ...
