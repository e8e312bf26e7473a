"""`radixkv lab`: prefix hit rates of a request log, measured and explained."""

from collections.abc import Callable

import typer

from radixkv.cli.lab.advise import lab_advise
from radixkv.cli.lab.compare import lab_compare
from radixkv.cli.lab.curve import lab_curve
from radixkv.cli.lab.explain import lab_explain
from radixkv.cli.lab.generate import lab_generate
from radixkv.cli.lab.replay import lab_replay
from radixkv.cli.lab.report import lab_report
from radixkv.cli.lab.sweep import lab_sweep
from radixkv.cli.options import help_of

lab = typer.Typer(
    help="What a prefix cache would save on a log of requests, and why requests miss.",
    no_args_is_help=True,
)
commands: dict[str, Callable[..., None]] = {
    "advise": lab_advise,
    "replay": lab_replay,
    "sweep": lab_sweep,
    "curve": lab_curve,
    "explain": lab_explain,
    "report": lab_report,
    "compare": lab_compare,
    "generate": lab_generate,
}
for name, command in commands.items():
    lab.command(name, help=help_of(command))(command)
