"""`radixkv lab`: prefix hit rates of a request log, measured and explained."""

import typer

from radixkv.cli.lab_explain import lab_explain
from radixkv.cli.lab_replay import lab_replay

lab = typer.Typer(
    help="What a prefix cache would save on a log of requests, and why requests miss.",
    no_args_is_help=True,
)
for name, command in {"replay": lab_replay, "explain": lab_explain}.items():
    lab.command(name)(command)
