"""`radixkv lab`: prefix hit rates of a request log, measured and explained."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from radixkv.cli.lab_curve import lab_curve
from radixkv.cli.lab_explain import lab_explain
from radixkv.cli.lab_generate import lab_generate
from radixkv.cli.lab_replay import lab_replay
from radixkv.cli.lab_report import lab_report
from radixkv.cli.lab_sweep import lab_sweep


class _Commands(TyperGroup):
    """Says in one line that standard output is full."""

    def invoke(self, ctx: Any) -> Any:
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
            return found
        except BrokenPipeError:  # nobody reads on, which is nobody's fault
            raise
        except OSError as error:
            print(f"radixkv: {error.strerror or error}", file=sys.stderr)
            _drop_output()
            raise typer.Exit(1) from error


def _drop_output() -> None:
    """What is left to write goes nowhere, lest Python complains of it once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


lab = typer.Typer(
    cls=_Commands,
    help="What a prefix cache would save on a log of requests, and why requests miss.",
    no_args_is_help=True,
)
commands = {
    "replay": lab_replay,
    "sweep": lab_sweep,
    "curve": lab_curve,
    "explain": lab_explain,
    "report": lab_report,
    "generate": lab_generate,
}
for name, command in commands.items():
    lab.command(name)(command)
