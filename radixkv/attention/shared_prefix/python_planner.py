"""The planner in Python: from the rows of a step to work items."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.attention.shared_prefix.plan import NO_ITEM, Shape, TreePlan
from radixkv.pages import ceil_div, round_up


class SharedRun(NamedTuple):
    """Positions [start, end) that `requests`, and no others, share; read through `row`.

    tokens: new ones of these requests. full_end: the first token sees positions below it, each
    later one a position more; `end` where all of them see the whole run.
    """

    row: int
    start: int
    end: int
    requests: list[int]
    tokens: list[int]
    full_end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class Item(NamedTuple):
    """A piece of a run under a tile of tokens, each with the number of its partial result."""

    row: int
    start: int
    end: int
    parts: list[tuple[int, int]]
    limit: int
    step: int


class PythonPlanner:
    """See `Planner`; the native one gives the same, faster."""

    def __init__(self, rows: Sequence[Int32Array], query_lens: Sequence[int]) -> None:
        self._rows, self._query_lens = rows, query_lens
        self._full_ends = [len(row) - n + 1 for row, n in zip(rows, query_lens, strict=True)]
        first_tokens = accumulate(query_lens, initial=0)
        self._tokens = [[*range(first, after)] for first, after in pairwise(first_tokens)]
        self._runs: dict[int, list[SharedRun]] = {}

    def survey(self, shapes: Sequence[Shape]) -> NDArray[np.int64]:
        return np.array([self._surveyed(shape) for shape in shapes], np.int64)

    def cut(self, shape: Shape) -> TreePlan:
        runs, num_parts = self._shared_runs(shape.share), [0] * len(self._rows)
        wide: list[Item] = []
        narrow: list[Item] = []
        for run, step in zip(runs, _steps(runs, shape), strict=True):
            kind = wide if _is_wide(run, shape) else narrow
            for start in range(run.start, run.end, step):
                end, part = min(start + step, run.end), [num_parts[r] for r in run.requests]
                kind.extend(self._items(run, start, end, part, shape))
                for request in run.requests:
                    num_parts[request] += 1
        return self._packed(runs, wide, narrow, num_parts)

    def _shared_runs(self, share: int) -> list[SharedRun]:
        if share not in self._runs:
            self._runs[share] = [*self._found(share)]
        return self._runs[share]

    def _found(self, share: int) -> Iterator[SharedRun]:
        """Every run that pays to be read once, parents first; each request's own is among them."""
        todo = [([*range(len(self._rows))], 0, 0)]
        while todo:
            group, at, begin = todo.pop()
            later = []
            for same in self._by_slot(group, at):
                if len(same) == 1 or at == self._full_ends[same[0]]:
                    yield from (self._own(r, begin) for r in same if begin < len(self._rows[r]))
                    continue
                end = min(self._common(same[0], other, at) for other in same[1:])
                if (end - begin) * (len(same) - 1) >= share * len(same):
                    tokens = [token for request in same for token in self._tokens[request]]
                    yield SharedRun(same[0], begin, end, same, tokens, end)
                    later.append((same, end, end))
                else:
                    later.append((same, end, begin))
            todo += reversed(later)

    def _own(self, request: int, begin: int) -> SharedRun:
        """The end of a row, which its request alone reads."""
        end, full_end = len(self._rows[request]), self._full_ends[request]
        return SharedRun(request, begin, end, [request], self._tokens[request], full_end)

    def _by_slot(self, group: list[int], at: int) -> Iterable[list[int]]:
        """`group` by the slot at `at`, in order. One of the parts are those that share no more:
        their new tokens see different positions from there on."""
        parts: dict[int, list[int]] = {}
        for request in group:
            is_shared = at < self._full_ends[request]
            slot = int(self._rows[request][at]) if is_shared else -1
            parts.setdefault(slot, []).append(request)
        return parts.values()

    def _common(self, one: int, other: int, low: int) -> int:
        """Length of what two requests have in common and see alike, `low` at least."""
        high = min(self._full_ends[one], self._full_ends[other])
        row, other_row = self._rows[one], self._rows[other]
        while low < high:
            middle = (low + high) // 2
            if row[middle] == other_row[middle]:
                low = middle + 1
            else:
                high = middle
        return low

    def _items(
        self, run: SharedRun, start: int, end: int, parts: list[int], shape: Shape
    ) -> Iterator[Item]:
        """A piece of a run under each of its tiles. parts: the next number of each request."""
        of_token = [
            (token, part)
            for request, part in zip(run.requests, parts, strict=True)
            for token in self._tokens[request]
        ]
        size = _tile_size(run, shape)
        for at in range(0, len(of_token), size):
            limit = run.full_end + at
            sees_all = len(run.requests) > 1 or end <= limit
            ends = (end, 0) if sees_all else (limit, 1)
            yield Item(run.row, start, end, of_token[at : at + size], *ends)

    def _packed(
        self, runs: list[SharedRun], wide: list[Item], narrow: list[Item], num_parts: list[int]
    ) -> TreePlan:
        of_tokens = np.repeat(num_parts, self._query_lens)
        merge_indptr = np.concatenate([[0], np.cumsum(of_tokens)]).astype(np.int32)
        q_indices: list[tuple[int, int]] = []
        growing = np.full(len(self._rows), NO_ITEM, np.int32)

        def packed(kind: list[Item]) -> Int32Array:
            items = []
            # The longest first, so that the last to start are the first to end.
            for row, start, end, parts, limit, step in sorted(kind, key=lambda i: i.start - i.end):
                items.append((row, start, end, len(q_indices), len(parts), limit, step, 0))
                q_indices.extend((token, int(merge_indptr[token]) + part) for token, part in parts)
            return np.array(items, np.int32).reshape(-1, 8)

        wide_items, narrow_items = packed(wide), packed(narrow)
        for at, (row, _, end, _, count, *_) in enumerate(narrow_items):
            if count == self._query_lens[row] == 1 and end == len(self._rows[row]):
                growing[row] = at
        described = [(r.row, r.start, r.end, len(r.requests)) for r in runs]
        return TreePlan(
            wide_items,
            narrow_items,
            np.array(q_indices, np.int32).reshape(-1, 2),
            merge_indptr,
            np.array(described, np.int32).reshape(-1, 4),
            growing,
        )

    def _surveyed(self, shape: Shape) -> list[int]:
        """In the order of `SURVEY`."""
        runs, num_parts = self._shared_runs(shape.share), [0] * len(self._rows)
        # Items, slots, halves, longest.
        wide, narrow = [0, 0, 0, 0], [0, 0, 0, 0]
        for run, step in zip(runs, _steps(runs, shape), strict=True):
            kind = wide if _is_wide(run, shape) else narrow
            pieces, tiles = ceil_div(run.length, step), _num_tiles(run, shape)
            halves = 1 if _tile_size(run, shape) * shape.group <= 64 else 2
            kind[0] += pieces * tiles
            kind[1] += run.length * tiles
            kind[2] += run.length * tiles * halves
            kind[3] = max(kind[3], min(step, run.length))
            for request in run.requests:
                num_parts[request] += pieces
        parts = sum(n * q for n, q in zip(num_parts, self._query_lens, strict=True))
        unique = sum(run.length for run in runs)
        total = sum(run.length * len(run.requests) for run in runs)
        shared = sum(len(run.requests) > 1 for run in runs)
        items, slots, _, longest = narrow
        return [*wide, items, slots, longest, parts, max(num_parts), unique, total, shared]


def _is_wide(run: SharedRun, shape: Shape) -> bool:
    # Only the narrow kernels know of tokens that do not see all of a run.
    return len(run.requests) > 1 and len(run.tokens) * shape.group > shape.narrow_rows


def _num_tiles(run: SharedRun, shape: Shape) -> int:
    rows = shape.wide_rows if _is_wide(run, shape) else shape.narrow_rows
    return ceil_div(len(run.tokens), max(1, rows // shape.group))


def _tile_size(run: SharedRun, shape: Shape) -> int:
    """Tokens of a tile: all tiles of a run are of about the same size."""
    return ceil_div(len(run.tokens), _num_tiles(run, shape))


def _steps(runs: list[SharedRun], shape: Shape) -> Iterator[int]:
    """Slots of the pieces of each run: a multiple of 32, the last piece may be shorter."""
    wide_chunk, narrow_chunk = _wide_chunk(runs, shape), _narrow_chunk(runs, shape)
    for run in runs:
        if _is_wide(run, shape):
            pieces = ceil_div(run.length, wide_chunk)
        else:
            pieces = max(1, (2 * run.length + narrow_chunk) // (2 * narrow_chunk))
        length = ceil_div(run.length, pieces)
        yield round_up(length, 32)


def _wide_chunk(runs: list[SharedRun], shape: Shape) -> int:
    """The shortest pieces with which all blocks of the wide runs run at once, or in whole waves.

    Where the narrow runs are more work, they get half of the card for themselves. Tiles that fill
    half of a wide block are half the work.
    """
    wide = [run for run in runs if _is_wide(run, shape)]
    if not wide:
        return shape.shortest_wide
    weights = [(run.length, _num_tiles(run, shape) * shape.kv_heads) for run in wide]
    work = sum(length * weight for length, weight in weights)
    halves = sum(_halves(run, shape) for run in wide) * shape.kv_heads
    few = halves < 2 * _narrow_work(runs, shape)
    at_once = max(1, shape.wide_blocks // 2) if few else shape.wide_blocks
    blocks = round_up(sum(weight for _, weight in weights), at_once)
    chunk = max(shape.shortest_wide, ceil_div(work, blocks))
    while sum(ceil_div(length, chunk) * weight for length, weight in weights) > blocks:
        chunk += max(1, chunk // 16)
    return chunk


def _halves(run: SharedRun, shape: Shape) -> int:
    """Half tiles of rows that the run's tiles take, times its slots."""
    is_half = 2 * _tile_size(run, shape) * shape.group <= shape.wide_rows
    return run.length * _num_tiles(run, shape) * (1 if is_half else 2)


def _narrow_work(runs: list[SharedRun], shape: Shape) -> int:
    narrow = (run for run in runs if not _is_wide(run, shape))
    return sum(run.length * _num_tiles(run, shape) for run in narrow) * shape.kv_heads


def _narrow_chunk(runs: list[SharedRun], shape: Shape) -> int:
    even = ceil_div(_narrow_work(runs, shape), shape.narrow_blocks)
    return min(max(even, shape.shortest_narrow), shape.longest_narrow)
