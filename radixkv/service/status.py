"""Errors on the wire: one table, read by the server in one direction, by the client in the other.

A refused call carries google.rpc.Status with an ErrorInfo (`reason`, domain "radixkv", the error's
details as metadata), and a BadRequest where one field is to blame. What is not in the table is a
bug: INTERNAL, without the exception's text.
"""

from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from radixkv import errors
from radixkv.errors import RadixKVError, ServiceError

DOMAIN = "radixkv"

# One row an error: its class, which knows its reason, and its gRPC code.
TABLE: dict[type[RadixKVError], int] = {
    errors.InvalidArgumentError: code_pb2.INVALID_ARGUMENT,
    errors.InvalidTokensError: code_pb2.INVALID_ARGUMENT,
    errors.InvalidContentError: code_pb2.INVALID_ARGUMENT,
    errors.InvalidNamespaceError: code_pb2.INVALID_ARGUMENT,
    errors.BatchTooLargeError: code_pb2.INVALID_ARGUMENT,
    errors.MessageTooLargeError: code_pb2.INVALID_ARGUMENT,
    errors.EpochMismatchError: code_pb2.FAILED_PRECONDITION,
    errors.UnsupportedError: code_pb2.UNIMPLEMENTED,
    errors.DeadlineExceededError: code_pb2.DEADLINE_EXCEEDED,
    errors.ServiceUnavailableError: code_pb2.UNAVAILABLE,
}
_CLASSES = {error.reason: error for error in TABLE}
# What the runtime itself answers, without an ErrorInfo.
_OF_RUNTIME: dict[grpc.StatusCode, type[ServiceError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.ServiceUnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ServiceUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnsupportedError,
}
# Trailing metadata has room for 8 KiB.
_LONGEST_MESSAGE, _LONGEST_VALUE = 1000, 200


def to_status(error: Exception) -> status_pb2.Status:
    """What a client is told of `error`."""
    if not isinstance(error, RadixKVError) or error.reason not in _CLASSES:
        return _status(code_pb2.INTERNAL, "internal error; the server's log has it", "INTERNAL", {})
    code = TABLE[_CLASSES[error.reason]]
    return _status(code, str(error)[:_LONGEST_MESSAGE], error.reason, error.details)


def _status(code: int, message: str, reason: str, details: dict[str, Any]) -> status_pb2.Status:
    metadata = {key: str(value)[:_LONGEST_VALUE] for key, value in details.items()}
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
    status = status_pb2.Status(code=code, message=message, details=[_any(info)])
    if "field" in details:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=details["field"], description=message, reason=reason
        )
        status.details.append(_any(error_details_pb2.BadRequest(field_violations=[violation])))
    return status


def _any(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def to_error(call: Any, target: str) -> RadixKVError:
    """The library's own error for a failed call, `call` being what gRPC raised."""
    info = _error_info(call)
    message = call.details() or call.code().name
    if info is None:
        return _runtime_error(call.code(), f"{target}: {message}")
    error = _CLASSES.get(info.reason, ServiceError)(message)
    error.details = {key: _value(text) for key, text in info.metadata.items()}
    error.details |= {"code": call.code().name, "reason": info.reason}
    return error


def _error_info(call: Any) -> error_details_pb2.ErrorInfo | None:
    status = rpc_status.from_call(call)
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status else ():
        if detail.Unpack(info) and info.domain == DOMAIN:
            return info
    return None


def _value(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _runtime_error(code: grpc.StatusCode, message: str) -> RadixKVError:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in message:
        return errors.MessageTooLargeError(message, code=code.name)
    return _OF_RUNTIME.get(code, ServiceError)(message, code=code.name, reason=code.name)
