"""Prometheus metrics, on a port of their own: of calls, and of the server's own state."""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from socket import AF_INET, AF_INET6
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from radixkv.errors import ListenError

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The metrics of one server; others may be added to the registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        build = Info("radixkv_build", "Version of radixkv", registry=registry)
        build.info({"version": version("radixkv")})
        self._begun = Counter(
            "radixkv_calls_started",
            "Calls that began",
            ["method"],
            registry=registry,
        )
        self._duration = Histogram(
            "radixkv_call_duration_seconds",
            "Duration of calls, by the code that they ended with",
            ["method", "code"],
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self._waited = Histogram(
            "radixkv_writer_wait_seconds",
            "Time that calls waited for the writer thread",
            buckets=_BUCKETS_S,
            registry=registry,
        )

    def begun(self, method: str) -> None:
        """See `observer.CallMetrics`."""
        self._begun.labels(method).inc()

    def ended(self, method: str, code: str, duration_s: float) -> None:
        """See `observer.CallMetrics`."""
        self._duration.labels(method, code).observe(duration_s)

    def waited(self, duration_s: float) -> None:
        """See `observer.CallMetrics`."""
        self._waited.observe(duration_s)

    def add_sources(
        self,
        gauges: Callable[[], Mapping[str, float]],
        counters: Callable[[], Mapping[str, float]],
        help_of: Mapping[str, str],
    ) -> None:
        """Also report what these return at each scrape. help_of: what each of them is."""
        self.registry.register(_Sources(gauges, counters, help_of))

    def serve(self, address: str, is_ready: Callable[[], bool]) -> Callable[[], None]:
        """Serve /metrics, /healthz and /readyz on host:port; returns what ends it.

        is_ready: whether calls should be sent here. Raises ListenError.
        """
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ListenError(f"cannot serve metrics on {address}: it must be host:port")
        try:
            family = AF_INET6 if ":" in host else AF_INET
            server = _server_of(family)((host, int(port)), _QuietHandler)
        except OSError as error:
            raise ListenError(f"cannot serve metrics on {address}: {error.strerror}") from error
        server.set_app(_pages(make_wsgi_app(self.registry), is_ready))
        thread = Thread(target=server.serve_forever, name="radixkv-metrics", daemon=True)
        thread.start()
        self.address = f"{address.rpartition(':')[0]}:{server.server_port}"

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end


class _QuietHandler(WSGIRequestHandler):
    timeout = 10  # of a client that sends nothing

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""


def _server_of(family: int) -> type[WSGIServer]:
    class Threaded(ThreadingMixIn, WSGIServer):
        address_family = family
        daemon_threads = True

    return Threaded


def _pages(metrics: Any, is_ready: Callable[[], bool]) -> Any:
    """The application behind the port."""

    def page(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            result: Iterable[bytes] = metrics(environ, start_response)
            return result
        status, text = "404 Not Found", b"pages: /metrics /healthz /readyz\n"
        if path == "/healthz":
            status, text = "200 OK", b"alive\n"
        elif path == "/readyz":
            status, text = ("200 OK", b"ready\n") if is_ready() else _NOT_READY
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [text]

    return page


_NOT_READY = "503 Service Unavailable", b"draining, or broken\n"


class _Sources:
    def __init__(
        self,
        gauges: Callable[[], Mapping[str, float]],
        counters: Callable[[], Mapping[str, float]],
        help_of: Mapping[str, str],
    ) -> None:
        self._gauges, self._counters, self._help_of = gauges, counters, help_of

    def collect(self) -> Iterable[Metric]:
        families: list[tuple[Any, Mapping[str, float]]] = [
            (GaugeMetricFamily, self._gauges()),
            (CounterMetricFamily, self._counters()),
        ]
        for family, values in families:
            for name, value in values.items():
                yield family(f"radixkv_{name}", self._help_of[name], value=value)
