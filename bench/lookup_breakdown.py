"""Where the time of a look-up goes: python -m bench.lookup_breakdown [--rounds 5]

The chat workload in its fifth turn: 200 sessions of 3,500 tokens. Each is looked up in turn with
200 tokens more, from a list that was just made, as an engine's is. Each loop leaves out one more
part of the work; the loops run in turn, and a figure is the median of the rounds' medians in
microseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.peers import workloads
from bench.report import kept_at, save
from radixkv import RadixTree, new_tree
from radixkv.kernels._core import read_ids

SESSIONS, TURNS, SYSTEM, TURN = 200, 4, 1_500, 500

Loop = tuple[str, Callable[[Any], Any], Iterator[Any]]


def sessions(tree: RadixTree) -> list[list[int]]:
    """Insert the histories into the tree, one node a turn, and return them."""
    rng = np.random.default_rng(1)
    systems = [rng.integers(0, workloads.VOCAB, SYSTEM).tolist() for _ in range(4)]
    histories = [list(systems[i % 4]) for i in range(SESSIONS)]
    slot = 1
    for _ in range(TURNS):
        for i in range(SESSIONS):
            histories[i] = histories[i] + rng.integers(0, workloads.VOCAB, TURN).tolist()
            size = len(histories[i])
            tree.insert(histories[i], np.arange(slot, slot + size, dtype=np.int32))
            slot += size
    return histories


def loops(tree: RadixTree, histories: list[list[int]], more: list[int]) -> Iterator[Loop]:
    """The name of each loop, its call, and the arguments of its calls."""
    arrays = [np.array(history + more, np.int32) for history in histories]

    def fresh() -> Iterator[list[int]]:
        return (history + more for history in histories)

    def fresh_arrays() -> Iterator[Any]:
        return (array.copy() for array in arrays)

    def again(item: Any) -> Iterator[Any]:
        return (item for _ in histories)

    same = histories[0] + more
    yield "match_prefix, list", tree.match_prefix, fresh()
    yield "  without slots and recency (probe)", tree.probe, fresh()
    yield "  the list alone, read into an array", read_ids, fresh()
    yield "match_prefix, array", tree.match_prefix, fresh_arrays()
    yield "  without slots and recency (probe)", tree.probe, fresh_arrays()
    yield "match_prefix, the same list again", tree.match_prefix, again(same)
    yield "  the list alone, read into an array", read_ids, again(same)
    yield "match_prefix, the same array again", tree.match_prefix, again(arrays[0])
    yield "match_prefix, nothing", tree.match_prefix, again([])


def timed(call: Callable[[Any], Any], items: Iterator[Any]) -> float:
    """The median in microseconds."""
    taken = []
    for item in items:
        since = time.perf_counter_ns()
        call(item)
        taken.append(time.perf_counter_ns() - since)
    return statistics.median(taken) / 1e3


def measure(rounds: int) -> dict[str, list[float]]:
    """The median of each round, by loop."""
    tree = new_tree(core="native")
    histories = sessions(tree)
    more = np.random.default_rng(2).integers(0, workloads.VOCAB, 200).tolist()
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for at, (name, call, items) in enumerate(loops(tree, histories, more)):
            found.setdefault(f"{at} {name}", []).append(timed(call, items))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="where the time of a look-up goes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rounds = measure(args.rounds)
    found = {name: statistics.median(values) for name, values in rounds.items()}
    figures = {"us": found, "samples_us": rounds}
    path = save("lookup_breakdown", figures, kept_at("lookup_breakdown", parser, args, "rounds"))
    shown = Table("3,700 tokens, 3,500 of them cached", "us", title_justify="left")
    for name, value in found.items():
        shown.add_row(name[2:], f"{value:.2f}")
    console = Console(width=100, record=True)
    console.print("$ python -m bench.lookup_breakdown", shown, sep="\n")
    console.save_text(str(path.with_suffix(".txt")))


if __name__ == "__main__":
    main()
