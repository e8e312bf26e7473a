"""`radixkv route`: a router over running servers, over gRPC."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.cli.options import with_options
from radixkv.cli.server_options import ServerFlags, reloading, say_where, signalled
from radixkv.cli.show import LONGEST_PAUSE_S, Json, connect, print_json
from radixkv.errors import InvalidArgumentError

if TYPE_CHECKING:
    from radixkv.router import Router
    from radixkv.router.server import RouterServer


@with_options
def route(
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(help="A server to route to: NAME=ADDRESS, or ADDRESS. May be repeated."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(help="How workers are chosen, such as cache-aware or lmetric; ? shows all."),
    ] = "cache-aware",
    load_window: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds that a pick counts as load unless it is finished."),
    ] = 60.0,
    silent_after: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds of silence after which its prefixes count less."),
    ] = 20.0,
    gone_after: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds of silence after which only other servers are picked."),
    ] = 60.0,
    probe_every: Annotated[
        float,
        typer.Option(min=0.1, max=LONGEST_PAUSE_S, help="Seconds between probes of each server."),
    ] = 1.0,
    flags: ServerFlags,
    as_json: Json = False,
) -> None:
    """Choose the server for each prompt: Pick, Lookup and ListWorkers over gRPC.

    Each server's cache is mirrored from its Watch. RADIXKV_TOKEN and RADIXKV_TLS_* are used to
    connect to the servers, as for `radixkv match`.

    SIGTERM and SIGINT end it with 0; a second signal ends it at once. SIGHUP has the tokens file
    read again.
    """
    addresses = _parse(worker or [])
    from radixkv.router import Router
    from radixkv.router.server import RouterServer
    from radixkv.rpc.limits import DEFAULT_ROUTER_ADDRESS
    from radixkv.rpc.process import keep_freed_memory

    keep_freed_memory()
    with ExitStack() as stack:
        router = Router(
            policy,
            load_window_s=load_window,
            silent_after_s=silent_after,
            gone_after_s=gone_after,
            probe_every_s=probe_every,
        )
        stack.enter_context(router)
        address = DEFAULT_ROUTER_ADDRESS if flags.listen is None else flags.listen
        server = RouterServer(router, address, **flags.options())
        wait = stack.enter_context(signalled())
        stack.enter_context(reloading(server))
        for name, where in addresses.items():
            _follow(stack, router, name, where)
        server.start()
        _report(server, addresses, policy, as_json)
        wait()
        server.stop(flags.grace)


def _parse(workers: list[str]) -> dict[str, str]:
    if not workers:
        raise InvalidArgumentError("--worker must be given: NAME=ADDRESS of each server")
    addresses: dict[str, str] = {}
    for item in workers:
        name, is_named, address = item.partition("=")
        if not name or (is_named and not address):
            raise InvalidArgumentError(f"--worker must be NAME=ADDRESS or ADDRESS; got {item!r}")
        if name in addresses:
            raise InvalidArgumentError(
                f"--worker must be given once for each server; got {name!r} twice", worker=name
            )
        addresses[name] = address or name
    return addresses


def _follow(stack: ExitStack, router: "Router", name: str, address: str) -> None:
    client = stack.enter_context(connect(address))
    router.follow(name, client, address=address)
    stack.callback(router.close)  # before the client that its thread reads from


def _report(server: "RouterServer", workers: dict[str, str], policy: str, as_json: bool) -> None:
    if as_json:
        print_json({"listening": server.address, "policy": policy, "workers": workers})
    else:
        names = ", ".join(f"{name} ({where})" for name, where in workers.items())
        say_where(server, f"{policy} to {names}")
