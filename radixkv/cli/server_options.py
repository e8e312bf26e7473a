"""The options of `radixkv serve` that concern its server, and the server that they make."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.cache import PrefixCache
    from radixkv.service import CacheServer

Listen = Annotated[str | None, typer.Option(help="Where to listen: host:port or unix:/path.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow an open address without encryption.")
]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate of this server, PEM.")]
TlsKey = Annotated[Path | None, typer.Option(help="Its key, PEM.")]
TlsCa = Annotated[
    Path | None, typer.Option(help="Take only clients with a certificate signed by this, PEM.")
]
Tokens = Annotated[
    Path | None, typer.Option(help="Take only calls with a bearer token of this TOML file.")
]
Metrics = Annotated[str | None, typer.Option(help="host:port where Prometheus may ask.")]
Tenants = Annotated[
    Path | None, typer.Option(help='TOML file of alias = "salt", for figures a tenant.')
]
Tracing = Annotated[bool, typer.Option("--tracing", help="Make OpenTelemetry spans of calls.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log failed calls as JSON, on stderr.")]
DrainDelay = Annotated[
    float, typer.Option(min=0, help="Seconds at SIGTERM for balancers to look away.")
]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the command line says of the server."""

    listen: str | None
    insecure: bool
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    tokens: Path | None
    metrics: str | None
    tenants: Path | None
    tracing: bool
    log_json: bool
    drain_delay: float

    def server(self, cache: "PrefixCache", *, alone: bool) -> "CacheServer":
        """Not started yet. Raises InvalidArgumentError, ListenError."""
        from radixkv.rpc.limits import DEFAULT_ADDRESS
        from radixkv.rpc.logs import log_json
        from radixkv.service import CacheServer, Tls

        if self.log_json:
            log_json()
        is_encrypted = self.tls_cert or self.tls_key or self.tls_ca
        return CacheServer(
            cache,
            self.listen or DEFAULT_ADDRESS,
            insecure=self.insecure,
            alone=alone,
            tls=Tls(self.tls_cert, self.tls_key, self.tls_ca) if is_encrypted else None,
            tokens=self.tokens,
            metrics=self.metrics,
            tenants=_read_tenants(self.tenants),
            tracing=self.tracing,
            drain_delay_s=self.drain_delay,
        )


def _read_tenants(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        tenants = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgumentError(f"--tenants {path}: {error.strerror}") from error
    except ValueError:
        tenants = None
    if tenants is None or not all(isinstance(salt, str) for salt in tenants.values()):
        raise InvalidArgumentError(f'--tenants {path} is no TOML of alias = "salt"')
    return tenants
