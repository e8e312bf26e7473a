"""The planner in Python: from the rows of a decode batch to work items."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.attention.shared_prefix.plan import NO_ITEM, Shape, TreePlan

# Row, start, end, and each request with the number of its partial result.
Item = tuple[int, int, int, list[tuple[int, int]]]


class SharedRun(NamedTuple):
    """Positions [start, end) that `requests`, and no others, share; read through `row`."""

    row: int
    start: int
    end: int
    requests: list[int]

    @property
    def length(self) -> int:
        return self.end - self.start


def plan_tree(rows: Sequence[Int32Array], shape: Shape) -> TreePlan:
    """See `Planner`; the native planner makes the same plan, faster."""
    runs = [*find_runs(rows, shape.share)]
    per_request = [0] * len(rows)
    wide: list[Item] = []
    narrow: list[Item] = []
    wide_chunk, narrow_chunk = _wide_chunk(runs, shape), _narrow_chunk(runs, shape)
    for run in runs:
        is_wide = _is_wide(run, shape)
        tiles = [*_tiles(run, shape)]
        kind = wide if is_wide else narrow
        n = -(-run.length // wide_chunk) if is_wide else _rounded(run.length, narrow_chunk)
        for start, end in _pieces(run, n):
            for tile in tiles:
                parts = [(request, per_request[request]) for request in tile]
                kind.append((run.row, start, end, parts))
            for request in run.requests:
                per_request[request] += 1
    return _packed(rows, runs, wide, narrow, per_request)


def find_runs(rows: Sequence[Int32Array], share: int) -> Iterator[SharedRun]:
    """Every run that pays to be read once, parents first; each request's own run is among them."""
    todo = [([*range(len(rows))], 0, 0)]
    while todo:
        group, at, begin = todo.pop()
        later = []
        for same in _by_slot(rows, group, at):
            if len(same) == 1 or at == len(rows[same[0]]):
                yield from (
                    SharedRun(r, begin, len(rows[r]), [r]) for r in same if begin < len(rows[r])
                )
                continue
            end = min(_common(rows[same[0]], rows[other], at) for other in same[1:])
            if (end - begin) * (len(same) - 1) >= share * len(same):
                yield SharedRun(same[0], begin, end, same)
                later.append((same, end, end))
            else:
                later.append((same, end, begin))
        todo += reversed(later)


def _by_slot(rows: Sequence[Int32Array], group: list[int], at: int) -> Iterable[list[int]]:
    """`group` by the slot at `at`, in order; those that end there are one of the parts."""
    parts: dict[int, list[int]] = {}
    for request in group:
        row = rows[request]
        parts.setdefault(int(row[at]) if at < len(row) else -1, []).append(request)
    return parts.values()


def _common(one: Int32Array, other: Int32Array, low: int) -> int:
    """Length of the common prefix, `low` at least."""
    high = min(len(one), len(other))
    while low < high:
        middle = (low + high) // 2
        if one[middle] == other[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def _is_wide(run: SharedRun, shape: Shape) -> bool:
    return len(run.requests) * shape.group > shape.narrow_rows


def _tiles(run: SharedRun, shape: Shape) -> Iterator[list[int]]:
    """The requests of a run in tiles of about the same size."""
    rows = shape.wide_rows if _is_wide(run, shape) else shape.narrow_rows
    n = -(-len(run.requests) // max(1, rows // shape.group))
    size = -(-len(run.requests) // n)
    for at in range(0, len(run.requests), size):
        yield run.requests[at : at + size]


def _rounded(length: int, chunk: int) -> int:
    return max(1, (2 * length + chunk) // (2 * chunk))


def _pieces(run: SharedRun, n: int) -> Iterator[tuple[int, int]]:
    step = -(-run.length // n)
    step = -(-step // 32) * 32
    for start in range(run.start, run.end, step):
        yield start, min(start + step, run.end)


def _wide_chunk(runs: list[SharedRun], shape: Shape) -> int:
    """The shortest pieces with which all blocks of the wide runs run at once, or in whole waves.

    Where the narrow runs are more work, they get half of the card for themselves. Tiles that fill
    half of a wide block are half the work.
    """
    weights = [
        (run.length, len([*_tiles(run, shape)]) * shape.kv_heads)
        for run in runs
        if _is_wide(run, shape)
    ]
    if not weights:
        return shape.shortest_wide
    work = sum(length * weight for length, weight in weights)
    halves = sum(_halves(run, shape) for run in runs if _is_wide(run, shape))
    few = halves * shape.kv_heads < 2 * _narrow_work(runs, shape)
    at_once = max(1, shape.wide_blocks // 2) if few else shape.wide_blocks
    blocks = -(-sum(weight for _, weight in weights) // at_once) * at_once
    chunk = max(shape.shortest_wide, -(-work // blocks))
    while sum(-(-length // chunk) * weight for length, weight in weights) > blocks:
        chunk += max(1, chunk // 16)
    return chunk


def _halves(run: SharedRun, shape: Shape) -> int:
    """Half tiles of rows that the run's tiles take, times its slots."""
    tiles = [*_tiles(run, shape)]
    is_half = 2 * len(tiles[0]) * shape.group <= shape.wide_rows
    return run.length * len(tiles) * (1 if is_half else 2)


def _narrow_work(runs: list[SharedRun], shape: Shape) -> int:
    narrow = (run for run in runs if not _is_wide(run, shape))
    return sum(run.length * len([*_tiles(run, shape)]) for run in narrow) * shape.kv_heads


def _narrow_chunk(runs: list[SharedRun], shape: Shape) -> int:
    even = -(-_narrow_work(runs, shape) // shape.narrow_blocks)
    return min(max(even, shape.shortest_narrow), shape.longest_narrow)


def _packed(
    rows: Sequence[Int32Array],
    runs: list[SharedRun],
    wide: list[Item],
    narrow: list[Item],
    per_request: list[int],
) -> TreePlan:
    starts = np.concatenate([[0], np.cumsum(per_request)]).astype(np.int32)
    q_indices: list[tuple[int, int]] = []
    growing = np.full(len(rows), NO_ITEM, np.int32)

    def items(kind: list[Item]) -> Int32Array:
        packed = []
        # The longest first, so that the last to start are the first to end.
        for row, start, end, parts in sorted(kind, key=lambda each: each[1] - each[2]):
            packed.append((row, start, end, len(q_indices), len(parts), end, 0, 0))
            q_indices.extend((request, int(starts[request]) + part) for request, part in parts)
        return np.array(packed, np.int32).reshape(-1, 8)

    wide_items, narrow_items = items(wide), items(narrow)
    for at, (row, _, end, _, count, *_) in enumerate(narrow_items):
        if count == 1 and end == len(rows[row]):
            growing[row] = at
    return TreePlan(
        wide_items,
        narrow_items,
        np.array(q_indices, np.int32).reshape(-1, 2),
        starts,
        np.array([(r.row, r.start, r.end, len(r.requests)) for r in runs], np.int32).reshape(-1, 4),
        growing,
    )
