"""Whether SGLang's scheduler waits for the device inside our calls.

    python -m bench.gpu.sglang_profile          into bench/results/gpu/sglang_profile.json
    python -m bench.gpu.sglang_profile --cpu    does it run at all?

torch's profiler records the scheduler's process, with Python's frames and all calls of the CUDA
runtime, while the engine serves prompts that share beginnings, from a pool so small that prefixes
are evicted. A call that waits for a stream, an event or the device, or copies from or to memory
that is not pinned, counts as ours where a frame of a file of radixkv is on its thread's stack. What
waits elsewhere is counted, too: a profile without any would prove nothing.
"""

import argparse
import gzip
import json
import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from bench.gpu.measure import require_card, save_figures
from bench.gpu.sglang_engine import FIRST_TOKEN, ON_CPU, TINY, engine, greedy
from bench.report import Claim, judge

Event = dict[str, Any]

RUNTIME = ("cuda_runtime", "cuda_driver")
# A copy that is not asynchronous, and memory that is given back, wait too.
WAITS = re.compile(
    r"cu(da)?(Stream|Device|Event|Ctx)Synchronize|cudaMemcpy|cuMemcpy[DH]to[DH]|cudaFree"
)
OURS = re.compile(r"(^|/)radixkv/")
SYSTEMS, SYSTEM, OWN, REQUESTS, NEW_TOKENS = 6, 2000, 200, 24, 24
POOL = 16_000


class Calls(NamedTuple):
    """Of one thread: the outermost frames of ours, in order."""

    begins: list[float]
    ends: list[float]

    def cover(self, event: Event) -> bool:
        """Whether `event` began within one of them."""
        at = bisect_right(self.begins, event["ts"]) - 1
        return at >= 0 and event["ts"] < self.ends[at]


def is_ours(event: Event) -> bool:
    return event.get("cat") == "python_function" and bool(OURS.search(event["name"]))


def outermost(frames: Iterable[Event]) -> Iterator[Event]:
    """Those of one thread that no other one encloses."""
    end = -1.0
    for frame in sorted(frames, key=lambda each: (each["ts"], -each["dur"])):
        if frame["ts"] >= end:
            end = frame["ts"] + frame["dur"]
            yield frame


def found_in(events: Iterable[Event]) -> dict[str, Any]:
    """Of a trace in Chrome's format: our calls by name, the runtime's calls within them, and the
    waits within them and elsewhere."""
    frames, runtime, pageable = defaultdict(list), [], set()
    for event in events:
        if is_ours(event):
            frames[event["tid"]].append(event)
        elif event.get("cat") in RUNTIME:
            runtime.append(event)
        elif event.get("cat") == "gpu_memcpy" and "Pageable" in event["name"]:
            pageable.add(event["args"]["correlation"])
    calls = {tid: [*outermost(found)] for tid, found in frames.items()}
    spans = {
        tid: Calls([each["ts"] for each in found], [each["ts"] + each["dur"] for each in found])
        for tid, found in calls.items()
    }
    within = [each for each in runtime if each["tid"] in spans and spans[each["tid"]].cover(each)]
    return {
        "our_calls": _counted(each["name"] for found in calls.values() for each in found),
        "runtime_calls_within_ours": _counted(each["name"] for each in within),
        "waits_within_ours": _counted(_waits(within, pageable)),
        "waits_of_the_process": _counted(_waits(runtime, pageable)),
    }


def _waits(runtime: Iterable[Event], pageable: set[int]) -> Iterator[str]:
    """What waits among calls of the runtime. pageable: copies from or to memory that is not
    pinned."""
    for event in runtime:
        if WAITS.fullmatch(event["name"]):
            yield event["name"]
        elif event.get("args", {}).get("correlation") in pageable:
            yield f"{event['name']}, pageable"


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def prompts(rng: np.random.Generator) -> list[list[int]]:
    """Beginnings that several have in common, more than the pool holds together."""
    systems = rng.integers(FIRST_TOKEN, TINY.vocab, (SYSTEMS, SYSTEM)).tolist()
    own = rng.integers(FIRST_TOKEN, TINY.vocab, (REQUESTS, OWN)).tolist()
    return [systems[at % SYSTEMS] + each for at, each in enumerate(own)]


def traced(serving: Any, rounds: int, activities: list[str]) -> list[Event]:
    """Events of the scheduler's process in so many rounds, after two that compile."""
    rng = np.random.default_rng(0)
    for _ in range(2):
        serving.generate(input_ids=prompts(rng), sampling_params=greedy(NEW_TOKENS))
    with TemporaryDirectory() as folder:
        serving.start_profile(output_dir=folder, activities=activities, with_stack=True)
        for _ in range(rounds):
            serving.generate(input_ids=prompts(rng), sampling_params=greedy(NEW_TOKENS))
        serving.stop_profile()
        with gzip.open(_written(Path(folder)), "rt") as file:
            events: list[Event] = json.load(file)["traceEvents"]
    return events


def _written(folder: Path, seconds: float = 120) -> Path:
    """The trace, once it no longer grows."""
    until, size = time.monotonic() + seconds, -1
    while time.monotonic() < until:
        for path in folder.rglob("*.gz"):
            if path.stat().st_size == size:
                return path
            size = path.stat().st_size
        time.sleep(2)
    raise TimeoutError(f"no trace in {folder} after {seconds:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--attention", help="SGLang's by default")
    parser.add_argument("--cuda-graph", action="store_true", help="with the decode step captured")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    flags: dict[str, Any] = {"max_running_requests": 16}
    if arguments.cpu:
        flags |= ON_CPU
    else:
        require_card()
        flags |= {"mem_fraction_static": 0.3, "disable_cuda_graph": not arguments.cuda_graph}
    if arguments.attention:
        flags["attention_backend"] = arguments.attention
    activities = ["CPU"] if arguments.cpu else ["CPU", "GPU"]
    with engine(
        TINY,
        radix_cache_backend="radixkv",
        max_total_tokens=POOL,
        chunked_prefill_size=1024,
        **flags,
    ) as serving:
        found = found_in(traced(serving, arguments.rounds, activities))
    for name, counted in found.items():
        print(name, json.dumps(counted, indent=2), flush=True)
    if arguments.cpu:
        return
    figures = {"rounds": arguments.rounds, "flags": flags, **found}
    print(save_figures("sglang_profile", figures, arguments.out))
    judge(
        [
            Claim("waits within our calls", sum(found["waits_within_ours"].values()), "at most", 0),
            Claim("waits seen", sum(found["waits_of_the_process"].values()), "at least", 1),
            Claim("calls of ours seen", sum(found["our_calls"].values()), "at least", 100),
        ]
    )


if __name__ == "__main__":
    main()
