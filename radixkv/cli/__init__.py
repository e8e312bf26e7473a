"""The `radixkv` command. Each subcommand is a file that imports what it needs when it runs."""

import logging
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import radixkv
from radixkv.cli.demo import demo
from radixkv.cli.doctor import doctor
from radixkv.cli.lab import lab
from radixkv.cli.lease import lease
from radixkv.cli.match import match
from radixkv.cli.operate import check, clear, evict
from radixkv.cli.options import help_of
from radixkv.cli.plan import plan
from radixkv.cli.route import route
from radixkv.cli.serve import serve
from radixkv.cli.stats import stats
from radixkv.cli.top import top
from radixkv.cli.watch import watch
from radixkv.errors import InvalidArgumentError, RadixKVError


class Commands(TyperGroup):
    """Prints an error of ours in one line on stderr; exit code 2 for a wrong argument, else 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RadixKVError as error:
            hint = "; `radixkv serve` starts one" if error.details.get("is_unreachable") else ""
            print(f"radixkv: {' '.join(str(error).split())}{hint}", file=sys.stderr)
            raise typer.Exit(2 if isinstance(error, InvalidArgumentError) else 1) from error


app = typer.Typer(
    cls=Commands,
    help="A radix-tree, token-granular prefix cache for LLM serving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS = (serve, route, match, stats, watch, top, evict, clear, check, plan, demo, doctor)
for command in COMMANDS:
    app.command(help=help_of(command))(command)
app.add_typer(lab, name="lab")
app.add_typer(lease, name="lease")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"radixkv {radixkv.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A radix-tree, token-granular prefix cache for LLM serving."""


def main() -> None:
    """Run the command line."""
    # The errors already say what gRPC's core logs by itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Torch's threads would spin while they wait for one another, which makes them many times slower
    # on cores that other processes use.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    _open_what_is_closed()
    _log_for_people()
    try:
        try:
            app(prog_name="radixkv")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, which is not an error
        raise
    except OSError as error:
        print(f"radixkv: {error.strerror or error}", file=sys.stderr)
        _drop_output()
        sys.exit(1)


def _open_what_is_closed() -> None:
    """Standard streams that are closed become /dev/null."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for good


def _log_for_people() -> None:
    """Print radixkv's log on standard error, in the form of the errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("radixkv: %(message)s"))
    logging.getLogger("radixkv").addHandler(handler)


def _drop_output() -> None:
    """Discard what is left to write, so that Python reports no error as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
