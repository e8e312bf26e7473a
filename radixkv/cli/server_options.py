"""Options of `radixkv serve` and `radixkv route`: their server, and its end."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from radixkv.cli.show import LONGEST_PAUSE_S
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.rpc.server import Server, ServerOptions
    from radixkv.rpc.tls import Tls

T = TypeVar("T")

_LOOK_EVERY_S = 0.2
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """Where a server listens, who may call it, what it reports, how it ends."""

    listen: Annotated[
        str | None,
        typer.Option(
            help="host:port or unix:/path to listen on; default: 127.0.0.1:50051 (route: 50061)."
        ),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Allow an address that other machines reach, without encryption."
        ),
    ] = False
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate of this server, PEM.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key, PEM.")] = None
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="Accept only clients with a certificate signed by this CA, PEM."),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="Accept only calls with a bearer token of this TOML file, whose entries are "
            r"\[\[token]] with name, role (data, watch or admin), token and, if bound to it, salt."
        ),
    ] = None
    metrics: Annotated[
        str | None, typer.Option(help="host:port of /metrics for Prometheus, /healthz and /readyz.")
    ] = None
    tracing: Annotated[
        bool, typer.Option("--tracing", help="Make OpenTelemetry spans of calls.")
    ] = False
    log_json: Annotated[
        bool, typer.Option("--log-json", help="Log failed calls as JSON, on stderr.")
    ] = False
    log_level: Annotated[
        str, typer.Option(help="debug, info (ends of leases, lost watchers), warning or error.")
    ] = "warning"
    drain_delay: Annotated[
        float,
        typer.Option(
            min=0,
            max=LONGEST_PAUSE_S,
            help="Seconds at SIGTERM for balancers to look elsewhere.",
        ),
    ] = 0.0
    grace: Annotated[
        float,
        typer.Option(
            min=0, max=LONGEST_PAUSE_S, help="Seconds at SIGTERM for running calls to end."
        ),
    ] = 10.0

    def options(self) -> "ServerOptions":
        """As a `Server` takes them; logs are JSON from now on, if wanted."""
        from radixkv.rpc.logs import log_json

        level = logging.getLevelNamesMapping().get(self.log_level.upper())
        if level is None:
            raise InvalidArgumentError(
                f"--log-level must be debug, info, warning or error; got {self.log_level!r}"
            )
        logging.getLogger("radixkv").setLevel(level)
        if self.log_json:
            log_json(min(level, logging.INFO))
        return {
            "insecure": self.insecure,
            "tls": self._tls(),
            "tokens": self.tokens,
            "metrics": self.metrics,
            "tracing": self.tracing,
            "drain_delay_s": self.drain_delay,
        }

    def _tls(self) -> "Tls | None":
        from radixkv.rpc.tls import Tls

        if not (self.tls_cert or self.tls_key or self.tls_ca):
            return None
        if self.tls_cert is None or self.tls_key is None:
            raise InvalidArgumentError("--tls-cert FILE and --tls-key FILE must be given together")
        return Tls(self.tls_cert, self.tls_key, self.tls_ca)


def say_where(server: "Server", what: str) -> None:
    """Print on standard error where a started server listens, and what it is."""
    lines = [f"radixkv: listening on {server.address}, {what}"]
    if server.metrics_address is not None:
        lines.append(f"radixkv: metrics on {server.metrics_address}")
    # A log on a full disk is no reason not to serve.
    with suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr, flush=True)


@contextmanager
def at_signal(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or SIGINT calls `stop`, the second ends the process."""

    def stop_once(*_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        stop()

    before = [signal.signal(number, stop_once) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def reloading(server: "Server") -> Iterator[None]:
    """SIGHUP has the server read its tokens file again, at its next call, instead of ending it."""
    before = signal.signal(signal.SIGHUP, lambda *_: server.reload())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def signalled() -> Iterator[Callable[[], None]]:
    """A function that returns when the first SIGTERM or SIGINT has come."""
    # A signal handler may use this queue: it takes no lock.
    came: SimpleQueue[None] = SimpleQueue()
    with at_signal(lambda: came.put(None)):
        yield lambda: next_of(came)


def next_of(queue: "SimpleQueue[T]") -> T:
    """The queue's next item, waited for so that signals are handled meanwhile.

    The kernel may deliver a signal to any thread, and after SIGSTOP and SIGCONT often does. Python
    handles it in the main thread, which would sleep on, so this wakes it now and then.
    """
    while True:
        with suppress(Empty):
            return queue.get(timeout=_LOOK_EVERY_S)
