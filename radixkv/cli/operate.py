"""`radixkv evict`, `clear`, `check`: operate a server's cache."""

from typing import Annotated

import typer

from radixkv.cli.show import Json, Target, connect, console, counted, print_json


def evict(
    tokens: Annotated[int, typer.Argument(min=0, help="Tokens to evict, the coldest first.")],
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Evict unpinned tokens, so that slots are free."""
    with connect(target) as client:
        evicted = client.evict(tokens)
    if as_json:
        print_json({"num_evicted": evicted})
    else:
        console().print(f"{counted(evicted, 'token')} evicted")


def clear(
    target: Target = None,
    force: Annotated[bool, typer.Option("--force", help="Clear although pins are held.")] = False,
    as_json: Json = False,
) -> None:
    """Forget everything cached and begin a new epoch; every lease ends."""
    with connect(target) as client:
        epoch = client.clear(force)
    if as_json:
        print_json({"epoch": epoch})
    else:
        console().print(f"cleared; epoch {epoch} begins")


def check(target: Target = None, as_json: Json = False) -> None:
    """Check every invariant of a server's cache; exit code 1 if one is broken.

    A server whose cache is broken refuses all other calls from then on.
    """
    with connect(target) as client:
        violations = client.check(timeout_s=60.0)
    if as_json:
        print_json({"violations": violations})
    else:
        for line in violations or ["every invariant holds"]:
            console().print(line, markup=False)
    if violations:
        raise typer.Exit(1)
