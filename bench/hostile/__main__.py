"""What hostile callers cost others: `python -m bench.hostile [NAME ...]`.

Each part is a file of this folder. Times are beside the same client alone in the same run.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bench.report import judge, kept_at, save

PARTS = ("reentrant", "floods", "fields", "answers", "leases", "callers", "requests", "stalls")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.hostile")
    parser.add_argument("names", nargs="*", choices=[*PARTS, []], metavar="NAME")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(given)
    figures, claims = {}, []
    for name in options.names or PARTS:
        print(f"== {name} ==", flush=True)
        figures[name], made = import_module(f"bench.hostile.{name}").run()
        claims += made
    save("hostile", figures, kept_at("hostile", parser, options, "names"))
    judge(claims)


if __name__ == "__main__":
    main()
