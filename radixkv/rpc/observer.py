"""Logs and metrics of calls: a structured line for each that failed or was slow, counts of all.

Neither ever has a token id, a salt or a bearer token.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from google.rpc import code_pb2
from google.rpc.status_pb2 import Status

from radixkv.rpc import limits
from radixkv.rpc.call import Call
from radixkv.rpc.tracing import Tracer

logger = logging.getLogger(__name__)


class CallMetrics(Protocol):
    """Counts calls; see `metrics.py`."""

    def begun(self, method: str) -> None:
        """A call began."""

    def ended(self, method: str, code: str, duration_s: float) -> None:
        """A call ended."""

    def waited(self, duration_s: float) -> None:
        """A call waited for the writer."""


@dataclass(slots=True)
class Outcome:
    """How a call ended. error: the exception that it failed with."""

    status: Status
    error: Exception | None = None


class Observer:
    """Observes calls from their first byte to their last."""

    def __init__(self, metrics: CallMetrics | None = None, tracer: Tracer | None = None) -> None:
        self._metrics, self._tracer = metrics, tracer

    def waited(self, duration_s: float) -> None:
        """A call waited for the writer."""
        if self._metrics is not None:
            self._metrics.waited(duration_s)

    @contextmanager
    def call(self, call: Call, context: Any) -> Iterator[Outcome]:
        """Around a call; what is set in the `Outcome` is reported at its end."""
        outcome = Outcome(Status(code=code_pb2.CANCELLED))
        began = time.perf_counter()
        if self._metrics is not None:
            self._metrics.begun(call.rpc.path)
        try:
            with self._span(call, context, outcome):
                yield outcome
                if outcome.error is None:
                    outcome.status.code = code_pb2.OK
        finally:
            self._ended(call, context, outcome, time.perf_counter() - began)

    @contextmanager
    def _span(self, call: Call, context: Any, outcome: Outcome) -> Iterator[None]:
        if self._tracer is None:
            yield
            return
        with self._tracer.span(call.rpc.path, context.invocation_metadata()) as span:
            try:
                yield
            finally:
                reason = (
                    None if outcome.error is None else getattr(outcome.error, "reason", "INTERNAL")
                )
                self._tracer.ended(span, outcome.status.code, reason)

    def _ended(self, call: Call, context: Any, outcome: Outcome, duration_s: float) -> None:
        code = code_pb2.Code.Name(outcome.status.code)
        if self._metrics is not None:
            self._metrics.ended(call.rpc.path, code, duration_s)
        is_slow = duration_s >= limits.SLOW_CALL_S and call.rpc.kind != "stream"
        if outcome.error is None and not is_slow:
            return
        fields = {
            "method": call.rpc.path,
            "code": code,
            "caller": call.caller.name,
            "request_id": call.request_id,
            "peer": context.peer(),
            "ms": round(1000 * duration_s, 3),
        }
        if is_slow:
            logger.warning("%s took %.1f s", call.rpc.path, duration_s, extra=fields)
        if outcome.error is None:
            return
        fields["reason"] = getattr(outcome.error, "reason", "INTERNAL")
        if outcome.status.code == code_pb2.INTERNAL:
            logger.error("%s failed", call.rpc.path, exc_info=outcome.error, extra=fields)
        else:
            logger.info("%s refused: %s", call.rpc.path, fields["reason"], extra=fields)
