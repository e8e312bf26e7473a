"""One contender in a process of its own: a workload a line in, its figures as JSON a line out.

python -m bench.peers.worker CONTENDER
"""

import json
import sys
from collections.abc import Callable
from typing import Any


def contender(name: str) -> Callable[[str, float], dict[str, Any]]:
    """What runs a workload on the contender of that name."""
    if name in ("vllm", "dynamo", "floor"):
        from importlib import import_module

        run: Callable[[str, float], dict[str, Any]] = import_module(f"bench.peers.{name}").run
        return run
    from bench.peers.contender import RUNS

    kind = _kind(name)
    return lambda work, most_s: RUNS[work](kind, work, most_s) if work in kind.works else {}


def _kind(name: str) -> Any:
    if name.startswith("radixkv"):
        from bench.peers import ours

        return {
            "radixkv": ours.Native,
            "radixkv fused": ours.FusedNative,
            "radixkv cache": ours.Cache,
            "radixkv python": ours.Python,
        }[name]
    from bench.peers import sglang

    return {
        "sglang rust": sglang.UnifiedRust,
        "sglang rust from lists": sglang.RustFromLists,
        "sglang python": sglang.RadixCache,
        "sglang unified python": sglang.UnifiedPython,
        "sglang c++": sglang.Cpp,
    }[name]


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a peer prints must not get between the answers
    run = contender(sys.argv[1])
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(run(order["work"], order["most_s"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
