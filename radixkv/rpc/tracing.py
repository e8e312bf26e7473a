"""OpenTelemetry spans of calls, joined over the network by W3C trace context.

Installed with the extra `tracing`; where spans go is set up in the SDK.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from radixkv.extras import missing

_CODE = "rpc.grpc.status_code"


class Tracer:
    """Makes a span of each call. Raises BackendUnavailableError without the package."""

    def __init__(self) -> None:
        try:
            trace: Any = import_module("opentelemetry.trace")
            self._propagate: Any = import_module("opentelemetry.propagate")
        except ImportError as error:
            raise missing("tracing", "opentelemetry-api", "tracing") from error
        self._trace, self._tracer = trace, trace.get_tracer("radixkv")

    @contextmanager
    def span(self, path: str, metadata: Sequence[tuple[str, Any]]) -> Iterator[Any]:
        """Around a call, below the span of the caller."""
        caller = self._propagate.extract(
            {key: value for key, value in metadata if isinstance(value, str)}
        )
        service, method = path[1:].split("/")
        with self._tracer.start_as_current_span(
            path[1:],
            context=caller,
            kind=self._trace.SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        ) as span:
            yield span

    def ended(self, span: Any, code: int, reason: str | None) -> None:
        """How the call ended. reason: of an error."""
        span.set_attribute(_CODE, code)
        if reason is not None:
            span.set_status(self._trace.StatusCode.ERROR, reason)


def trace_context() -> tuple[tuple[str, str], ...]:
    """Metadata with the caller's span; empty where nothing is traced."""
    if "opentelemetry.trace" not in sys.modules:
        return ()
    carrier: dict[str, str] = {}
    propagate: Any = import_module("opentelemetry.propagate")
    propagate.inject(carrier)
    return tuple(carrier.items())
