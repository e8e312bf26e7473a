"""What is told of calls: a structured line for each that failed, and figures for whoever counts.

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

from radixkv.rpc.call import Call
from radixkv.rpc.tracing import Tracer

logger = logging.getLogger(__name__)


class Figures(Protocol):
    """What counts calls; see `metrics.py`."""

    def begun(self, method: str) -> None:
        """A call began."""

    def ended(self, method: str, code: str, duration_s: float) -> None:
        """A call ended."""

    def waited(self, duration_s: float) -> None:
        """A call waited for the writer."""


@dataclass(slots=True)
class Seen:
    """How a call ended. error: what it failed with, as it was raised."""

    status: Status
    error: Exception | None = None


class Observer:
    """Watches calls from their first byte to their last."""

    def __init__(self, figures: Figures | None = None, tracer: Tracer | None = None) -> None:
        self._figures, self._tracer = figures, tracer

    def waited(self, duration_s: float) -> None:
        """A call waited for the writer."""
        if self._figures is not None:
            self._figures.waited(duration_s)

    @contextmanager
    def call(self, call: Call, context: Any) -> Iterator[Seen]:
        """Around a call; what is set in the `Seen` is told at its end."""
        seen = Seen(Status(code=code_pb2.CANCELLED))
        began = time.perf_counter()
        if self._figures is not None:
            self._figures.begun(call.rpc.path)
        try:
            with self._span(call, context, seen):
                yield seen
                if seen.error is None:
                    seen.status.code = code_pb2.OK
        finally:
            self._ended(call, context, seen, time.perf_counter() - began)

    @contextmanager
    def _span(self, call: Call, context: Any, seen: Seen) -> Iterator[None]:
        if self._tracer is None:
            yield
            return
        with self._tracer.span(call.rpc.path, context.invocation_metadata()) as span:
            try:
                yield
            finally:
                reason = None if seen.error is None else getattr(seen.error, "reason", "INTERNAL")
                self._tracer.ended(span, seen.status.code, reason)

    def _ended(self, call: Call, context: Any, seen: Seen, duration_s: float) -> None:
        code = code_pb2.Code.Name(seen.status.code)
        if self._figures is not None:
            self._figures.ended(call.rpc.path, code, duration_s)
        if seen.error is None:
            return
        fields = {
            "method": call.rpc.path,
            "code": code,
            "reason": getattr(seen.error, "reason", "INTERNAL"),
            "caller": call.caller.name,
            "request_id": call.request_id,
            "peer": context.peer(),
            "ms": round(1000 * duration_s, 3),
        }
        if seen.status.code == code_pb2.INTERNAL:
            logger.error("%s failed", call.rpc.path, exc_info=seen.error, extra=fields)
        else:
            logger.info("%s refused: %s", call.rpc.path, fields["reason"], extra=fields)
