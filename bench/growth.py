"""How the tree's costs and memory grow: 100,000,000 cached tokens against 1,000,000.

python -m bench.growth [--small 2000] [--large 200000] [--out FILE]

Sequences of 500 random tokens that share nothing, as int32 arrays. Times are medians in
microseconds; every sampled sequence was last used long ago. Memory is resident memory after a
`malloc_trim`.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.peers import workloads
from bench.peers.contender import resident
from bench.report import kept_at, save
from radixkv import RadixTree, new_tree
from radixkv.arrays import Int32Array
from radixkv.memory import TokenToKVAllocator, new_allocator

LENGTH = 500
SAMPLES = 2_000
LONG = 1_000_000
BRANCHES = 1_000_000
# At most: times what it costs at 1,000,000 tokens, times a comparison of two arrays, bytes.
MOST = {
    "match": 2.5,
    "insert": 2.5,
    "evict": 2.5,
    "long key, slots returned": 1.3,
    "bytes per token": 10.0,
    "bytes per branch": 160.0,
}

now = time.perf_counter_ns


def sequence(number: int) -> Int32Array:
    """Drawn from so many ids that hardly two begin alike: both trees have the same shape."""
    return np.random.default_rng(number).integers(0, 2**30, LENGTH, dtype=np.int32)


def in_us(taken: list[int]) -> list[float]:
    return [each / 1e3 for each in taken]


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(taken) for name, taken in samples.items()}


def timed(call: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    since = now()
    answer = call(*args)
    return now() - since, answer


def filled(sequences: int) -> tuple[RadixTree, TokenToKVAllocator]:
    """A tree of that many sequences, and room for one more."""
    tree, slots = new_tree(core="native"), new_allocator((sequences + 1) * LENGTH)
    for number in range(sequences):
        tree.insert(sequence(number), _allocate(slots, LENGTH))
    return tree, slots


def costs(sequences: int) -> dict[str, Any]:
    """Medians of one match, insert and evict of a sequence, and resident bytes a token."""
    gc.collect()
    before = resident()
    tree, slots = filled(sequences)
    held = resident() - before
    picked = np.random.default_rng(1).integers(0, sequences, SAMPLES)
    matches = [timed(tree.match_prefix, sequence(number)) for number in picked.tolist()]
    assert all(match.length == LENGTH for _, match in matches)
    inserts, evictions = _replace(tree, slots, sequences)
    samples = {
        "match": in_us([taken for taken, _ in matches]),
        "insert": in_us(inserts),
        "evict": in_us(evictions),
    }
    return {
        "tokens": tree.total_size,
        **medians(samples),
        "bytes per token": held / (sequences * LENGTH),
        "samples_us": samples,
    }


def _replace(tree: RadixTree, slots: TokenToKVAllocator, first: int) -> tuple[list[int], list[int]]:
    """Nanoseconds of inserting a new sequence and of evicting the oldest, in turn."""
    inserts, evictions = [], []
    for number in range(first, first + SAMPLES):
        key, own = sequence(number), _allocate(slots, LENGTH)
        inserts.append(timed(tree.insert, key, own)[0])
        taken, evicted = timed(tree.evict, LENGTH)
        evictions.append(taken)
        slots.free(evicted)
    return inserts, evictions


def long_key(repeats: int = 50) -> dict[str, list[float]]:
    """A key of 1,000,000 tokens against comparing two such arrays, in place and by NumPy."""
    key = np.random.default_rng(2).integers(0, workloads.VOCAB, LONG, dtype=np.int32)
    slots = np.arange(1, LONG + 1, dtype=np.int32)
    tree, scattered = new_tree(core="native"), new_tree(core="native")
    tree.insert(key, slots)
    scattered.insert(key, np.random.default_rng(3).permutation(slots))
    asked, stored, same = key.copy(), key.tobytes(), key.tobytes()
    calls: dict[str, Callable[[], Any]] = {
        "probe": lambda: tree.probe(asked),
        "match": lambda: tree.match_prefix(asked),
        "match, slots scattered": lambda: scattered.match_prefix(asked),
        "compare in place": lambda: stored == same,
        "compare by numpy": lambda: np.array_equal(asked, key),
        "copy": asked.copy,
    }
    taken: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            taken[name].append(timed(call)[0])
    return {name: in_us(times) for name, times in taken.items()}


def bytes_per_branch() -> float:
    """Branches of 4 tokens under 8 that all share."""
    tree, slots = new_tree(core="native"), new_allocator(BRANCHES * 4 + 8)
    shared = tree.insert(workloads.branch(0)[:8], _allocate(slots, 8)).handle
    before = resident()
    top = tree.match_prefix(workloads.branch(0)[:8]).slots
    for i in range(BRANCHES):
        tree.insert(workloads.branch(i), np.concatenate((top, _allocate(slots, 4))))
    assert shared.length == 8
    return (resident() - before) / BRANCHES


def churn(rounds: int = 200, sequences: int = 2_000) -> dict[str, Any]:
    """Resident memory while a full pool is refilled many times, and what is left at the end."""
    before = resident()
    tree, slots = new_tree(core="native"), new_allocator(1_000_000)
    rng = np.random.default_rng(3)
    seen = []
    for _ in range(rounds):
        for key in _keys_that_share(rng, sequences):
            _insert(tree, slots, key)
        seen.append(resident())
    half, end = seen[rounds // 2 :][:20], seen[-20:]
    slots.free(tree.evict(tree.total_size))
    assert tree.check_integrity() == []
    left = {"nodes": tree.num_nodes, "tokens": tree.total_size}
    left["slots missing"] = slots.num_slots - slots.free_size
    tree.reset()
    return {
        "inserts": rounds * sequences,
        "resident bytes, half way": statistics.median(half),
        "resident bytes, at the end": statistics.median(end),
        "left after all was evicted": left,
        "bytes kept after a reset": resident() - before,
    }


def _keys_that_share(rng: np.random.Generator, count: int) -> Iterator[Int32Array]:
    for base, kept, more in rng.integers((0, 1, 1), (200, LENGTH, 1_500), (count, 3)).tolist():
        tail = rng.integers(0, workloads.VOCAB, more, dtype=np.int32)
        yield np.concatenate((sequence(base)[:kept], tail))


def _insert(tree: RadixTree, slots: TokenToKVAllocator, key: Int32Array) -> None:
    missing = len(key) - slots.free_size
    if missing > 0:
        slots.free(tree.evict(missing))
    own = _allocate(slots, len(key))
    slots.free(own[: tree.insert(key, own).prefix_length])


def _allocate(slots: TokenToKVAllocator, n: int) -> Int32Array:
    own = slots.allocate(n)
    assert own is not None
    return own


def table(small: dict[str, Any], large: dict[str, Any]) -> Table:
    shown = Table(title="growth (us; medians)", title_justify="left")
    for column in ("", f"{small['tokens']:,.0f} tokens", f"{large['tokens']:,.0f}"):
        shown.add_column(column, justify="right" if column else "left")
    for name in ("match", "insert", "evict", "bytes per token"):
        shown.add_row(name, f"{small[name]:.2f}", f"{large[name]:.2f}")
    return shown


def required_table(reached: dict[str, float]) -> Table:
    shown = Table("", "at most", "reached", title="required and reached", title_justify="left")
    for name, most in MOST.items():
        mark = "" if reached[name] <= most else " (short)"
        shown.add_row(name, f"{most:.2f}", f"{reached[name]:.2f}{mark}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description="how the tree's costs grow")
    parser.add_argument("--small", type=int, default=2_000, help="sequences")
    parser.add_argument("--large", type=int, default=200_000, help="sequences")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    memory: dict[str, Any] = {"bytes per branch": bytes_per_branch(), "churn": churn()}
    samples = long_key()
    long = medians(samples)
    small, large = costs(args.small), costs(args.large)
    reached = {name: large[name] / small[name] for name in ("match", "insert", "evict")}
    reached["long key, slots returned"] = long["match"] / long["compare in place"]
    reached["bytes per token"] = large["bytes per token"]
    reached["bytes per branch"] = memory["bytes per branch"]
    figures: dict[str, Any] = {"small": small, "large": large}
    figures["long key"] = {**long, "samples_us": samples}
    figures["memory"] = memory
    out = kept_at("growth", parser, args, "small", "large")
    save("growth", {"reached": reached, **figures}, out)
    console = Console(width=100)
    console.print(table(small, large), {"long key (us)": long, "memory": memory})
    console.print(required_table(reached))


if __name__ == "__main__":
    main()
