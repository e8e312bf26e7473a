"""`radixkv route`: a router over running servers, over gRPC."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from radixkv.cli.options import with_options
from radixkv.cli.server_options import ServerFlags, reloading, say_where, signalled
from radixkv.cli.show import LONGEST_PAUSE_S, Json, connect, print_json
from radixkv.errors import InvalidArgumentError
from radixkv.extras import missing

if TYPE_CHECKING:
    from radixkv.prompts import ModelPrompts
    from radixkv.router import Router
    from radixkv.router.membership import WorkerList
    from radixkv.router.server import RouterServer


@with_options
def route(
    *,
    worker: Annotated[
        list[str] | None,
        typer.Option(help="A server to route to: NAME=ADDRESS, or ADDRESS. May be repeated."),
    ] = None,
    workers_dns: Annotated[
        list[str] | None,
        typer.Option(
            help="HOST:PORT: every address of the name is a server, such as those of a headless "
            "service in Kubernetes. May be repeated."
        ),
    ] = None,
    workers_file: Annotated[
        list[Path] | None,
        typer.Option(help="A file with a server a line, as --worker takes it. May be repeated."),
    ] = None,
    look_every: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=LONGEST_PAUSE_S,
            help="Seconds between looks at names and files of servers.",
        ),
    ] = 5.0,
    events: Annotated[
        list[str] | None,
        typer.Option(
            help="An engine that publishes KV events over ZeroMQ (SGLang, vLLM): "
            "NAME=tcp://HOST:PORT, or NAME=tcp://HOST:PORT,tcp://HOST:REPLAY to get what it "
            "stored before. May be repeated."
        ),
    ] = None,
    events_block_size: Annotated[
        int, typer.Option(min=1, help="Tokens a block of --events; the engines' page size.")
    ] = 16,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the servers' tokenizer.json and chat template: picks may then ask by "
            "text and by OpenAI messages."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Prepare messages as this engine does: sglang or vllm.")
    ] = "sglang",
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

    Each server's cache is mirrored from its Watch, or from the events that its engine publishes. An
    admin adds and removes servers by AddWorker and RemoveWorker. RADIXKV_TOKEN and RADIXKV_TLS_*
    are used to connect to the servers, as for `radixkv match`.

    SIGTERM and SIGINT end it with 0; a second signal ends it at once. SIGHUP has the tokens file
    read again.
    """
    from radixkv.router import Router
    from radixkv.router.membership import DnsName, Membership, WorkersFile, parse_workers
    from radixkv.router.server import RouterServer
    from radixkv.rpc.limits import DEFAULT_ROUTER_ADDRESS
    from radixkv.rpc.process import collect_rarely, keep_freed_memory

    addresses = parse_workers(worker or [], "--worker")
    engines = dict(_engines(events or []))
    lists: list[WorkerList] = [DnsName(target) for target in workers_dns or ()]
    lists += (WorkersFile(path) for path in workers_file or ())
    if not (addresses or engines or lists):
        raise InvalidArgumentError(
            "a server must be named: --worker NAME=ADDRESS, --workers-dns, --workers-file, --events"
        )
    keep_freed_memory()
    collect_rarely()
    with ExitStack() as stack:
        router = stack.enter_context(
            Router(
                policy,
                load_window_s=load_window,
                silent_after_s=silent_after,
                gone_after_s=gone_after,
                probe_every_s=probe_every,
            )
        )
        members = stack.enter_context(Membership(router, connect, lists, look_every))
        prompts = None if model is None else _prompts_of(model, engine)
        address = DEFAULT_ROUTER_ADDRESS if flags.listen is None else flags.listen
        server = RouterServer(router, address, prompts=prompts, members=members, **flags.options())
        wait = stack.enter_context(signalled())
        stack.enter_context(reloading(server))
        for name, where in addresses.items():
            members.add(name, where)
        _follow_engines(router, engines, events_block_size)
        members.start()
        server.start()
        _report(server, dict(_whereabouts(router)), policy, as_json)
        wait()
        server.stop(flags.grace)


def _prompts_of(model: Path, engine: str) -> "ModelPrompts":
    from radixkv.prompts import ModelPrompts

    return ModelPrompts(model, engine)


def _engines(events: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Names of engines, and where each publishes and sends again."""
    from radixkv.router.membership import parse_workers

    for name, endpoints in parse_workers(events, "--events").items():
        found = endpoints.split(",")
        if name == endpoints or len(found) > 2 or not all("://" in each for each in found):
            raise InvalidArgumentError(
                "--events must be NAME=tcp://HOST:PORT or NAME=tcp://HOST:PORT,tcp://HOST:REPLAY; "
                f"got {name if name == endpoints else f'{name}={endpoints}'}"
            )
        yield name, found


def _follow_engines(router: "Router", engines: dict[str, list[str]], block_size: int) -> None:
    if not engines:
        return
    try:
        from radixkv.integrations.events import EngineEvents
    except ImportError as error:
        raise missing("--events", error.name, "events") from error
    for name, endpoints in engines.items():
        source = EngineEvents(*endpoints, block_size=block_size)
        router.add_worker(name, source, page_size=block_size, address=endpoints[0])


def _whereabouts(router: "Router") -> Iterator[tuple[str, str]]:
    for status in router.workers():
        yield status.view.worker, status.address


def _report(server: "RouterServer", workers: dict[str, str], policy: str, as_json: bool) -> None:
    if as_json:
        print_json({"listening": server.address, "policy": policy, "workers": workers})
    else:
        names = ", ".join(f"{name} ({where})" for name, where in workers.items())
        say_where(server, f"{policy} to {names or 'no server yet'}")
