"""How long it takes to replay a day by time on a fleet, against the same replay without times.

python -m bench.fleet_replay [--workers 8] [--routing cache-aware]

mooncake_conversation, twice one after the other, at the rates of an H200. The pool of each server
is what such a card has beside the weights, and so is that of the replay without times.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import Claim, judge, kept_at, save
from bench.traces import find_traces
from radixkv.lab.logs.reading import read_log
from radixkv.lab.logs.requests import OrderedLog, RequestLog
from radixkv.lab.replay.fleet import Fleet
from radixkv.lab.replay.rates import rates_of
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from radixkv.lab.replay.timed import timed_replay

MOST_TIMES = 3.0
SETTING = Setting(capacity=900_000, in_flight=64)


class Twice(OrderedLog):
    """A log, and after its last request the whole again."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(log, np.tile(np.arange(len(log)), 2))
        self.times = np.concatenate([log.times, log.times + np.ptp(log.times) + 1])


def measure(log: RequestLog, fleet: Fleet) -> dict[str, Any]:
    begun = time.perf_counter()
    untimed = replay(log, SETTING)
    between = time.perf_counter()
    timed = timed_replay(log, SETTING, rates_of("h200"), fleet)
    seconds = {"untimed": between - begun, "timed": time.perf_counter() - between}
    return {
        "requests": len(log),
        "prompt_tokens": int(log.lengths.sum()),
        "untimed hit rate": untimed.hit_rate,
        "seconds": seconds,
        "times": seconds["timed"] / seconds["untimed"],
        "found": timed.to_dict(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--routing", default="cache-aware")
    parser.add_argument("--folder", type=Path, default=find_traces())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    log = Twice(read_log(args.folder / "mooncake_conversation.jsonl.xz"))
    figures = measure(log, Fleet(args.workers, args.routing))
    save("fleet_replay", figures, kept_at("fleet_replay", parser, args, "workers", "routing"))
    print(figures)
    judge([Claim("timed over untimed", figures["times"], "at most", MOST_TIMES)])


if __name__ == "__main__":
    main()
