"""Errors on the wire: one table, read by the server in one direction, by the client in the other.

A refused call carries google.rpc.Status with an ErrorInfo (`reason`, domain "radixkv", the error's
details as metadata), and what the table adds to it. What is not in the table is a bug:
INTERNAL, without the exception's text.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from radixkv import errors
from radixkv.errors import RadixKVError, ServiceError
from radixkv.rpc.unreachable import is_unreachable, why

DOMAIN = "radixkv"
# Trailing metadata has room for 8 KiB.
_LONGEST_MESSAGE, _LONGEST_VALUE = 1000, 200

Detail = Callable[[RadixKVError, str], Any]


class Row(NamedTuple):
    """code: of gRPC. detail: makes what goes with the ErrorInfo."""

    code: int
    detail: Detail | None = None


def _bad_request(error: RadixKVError, message: str) -> Any:
    """The field that is wrong, if the error names it."""
    if "field" not in error.details:
        return None
    violation = error_details_pb2.BadRequest.FieldViolation(
        field=error.details["field"], description=message, reason=error.reason
    )
    return error_details_pb2.BadRequest(field_violations=[violation])


def _precondition(error: RadixKVError, message: str) -> Any:
    violation = error_details_pb2.PreconditionFailure.Violation(
        type=error.reason, subject=DOMAIN, description=message
    )
    return error_details_pb2.PreconditionFailure(violations=[violation])


def _resource(error: RadixKVError, message: str) -> Any:
    (kind, name), *_ = error.details.items() or [("resource", "")]
    return error_details_pb2.ResourceInfo(
        resource_type=f"radixkv.{kind}", resource_name=str(name), description=message
    )


def _retry(error: RadixKVError, _: str) -> Any:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromMilliseconds(round(1000 * error.details.get("retry_after_s", 1)))
    return info


def _debug(error: RadixKVError, _: str) -> Any:
    """The broken invariants, where the error lists them."""
    lines = error.details.get("violations")
    return error_details_pb2.DebugInfo(stack_entries=lines) if lines else None


_INVALID = Row(code_pb2.INVALID_ARGUMENT, _bad_request)

# One row an error: its class, which knows its reason, its gRPC code, and what goes with it.
TABLE: dict[type[RadixKVError], Row] = {
    errors.InvalidArgumentError: _INVALID,
    errors.InvalidTokensError: _INVALID,
    errors.InvalidContentError: _INVALID,
    errors.InvalidSlotsError: _INVALID,
    errors.InvalidNamespaceError: _INVALID,
    errors.BatchTooLargeError: _INVALID,
    errors.MessageTooLargeError: _INVALID,
    errors.PromptTooLongError: _INVALID,
    errors.RequestIdReusedError: _INVALID,
    errors.LeaseTtlError: _INVALID,
    errors.LeaseNotFoundError: Row(code_pb2.NOT_FOUND, _resource),
    errors.PinNotFoundError: Row(code_pb2.NOT_FOUND, _resource),
    errors.SlotNotAllocatedError: Row(code_pb2.FAILED_PRECONDITION, _precondition),
    errors.LiveRequestsError: Row(code_pb2.FAILED_PRECONDITION, _precondition),
    errors.StaleWeightsError: Row(code_pb2.FAILED_PRECONDITION, _precondition),
    errors.EpochMismatchError: Row(code_pb2.FAILED_PRECONDITION),
    errors.OutOfSlotsError: Row(code_pb2.RESOURCE_EXHAUSTED, _retry),
    errors.OutOfMemoryError: Row(code_pb2.RESOURCE_EXHAUSTED, _retry),
    errors.OverloadedError: Row(code_pb2.RESOURCE_EXHAUSTED, _retry),
    errors.HistoryLostError: Row(code_pb2.OUT_OF_RANGE),
    errors.RevisionInFutureError: Row(code_pb2.OUT_OF_RANGE),
    errors.WatcherTooSlowError: Row(code_pb2.OUT_OF_RANGE),
    errors.UnsupportedError: Row(code_pb2.UNIMPLEMENTED),
    errors.DeadlineExceededError: Row(code_pb2.DEADLINE_EXCEEDED),
    errors.ServiceUnavailableError: Row(code_pb2.UNAVAILABLE),
    errors.NoWorkersError: Row(code_pb2.UNAVAILABLE, _retry),
    errors.DrainingError: Row(code_pb2.UNAVAILABLE, _retry),
    errors.UnauthenticatedError: Row(code_pb2.UNAUTHENTICATED),
    errors.ForbiddenError: Row(code_pb2.PERMISSION_DENIED),
    errors.CacheCorruptedError: Row(code_pb2.DATA_LOSS, _debug),
}
_CLASSES = {error.reason: error for error in TABLE}
# How gRPC begins its text where it never reached the server.
_NEVER_THERE = re.compile("failed to connect to all addresses|DNS resolution failed")
# Errors of the gRPC runtime itself, without an ErrorInfo.
_OF_RUNTIME: dict[grpc.StatusCode, type[ServiceError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.ServiceUnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ServiceUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnsupportedError,
    grpc.StatusCode.UNAUTHENTICATED: errors.UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: errors.ForbiddenError,
}


def to_status(error: Exception) -> status_pb2.Status:
    """The status with which a call fails for `error`."""
    if not isinstance(error, RadixKVError) or error.reason not in _CLASSES:
        message, info = "internal error; the server's log has it", _info("INTERNAL", {})
        return status_pb2.Status(code=code_pb2.INTERNAL, message=message, details=[_any(info)])
    row, message = TABLE[_CLASSES[error.reason]], str(error)[:_LONGEST_MESSAGE]
    detail = row.detail(error, message) if row.detail else None
    info = _info(error.reason, {k: v for k, v in error.details.items() if k != "violations"})
    details = [info, *([detail] if detail else [])]
    return status_pb2.Status(code=row.code, message=message, details=map(_any, details))


def _info(reason: str, details: dict[str, Any]) -> error_details_pb2.ErrorInfo:
    metadata = {key: str(value)[:_LONGEST_VALUE] for key, value in details.items()}
    return error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)


def _any(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def to_error(call: Any, target: str) -> RadixKVError:
    """The library's own error for a failed call, `call` being what gRPC raised."""
    info = _error_info(call)
    message = call.details() or call.code().name
    if info is None:
        return _runtime_error(call.code(), target, message)
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


def _value(text: str) -> str | int | float:
    if text.isdecimal():
        return int(text)
    whole, _, fraction = text.partition(".")
    return float(text) if whole.isdecimal() and fraction.isdecimal() else text


def _runtime_error(code: grpc.StatusCode, target: str, message: str) -> RadixKVError:
    details: dict[str, Any] = {"code": code.name, "reason": code.name, "target": target}
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in message:
        return errors.MessageTooLargeError(f"{target}: {message}", **details)
    if code is grpc.StatusCode.UNAVAILABLE and _NEVER_THERE.search(message):
        details["is_unreachable"] = is_unreachable(message)
        message = f"no server answers at {target}: {why(message)}"
        return errors.ServiceUnavailableError(message, **details)
    return _OF_RUNTIME.get(code, ServiceError)(f"{target}: {message}", **details)
