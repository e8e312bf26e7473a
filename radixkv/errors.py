"""Every error radixkv raises on purpose.

    RadixKVError
    ├── InvalidArgumentError (a ValueError too) the caller passed something that can never work
    │   ├── InvalidTokensError                  token ids of a wrong type, rank or range
    │   ├── InvalidContentError                 content spans that overlap or leave the prompt
    │   ├── InvalidSlotsError                   slots of a wrong type, number or range
    │   ├── InvalidNamespaceError               a namespace field of a wrong type
    │   ├── PromptTooLongError                  longer than the pool or a row can ever hold
    │   ├── InvalidLogError                     a log of requests that cannot be read
    │   ├── BatchTooLargeError                  more prompts than one call may hold
    │   └── MessageTooLargeError                more bytes than one message may have
    ├── SlotNotAllocatedError                   freeing a slot that is free already
    ├── StaleHandleError                        a handle of another tree, epoch or an evicted node
    ├── NotLockedError                          dec_lock_ref without inc_lock_ref
    ├── RequestEndedError                       a finished, aborted or retracted request went on
    ├── LiveRequestsError                       reset while requests hold the cache
    ├── StaleWeightsError                       a namespace of other weights than the present ones
    ├── EpochMismatchError                      the cache began anew since the caller last looked
    ├── HistoryLostError                        events from before what the log keeps
    ├── CoreUnavailableError                    the native core was asked for and is not built
    ├── BackendUnavailableError                 a package or device is missing for what was asked
    └── ServiceError                            what a radixkv service answered
        ├── ServiceUnavailableError             no answer: unreachable, draining or overloaded
        ├── DeadlineExceededError               no answer in the time allowed
        ├── UnsupportedError                    a request this server does not serve
        ├── ListenError                         a server cannot listen where it was told to
        └── ForkedProcessError                  gRPC used on both sides of a fork

Each carries `reason` (a stable name, also on the wire) and `details` (the values in the message).
"""

from typing import Any, ClassVar


class RadixKVError(Exception):
    """Base of every error of radixkv."""

    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


class InvalidArgumentError(RadixKVError, ValueError):
    """An argument that can never work; the message names it and what would be right."""

    reason = "INVALID_ARGUMENT"


class InvalidTokensError(InvalidArgumentError):
    """Token ids are integers from 0 to 2**31 - 1 in one dimension."""

    reason = "INVALID_TOKENS"


class InvalidContentError(InvalidArgumentError):
    """Content spans are (start, length, id) inside the prompt, in order and apart."""

    reason = "INVALID_CONTENT"


class InvalidSlotsError(InvalidArgumentError):
    """Slots are int32 indices into the pool, one a token."""

    reason = "SLOT_COUNT_MISMATCH"


class InvalidNamespaceError(InvalidArgumentError):
    """A namespace has text fields (or None) and a weight version of 0 or more."""

    reason = "INVALID_NAMESPACE"


class InvalidLogError(InvalidArgumentError):
    """A log of requests cannot be read; the message has the file, the line and the field."""

    reason = "INVALID_LOG"


class PromptTooLongError(InvalidArgumentError):
    """More tokens than the pool or a row of `req_to_token` can ever hold."""

    reason = "PROMPT_TOO_LONG"


class BatchTooLargeError(InvalidArgumentError):
    """A call holds 1 to `max_batch_sequences` prompts; split it."""

    reason = "BATCH_TOO_LARGE"


class MessageTooLargeError(InvalidArgumentError):
    """A message, or the answer it asks for, would pass `max_message_bytes`; split the call."""

    reason = "MESSAGE_TOO_LARGE"


class SlotNotAllocatedError(RadixKVError):
    """A slot was freed that nobody holds."""

    reason = "SLOT_NOT_OWNED"


class StaleHandleError(RadixKVError):
    """The handle belongs to another tree, to the time before a reset, or to evicted tokens."""

    reason = "STALE_HANDLE"


class NotLockedError(RadixKVError):
    """The handle is not locked, so it cannot be unlocked."""

    reason = "NOT_LOCKED"


class RequestEndedError(RadixKVError):
    """The request has ended; only `admit(..., resume=request)` brings a retracted one back."""

    reason = "REQUEST_ENDED"


class LiveRequestsError(RadixKVError):
    """Live requests hold what would be forgotten; finish them or force."""

    reason = "PREFIX_PINNED"


class StaleWeightsError(RadixKVError):
    """The namespace names other weights than those being served."""

    reason = "STALE_WEIGHTS"


class EpochMismatchError(RadixKVError):
    """The cache is in another epoch: what the caller knows of it is void."""

    reason = "EPOCH_MISMATCH"


class HistoryLostError(RadixKVError):
    """The log no longer (or not yet) has those revisions; take a snapshot."""

    reason = "REVISION_COMPACTED"


class CoreUnavailableError(RadixKVError):
    """The native core was asked for where it is not built."""

    reason = "CORE_UNAVAILABLE"


class BackendUnavailableError(RadixKVError):
    """A package or device that was asked for is missing; the message says how to get it."""

    reason = "BACKEND_UNAVAILABLE"


class ServiceError(RadixKVError):
    """A radixkv service refused or failed a call; `details` has its code and reason."""

    reason = "SERVICE"


class ServiceUnavailableError(ServiceError):
    """No answer from the service: it is unreachable, draining or overloaded. Safe to retry."""

    reason = "UNAVAILABLE"


class UnsupportedError(ServiceError):
    """The server does not serve this request."""

    reason = "UNSUPPORTED"


class DeadlineExceededError(ServiceError):
    """The answer did not come in the time allowed; whether the call took effect is unknown."""

    reason = "DEADLINE_EXCEEDED"


class ListenError(ServiceError):
    """The address is taken, malformed, or open to the network without leave."""

    reason = "CANNOT_LISTEN"


class ForkedProcessError(ServiceError):
    """gRPC does not survive a fork: open clients and servers in the child only, or spawn it."""

    reason = "FORKED_PROCESS"
