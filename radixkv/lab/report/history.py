"""All that a cache was ever shown, and what became of it.

Every token of every prefix has a number of its own, given when it first comes. Requests that share
a prefix share its numbers:

    request 0   a b c d     1 2 3 4
    request 1   a b x       1 2 5
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.cache.events import Event
from radixkv.tree import Namespace, Stored, Trimmed, new_tree

NEVER = -1


class History:
    """The prefixes that were shown, as if nothing were ever evicted.

    Memory: some 8 bytes for each distinct token of a prefix.
    """

    def __init__(self) -> None:
        self._tree = new_tree()
        self._starts: list[int] = []  # the first new number at each time
        self._times: list[int] = []
        self.size = 1  # numbers given so far, 0 apart

    def numbers(self, token_ids: Int32Array, namespace: Namespace) -> Int32Array:
        """The numbers of the leading tokens that were shown before; a copy."""
        return self._tree.match_prefix(token_ids, namespace).slots

    def add(self, token_ids: Int32Array, namespace: Namespace, time: int) -> Int32Array:
        """The numbers of all tokens, from now on shown; `time` never goes back."""
        known = self.numbers(token_ids, namespace)
        end = self.size + len(token_ids) - len(known)
        numbers = np.concatenate([known, np.arange(self.size, end, dtype=np.int32)])
        self._tree.insert(token_ids, numbers, namespace)
        if end > self.size:
            self._starts.append(self.size)
            self._times.append(time)
        self.size = end
        return numbers

    def first_shown(self, number: int) -> int:
        """The time at which the token of this number first came."""
        return self._times[bisect_right(self._starts, number) - 1]


@dataclass(slots=True)
class _StoredSpan:
    """What one insert added: the numbers of its tokens and how many stand above them."""

    depth: int
    numbers: Int32Array
    stored_at: int


class Evictions:
    """When each token last left the cache, learnt from the cache's events."""

    def __init__(self) -> None:
        self._runs: dict[int, _StoredSpan] = {}
        self._time = np.full(1024, NEVER, np.int32)
        self._is_own = np.zeros(1024, np.bool_)

    def follow(self, events: Iterable[Event], path: Int32Array, time: int) -> None:
        """What changed while the request whose tokens have these numbers was served."""
        for event in events:
            if isinstance(event.change, Stored):
                self._store(event.change, path, time)
            elif isinstance(event.change, Trimmed):
                self._trim(event.change, time)

    def times(self, numbers: Int32Array) -> Int32Array:
        """When each was last evicted, `NEVER` if it was not."""
        self._grow(int(numbers.max(initial=0)))
        return self._time[numbers]

    def are_own(self, numbers: Int32Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether each was evicted as it came: its own prompt had no room."""
        self._grow(int(numbers.max(initial=0)))
        return self._is_own[numbers]

    def _store(self, stored: Stored, path: Int32Array, time: int) -> None:
        parent = self._runs.get(stored.parent_run)
        depth = parent.depth + stored.parent_offset if parent else 0
        numbers = path[depth : depth + len(stored.codes)]
        self._runs[stored.run] = _StoredSpan(depth, numbers, time)

    def _trim(self, trimmed: Trimmed, time: int) -> None:
        run = self._runs[trimmed.run]
        gone = run.numbers[trimmed.keep :]
        self._grow(int(gone.max(initial=0)))
        self._time[gone] = time
        self._is_own[gone] = run.stored_at == time
        run.numbers = run.numbers[: trimmed.keep]
        if not trimmed.keep:
            del self._runs[trimmed.run]

    def _grow(self, number: int) -> None:
        if number >= len(self._time):
            more = max(number + 1 - len(self._time), len(self._time))
            self._time = np.append(self._time, np.full(more, NEVER, np.int32))
            self._is_own = np.append(self._is_own, np.zeros(more, np.bool_))
