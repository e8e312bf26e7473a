"""Which of transformers' causal model types a Generator serves, each made tiny and random.

`python -m bench.model_types [TYPE ...]` prints a table: equal to the model alone (logits, cached
and not), refused (and in which words), not made (its configuration cannot be made tiny without
knowing it), or wrong, which ends with status 1. bench/results/model_types.txt keeps it.
"""

import argparse
import logging
import warnings
from collections import Counter
from collections.abc import Sequence

import transformers

from bench.report import RESULTS, UNPUBLISHED, Claim, command, judge, machine
from tests.support.model_types import VARIANTS, types, verdict


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.model_types")
    parser.add_argument("types", nargs="*", metavar="TYPE")
    options = parser.parse_args(given)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lines, counts = [], Counter[str]()
    for model_type in options.types or types():
        for variant in VARIANTS:
            found = verdict(model_type, variant)
            counts[found.outcome] += 1
            lines.append(f"{model_type:28} {variant:13} {found.outcome:9} {found.text}".rstrip())
            print(lines[-1], flush=True)
            if found.outcome in ("not made", "refused"):
                break  # the other variants are of the same kind
    on = machine()
    head = [
        command(),
        f"{on['machine']}, Python {on['python']}, transformers {transformers.__version__}, "
        f"commit {on['commit']}",
        f"{len(lines)} models of {len(options.types or types())} types: {dict(counts)}",
    ]
    path = (UNPUBLISHED if options.types else RESULTS) / "model_types.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, "", *lines]) + "\n")
    print(*head, sep="\n")
    judge([Claim("models that answer wrongly", counts["wrong"], "at most", 0)])


if __name__ == "__main__":
    main()
