"""`radixkv route`: a router over running servers, asked over gRPC."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.cli.server_options import (
    DrainDelay,
    Insecure,
    Listen,
    Metrics,
    TlsCa,
    TlsCert,
    TlsKey,
    Tokens,
)
from radixkv.cli.show import Json, connect, print_json
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.router import Router


def route(
    worker: Annotated[
        list[str] | None,
        typer.Option(help="A server to route to: NAME=ADDRESS, or ADDRESS. May be repeated."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(help="cache-aware, consistent-hashing, round-robin or least-load."),
    ] = "cache-aware",
    listen: Listen = None,
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tokens: Tokens = None,
    metrics: Metrics = None,
    drain_delay: DrainDelay = 0.0,
    load_window: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds that a pick counts as load unless it is finished."),
    ] = 10.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that what is running has at SIGTERM.")
    ] = 5.0,
    as_json: Json = False,
) -> None:
    """Say which server a prompt goes to: Pick, Lookup and ListWorkers over gRPC.

    Each server's cache is mirrored from its Watch. RADIXKV_TOKEN and RADIXKV_TLS_* say who asks
    them, as for `radixkv match`.

    SIGTERM and SIGINT end it with 0; a second signal ends it at once.
    """
    addresses = _parse(worker or [])
    from radixkv.router import Router
    from radixkv.router.server import RouterServer
    from radixkv.rpc.limits import DEFAULT_ROUTER_ADDRESS
    from radixkv.service import Tls

    is_encrypted = tls_cert or tls_key or tls_ca
    with ExitStack() as stack:
        router = stack.enter_context(Router(policy, load_window_s=load_window))
        server = RouterServer(
            router,
            listen or DEFAULT_ROUTER_ADDRESS,
            insecure=insecure,
            tls=Tls(tls_cert, tls_key, tls_ca) if is_encrypted else None,
            tokens=tokens,
            metrics=metrics,
            drain_delay_s=drain_delay,
        )
        stopped = stack.enter_context(_signalled())
        for name, address in addresses.items():
            _follow(stack, router, name, address)
        server.start()
        _tell(server.address, addresses, policy, as_json)
        stopped.wait()
        server.stop(grace)


def _parse(workers: list[str]) -> dict[str, str]:
    if not workers:
        raise InvalidArgumentError("--worker is missing: give NAME=ADDRESS of each server")
    addresses: dict[str, str] = {}
    for item in workers:
        name, is_named, address = item.partition("=")
        if not name or (is_named and not address):
            raise InvalidArgumentError(f"--worker {item!r}; it takes NAME=ADDRESS, or ADDRESS")
        if name in addresses:
            raise InvalidArgumentError(f"--worker {name!r} is given twice", worker=name)
        addresses[name] = address or name
    return addresses


def _follow(stack: ExitStack, router: "Router", name: str, address: str) -> None:
    client = stack.enter_context(connect(address))
    router.follow(name, client, address=address)
    stack.callback(router.close)  # before the client that its thread reads from


def _tell(address: str, workers: dict[str, str], policy: str, as_json: bool) -> None:
    if as_json:
        print_json({"listening": address, "policy": policy, "workers": workers})
    else:
        names = ", ".join(f"{name} ({where})" for name, where in workers.items())
        print(f"radixkv: listening on {address}, {policy} to {names}", file=sys.stderr, flush=True)


@contextmanager
def _signalled() -> Iterator[threading.Event]:
    """Set by the first SIGTERM or SIGINT; another one ends the process."""
    stopped = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(*_: object) -> None:
        stopped.set()
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)

    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
