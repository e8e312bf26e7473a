"""`python -m bench [NAME ...]`: run the benchmarks named, or all of them, one after another.

Each runs in its own process, prints its table and writes bench/results/. bench/README.md says what
each one claims.
"""

import argparse
import subprocess
import sys

BENCHMARKS = (
    *("equality", "soak", "tree", "lookup_breakdown", "growth", "service", "agreement"),
    *("hostile", "model_types"),
    *("lab", "admission", "adaptive", "curve", "router", "router_width", "routing"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME")
    failed = []
    for name in parser.parse_args().names or BENCHMARKS:
        print(f"== {name} ==", flush=True)
        if subprocess.run([sys.executable, "-m", f"bench.{name}"]).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
