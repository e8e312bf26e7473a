"""Every error radixkv raises on purpose.

    RadixKVError
    ├── InvalidArgumentError (a ValueError too) the caller passed something that can never work
    │   ├── InvalidTokensError                  token ids of a wrong type, rank or range
    │   ├── InvalidContentError                 content spans that overlap or lie outside the prompt
    │   ├── InvalidSlotsError                   slots of a wrong type, number or range
    │   ├── InvalidNamespaceError               a namespace field of a wrong type
    │   ├── PromptTooLongError                  longer than the pool or a row can ever hold
    │   ├── InvalidLogError                     a log of requests that cannot be read
    │   ├── BatchTooLargeError                  more prompts than one call may hold
    │   ├── MessageTooLargeError                more bytes than one message may have
    │   ├── LeaseTtlError                       a lease shorter or longer than the server grants
    │   └── RequestIdReusedError                one request id on two different requests
    ├── SlotNotAllocatedError                   a slot that the caller does not hold
    ├── OutOfSlotsError                         not that many slots are free or evictable now
    ├── OutOfMemoryError (a MemoryError too)    a call found no memory, and changed nothing
    ├── LeaseNotFoundError                      a lease that has ended or never existed
    │   └── LeaseExpiredError                   it may have ended by the holder's own clock
    ├── PinNotFoundError                        a pin that was dropped or never existed
    ├── CacheCorruptedError                     an invariant of the cache is broken
    ├── ReentrantCallError                      a call in the middle of another of its thread
    ├── StaleHandleError                        a handle of another tree, epoch or an evicted node
    ├── NotLockedError                          dec_lock_ref without inc_lock_ref
    ├── RequestEndedError                       a call for a finished, aborted or retracted request
    ├── LiveRequestsError                       reset while requests hold the cache
    ├── StaleWeightsError                       a namespace of other weights than the ones served
    ├── EpochMismatchError                      the cache was reset since the caller last looked
    ├── HistoryLostError                        events older than what the log keeps
    │   ├── RevisionInFutureError               events that have not happened yet
    │   └── WatcherTooSlowError                 a watcher fell behind what the log keeps
    ├── NoWorkersError                          a router has no worker to pick
    ├── ModelOutputError                        a model gave logits that are not numbers
    ├── CoreUnavailableError                    the native core was asked for and is not built
    ├── BackendUnavailableError                 a package or device is missing for what was asked
    └── ServiceError                            an error that a radixkv service answered
        ├── ServiceUnavailableError             no answer: unreachable, draining or overloaded
        │   ├── DrainingError                   the server is shutting down
        │   └── OverloadedError                 the server has too many calls, leases or pins
        ├── UnauthenticatedError                no token, or an unknown one
        ├── ForbiddenError                      the token is not for this call or namespace
        ├── DeadlineExceededError               no answer in the time allowed
        ├── UnsupportedError                    a request that this server does not support
        ├── ListenError                         a server cannot listen at the address given
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
    """A message, or its answer, would be longer than `max_message_bytes`; split the call."""

    reason = "MESSAGE_TOO_LARGE"


class LeaseTtlError(InvalidArgumentError):
    """A lease lives from 1 s to the server's `max_lease_ttl`."""

    reason = "LEASE_TTL_OUT_OF_RANGE"


class RequestIdReusedError(InvalidArgumentError):
    """A request id names one request; another one takes another id."""

    reason = "REQUEST_ID_REUSED"


class SlotNotAllocatedError(RadixKVError):
    """A slot that the caller does not hold: it is free, cached, or held by someone else."""

    reason = "SLOT_NOT_OWNED"


class OutOfSlotsError(RadixKVError):
    """Fewer slots than asked for are free or evictable now; wait, or free some."""

    reason = "OUT_OF_SLOTS"


class OutOfMemoryError(RadixKVError, MemoryError):
    """The native core found no memory for a call, which changed nothing; it may be made again."""

    reason = "OUT_OF_MEMORY"


class LeaseNotFoundError(RadixKVError):
    """The lease expired, was revoked or never existed; what it held is gone. Grant another."""

    reason = "LEASE_NOT_FOUND"


class LeaseExpiredError(LeaseNotFoundError):
    """By the holder's own clock the lease may have ended: its slots may belong to others now."""

    reason = "LEASE_EXPIRED"


class PinNotFoundError(RadixKVError):
    """The pin was dropped or never existed; match again."""

    reason = "PIN_NOT_FOUND"


class CacheCorruptedError(RadixKVError):
    """An invariant of the cache is broken: none of its answers can be trusted."""

    reason = "CACHE_CORRUPTED"


class ReentrantCallError(RadixKVError):
    """A signal handler, `KVPool.copy` or a fence called the cache in the middle of a call."""

    reason = "REENTRANT_CALL"


class StaleHandleError(RadixKVError):
    """The handle is of another tree, from before a reset, or of evicted tokens."""

    reason = "STALE_HANDLE"


class NotLockedError(RadixKVError):
    """The handle is not locked, so there is nothing to unlock."""

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
    """The cache is in another epoch: what the caller knows about it is out of date."""

    reason = "EPOCH_MISMATCH"


class HistoryLostError(RadixKVError):
    """The log no longer (or not yet) has those revisions; take a snapshot."""

    reason = "REVISION_COMPACTED"


class RevisionInFutureError(HistoryLostError):
    """That revision has not happened: a caller that knows of it knows another cache."""

    reason = "REVISION_IN_FUTURE"


class WatcherTooSlowError(HistoryLostError):
    """The watcher reads slower than the cache changes; resume after `last_revision`."""

    reason = "WATCHER_TOO_SLOW"


class NoWorkersError(RadixKVError):
    """The router knows no worker, or the caller allows none."""

    reason = "NO_WORKERS"


class ModelOutputError(RadixKVError):
    """A model gave logits that are not numbers, so its K/V may be none either; nothing of that is
    cached."""

    reason = "MODEL_OUTPUT"


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


class DrainingError(ServiceUnavailableError):
    """The server is shutting down; another replica, or the same one later, answers."""

    reason = "DRAINING"


class OverloadedError(ServiceUnavailableError):
    """The server is at one of its limits; try again after `retry_after_s`."""

    reason = "OVERLOADED"


class UnauthenticatedError(ServiceError):
    """The call carries no token, or an unknown one."""

    reason = "UNAUTHENTICATED"


class ForbiddenError(ServiceError):
    """The token is good, but not for this call or this namespace."""

    reason = "FORBIDDEN"


class UnsupportedError(ServiceError):
    """The server does not serve this request."""

    reason = "UNSUPPORTED"


class DeadlineExceededError(ServiceError):
    """The answer did not come in the time allowed; whether the call took effect is unknown."""

    reason = "DEADLINE_EXCEEDED"


class ListenError(ServiceError):
    """The address is taken or malformed, or would be open to the network without permission."""

    reason = "CANNOT_LISTEN"


class ForkedProcessError(ServiceError):
    """gRPC does not survive a fork: open clients and servers in the child only, or spawn it."""

    reason = "FORKED_PROCESS"
