"""From the rows of a decode batch to items: every shared run of slots once, in even pieces.

    rows            runs                                   items
    a b c d e       [a b] by 3 requests                    pieces of a run x tiles of its requests
    a b c x         [c]   by 2        [d e] [x] [y z]
    a b y z

Rows share a slot at a position only if they share all before it: that is how a prefix cache hands
slots out, and what lets a common prefix be found by bisection.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]

NativePlanner = Callable[[Sequence[Int32Array], Int32Array], tuple[Int32Array, ...]]
_native: NativePlanner | None
try:
    from radixkv.kernels._planner import plan_tree as _native
except ImportError:
    _native = None

NO_ITEM = -1
# Steps after which a batch is cut anew, so that what grows stays even.
MAX_ADVANCES = 64


@dataclass(frozen=True)
class Shape:
    """What cutting depends on: the model's heads, and what runs well on the card.

    group: query heads a KV head. narrow_rows, wide_rows: query rows (requests x group) of an item
    of either kind. wide_blocks, narrow_blocks: blocks the card runs at once, a block being an item
    and a KV head. share: slots a request must save for its share of a run to pay.
    """

    group: int
    kv_heads: int
    narrow_rows: int = 16
    wide_rows: int = 128
    wide_blocks: int = 132
    narrow_blocks: int = 792
    shortest_wide: int = 256
    shortest_narrow: int = 256
    longest_narrow: int = 1024
    share: int = 64

    @property
    def options(self) -> Int32Array:
        """All of it in order, as the native planner takes it."""
        return np.array(list(vars(self).values()), np.int32)


# Row, start, end, and each request with the number of its partial result.
Item = tuple[int, int, int, list[tuple[int, int]]]


class Run(NamedTuple):
    """Positions [start, end) that `requests`, and nobody else, share; read through `row`."""

    row: int
    start: int
    end: int
    requests: list[int]

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass
class TreePlan:
    """Items (see `radixkv.kernels.gpu.attend`) of both kinds, and where their results go.

    runs: (n, 4) int32, each (row, start, end, requests). starts: (requests + 1,) int32, of the
    partial results of each request. growing: the narrow item at the end of each row, or NO_ITEM
    where that is shared. unique, total: distinct slots, and slots that all requests see together.
    """

    wide: Int32Array
    narrow: Int32Array
    members: Int32Array
    starts: Int32Array
    runs: Int32Array
    growing: Int32Array
    advances: int = field(default=0, compare=False)

    @property
    def unique(self) -> int:
        return int((self.runs[:, 2] - self.runs[:, 1]).sum()) + self.advances * len(self.growing)

    @property
    def total(self) -> int:
        lengths = (self.runs[:, 2] - self.runs[:, 1]).astype(np.int64)
        return int(lengths @ self.runs[:, 3]) + self.advances * len(self.growing)

    def advance(self) -> bool:
        """Every row has one slot more; False, and nothing changed, where that takes a new plan."""
        if self.advances == MAX_ADVANCES or (self.growing == NO_ITEM).any():
            return False
        self.narrow[self.growing, 2] += 1
        self.narrow[self.growing, 5] += 1
        self.advances += 1
        return True


def plan_rows(rows: Sequence[Int32Array], shape: Shape) -> TreePlan:
    """`plan_tree` by the native planner where it is built."""
    if _native is None:
        return plan_tree(rows, shape)
    wide, narrow, members, starts, runs, growing = _native(rows, shape.options)
    return TreePlan(wide, narrow, members, starts, runs, growing)


def plan_tree(rows: Sequence[Int32Array], shape: Shape) -> TreePlan:
    """The plan of a decode batch, in Python; the native planner gives the same, faster.

    rows: one (context length,) int32 array a request, the new token's slot at its end.
    """
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


def find_runs(rows: Sequence[Int32Array], share: int) -> Iterator[Run]:
    """Every run that pays to be read once, parents first; each request's own run is among them."""
    todo = [([*range(len(rows))], 0, 0)]
    while todo:
        group, at, begin = todo.pop()
        later = []
        for same in _by_slot(rows, group, at):
            if len(same) == 1 or at == len(rows[same[0]]):
                yield from (Run(r, begin, len(rows[r]), [r]) for r in same if begin < len(rows[r]))
                continue
            end = min(_common(rows[same[0]], rows[other], at) for other in same[1:])
            if (end - begin) * (len(same) - 1) >= share * len(same):
                yield Run(same[0], begin, end, same)
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


def _is_wide(run: Run, shape: Shape) -> bool:
    return len(run.requests) * shape.group > shape.narrow_rows


def _tiles(run: Run, shape: Shape) -> Iterator[list[int]]:
    """The requests of a run in tiles of about the same size."""
    rows = shape.wide_rows if _is_wide(run, shape) else shape.narrow_rows
    n = -(-len(run.requests) // max(1, rows // shape.group))
    size = -(-len(run.requests) // n)
    for at in range(0, len(run.requests), size):
        yield run.requests[at : at + size]


def _rounded(length: int, chunk: int) -> int:
    return max(1, (2 * length + chunk) // (2 * chunk))


def _pieces(run: Run, n: int) -> Iterator[tuple[int, int]]:
    step = -(-run.length // n)
    step = -(-step // 32) * 32
    for start in range(run.start, run.end, step):
        yield start, min(start + step, run.end)


def _wide_chunk(runs: list[Run], shape: Shape) -> int:
    """The shortest pieces with which all blocks of the wide runs run at once, or in full turns.

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


def _halves(run: Run, shape: Shape) -> int:
    """Half tiles of rows that the run's tiles take, times its slots."""
    tiles = [*_tiles(run, shape)]
    is_half = 2 * len(tiles[0]) * shape.group <= shape.wide_rows
    return run.length * len(tiles) * (1 if is_half else 2)


def _narrow_work(runs: list[Run], shape: Shape) -> int:
    narrow = (run for run in runs if not _is_wide(run, shape))
    return sum(run.length * len([*_tiles(run, shape)]) for run in narrow) * shape.kv_heads


def _narrow_chunk(runs: list[Run], shape: Shape) -> int:
    even = -(-_narrow_work(runs, shape) // shape.narrow_blocks)
    return min(max(even, shape.shortest_narrow), shape.longest_narrow)


def _packed(
    rows: Sequence[Int32Array],
    runs: list[Run],
    wide: list[Item],
    narrow: list[Item],
    per_request: list[int],
) -> TreePlan:
    starts = np.concatenate([[0], np.cumsum(per_request)]).astype(np.int32)
    members: list[tuple[int, int]] = []
    growing = np.full(len(rows), NO_ITEM, np.int32)

    def items(kind: list[Item]) -> Int32Array:
        packed = []
        # The longest first, so that the last to start are the first to end.
        for row, start, end, parts in sorted(kind, key=lambda each: each[1] - each[2]):
            packed.append((row, start, end, len(members), len(parts), end, 0, 0))
            members.extend((request, int(starts[request]) + part) for request, part in parts)
        return np.array(packed, np.int32).reshape(-1, 8)

    wide_items, narrow_items = items(wide), items(narrow)
    for at, (row, _, end, _, count, *_) in enumerate(narrow_items):
        if count == 1 and end == len(rows[row]):
            growing[row] = at
    return TreePlan(
        wide_items,
        narrow_items,
        np.array(members, np.int32).reshape(-1, 2),
        starts,
        np.array([(r.row, r.start, r.end, len(r.requests)) for r in runs], np.int32).reshape(-1, 4),
        growing,
    )
