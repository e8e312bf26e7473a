from radixkv.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AddWorkerRequest(_message.Message):
    __slots__ = ("worker", "address")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    address: str
    def __init__(self, worker: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class AddWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveWorkerRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class RemoveWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PickRequest(_message.Message):
    __slots__ = ("namespace", "sequences", "loads", "keys", "finished_pick_ids", "cost", "prompts")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_PICK_IDS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    namespace: _types_pb2.Namespace
    sequences: _containers.RepeatedCompositeFieldContainer[_types_pb2.TokenSequence]
    loads: _containers.RepeatedCompositeFieldContainer[WorkerLoad]
    keys: _containers.RepeatedScalarFieldContainer[str]
    finished_pick_ids: _containers.RepeatedScalarFieldContainer[int]
    cost: float
    prompts: _containers.RepeatedCompositeFieldContainer[ModelPrompt]
    def __init__(self, namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[_types_pb2.TokenSequence, _Mapping]]] = ..., loads: _Optional[_Iterable[_Union[WorkerLoad, _Mapping]]] = ..., keys: _Optional[_Iterable[str]] = ..., finished_pick_ids: _Optional[_Iterable[int]] = ..., cost: _Optional[float] = ..., prompts: _Optional[_Iterable[_Union[ModelPrompt, _Mapping]]] = ...) -> None: ...

class ModelPrompt(_message.Message):
    __slots__ = ("text", "chat")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    text: str
    chat: bytes
    def __init__(self, text: _Optional[str] = ..., chat: _Optional[bytes] = ...) -> None: ...

class WorkerLoad(_message.Message):
    __slots__ = ("worker", "load")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    worker: str
    load: float
    def __init__(self, worker: _Optional[str] = ..., load: _Optional[float] = ...) -> None: ...

class PickResponse(_message.Message):
    __slots__ = ("picks",)
    PICKS_FIELD_NUMBER: _ClassVar[int]
    picks: _containers.RepeatedCompositeFieldContainer[Pick]
    def __init__(self, picks: _Optional[_Iterable[_Union[Pick, _Mapping]]] = ...) -> None: ...

class Pick(_message.Message):
    __slots__ = ("worker", "matched_length", "best_length", "reason", "pick_id", "prompt_length")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MATCHED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    BEST_LENGTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PICK_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    worker: str
    matched_length: int
    best_length: int
    reason: str
    pick_id: int
    prompt_length: int
    def __init__(self, worker: _Optional[str] = ..., matched_length: _Optional[int] = ..., best_length: _Optional[int] = ..., reason: _Optional[str] = ..., pick_id: _Optional[int] = ..., prompt_length: _Optional[int] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("namespace", "sequence", "prompt")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    namespace: _types_pb2.Namespace
    sequence: _types_pb2.TokenSequence
    prompt: ModelPrompt
    def __init__(self, namespace: _Optional[_Union[_types_pb2.Namespace, _Mapping]] = ..., sequence: _Optional[_Union[_types_pb2.TokenSequence, _Mapping]] = ..., prompt: _Optional[_Union[ModelPrompt, _Mapping]] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("matches",)
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[WorkerMatch]
    def __init__(self, matches: _Optional[_Iterable[_Union[WorkerMatch, _Mapping]]] = ...) -> None: ...

class WorkerMatch(_message.Message):
    __slots__ = ("worker", "matched_length")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    MATCHED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    worker: str
    matched_length: int
    def __init__(self, worker: _Optional[str] = ..., matched_length: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers", "policy", "distinct_tokens", "num_parity_checks", "num_parity_faults")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    DISTINCT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PARITY_CHECKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PARITY_FAULTS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    policy: str
    distinct_tokens: int
    num_parity_checks: int
    num_parity_faults: int
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., policy: _Optional[str] = ..., distinct_tokens: _Optional[int] = ..., num_parity_checks: _Optional[int] = ..., num_parity_faults: _Optional[int] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker", "address", "applied", "num_tokens", "silent_s", "state", "load", "lag_revisions", "trust", "is_here", "last_error", "num_unknown_changes", "work_tokens")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    LAG_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    IS_HERE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    NUM_UNKNOWN_CHANGES_FIELD_NUMBER: _ClassVar[int]
    WORK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    address: str
    applied: _types_pb2.ResponseHeader
    num_tokens: int
    silent_s: float
    state: str
    load: float
    lag_revisions: int
    trust: float
    is_here: bool
    last_error: str
    num_unknown_changes: int
    work_tokens: float
    def __init__(self, worker: _Optional[str] = ..., address: _Optional[str] = ..., applied: _Optional[_Union[_types_pb2.ResponseHeader, _Mapping]] = ..., num_tokens: _Optional[int] = ..., silent_s: _Optional[float] = ..., state: _Optional[str] = ..., load: _Optional[float] = ..., lag_revisions: _Optional[int] = ..., trust: _Optional[float] = ..., is_here: bool = ..., last_error: _Optional[str] = ..., num_unknown_changes: _Optional[int] = ..., work_tokens: _Optional[float] = ...) -> None: ...
