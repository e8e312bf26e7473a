"""Servers, clients and a router's index agree, for ten minutes: `python -m bench.agreement`.

8 server processes and 32 client processes at random work, watches cut at random, a server and a
client killed with -9 every `--kill-every` seconds. At each pause every server's invariants are
checked, and the index is compared with each server's tree, token for token. The K/V that clients
write and read lies in shared memory, so a slot that two held at once would be found. At the end
the clients are gone, and nothing may be held. Any disagreement is an error, and nothing is saved.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from rich.console import Console

from bench.report import kept_at, save
from tests.e2e.fleet import Fleet


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.agreement")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kill-every", type=float, default=30.0)
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    console, began = Console(), monotonic()
    with tempfile.TemporaryDirectory(prefix="radixkv-") as folder:
        fleet = Fleet(
            Path(folder), servers=options.servers, clients=options.clients, seed=options.seed
        )
        try:
            while monotonic() - began < options.seconds:
                fleet.run(options.kill_every / 2)
                fleet.kill_a_server()
                fleet.kill_a_client()
                fleet.run(options.kill_every / 2)
                fleet.pause()
                console.print(f"{monotonic() - began:5.0f} s  {fleet.counts()}")
            fleet.end()
        finally:
            fleet.close()
    figures = {
        "seconds": round(monotonic() - began, 1),
        "seed": options.seed,
        "servers": options.servers,
        "clients": options.clients,
        "steps": fleet.counts(),
        "pauses": fleet.num_pauses,
        "servers_killed": fleet.num_kills,
        "watches_cut": fleet.num_cuts,
        "disagreements": 0,
    }
    console.print(figures)
    scope = "seconds", "kill_every", "servers", "clients"
    save("agreement", figures, kept_at("agreement", parser, options, *scope))


if __name__ == "__main__":
    main()
