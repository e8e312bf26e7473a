"""A cache that knows the future: evict what is needed farthest in the future.

No cache can do this. It is a reference for what is left to win, neither the optimum nor a bound: it
is greedy (a long prompt may be worth less than two short ones in its place), and it serves requests
in their order (another order may have more hits).
"""

from dataclasses import dataclass
from heapq import heappop, heappush

from radixkv.arguments import at_least
from radixkv.lab.replay.paths import Paths, Runs
from radixkv.pages import round_down

NEVER = 2**62


def clairvoyant_hit_rate(paths: Paths, capacity: int) -> float:
    """The hit rate of a cache of `capacity` tokens that knows all later requests.

    Of requests one after another, as `replay` serves them with one in flight. Raises
    InvalidArgumentError for a capacity below 0.
    """
    at_least(0, capacity=capacity)
    cache = _Cache(paths, round_down(capacity, paths.page_size))
    hits = sum(cache.serve(request) for request in range(len(paths.ends)))
    return hits / max(int(paths.prompt_tokens.sum()), 1)


@dataclass(slots=True)
class LeafInterval:
    """What is cached of a run, and when it is needed: the next time last."""

    cached: int
    children: int
    needed: list[int]


class _Cache:
    def __init__(self, paths: Paths, capacity: int) -> None:
        self.paths, self.room = paths, capacity
        self.runs = [LeafInterval(0, 0, [NEVER]) for _ in paths.lengths]
        for request in range(len(paths.ends) - 1, -1, -1):
            for run in paths.path(request):
                self.runs[run].needed.append(request)
        # Leaves, the one needed last first; some are out of date.
        self.leaves: list[tuple[int, int]] = []

    def serve(self, request: int) -> int:
        """The tokens of a request that were cached; then all of them are."""
        path, cached = self.paths.path(request), 0
        for number in path:
            run = self.runs[number]
            run.needed.pop()
            cached += run.cached
            self._fill(number, run)
        self._note_leaves(path[-1:])
        while self.room < 0:
            self._evict()
        return self.paths.hits(request, cached)

    def _fill(self, number: int, run: LeafInterval) -> None:
        parent = self.paths.parents[number]
        if not run.cached and parent >= 0:
            self.runs[parent].children += 1
        self.room -= self.paths.lengths[number] - run.cached
        run.cached = self.paths.lengths[number]

    def _note_leaves(self, runs: Runs) -> None:
        for number in runs:
            if not self.runs[number].children:
                heappush(self.leaves, (-self.runs[number].needed[-1], number))

    def _evict(self) -> None:
        needed, number = self.leaves[0]
        run = self.runs[number]
        if run.children or not run.cached or run.needed[-1] != -needed:
            heappop(self.leaves)
            return
        gone = min(-self.room, run.cached)
        run.cached -= gone
        self.room += gone
        if not run.cached:
            heappop(self.leaves)
            self._lose_child(self.paths.parents[number])

    def _lose_child(self, number: int) -> None:
        if number >= 0:
            self.runs[number].children -= 1
            self._note_leaves([number])
