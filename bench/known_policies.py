"""Known policies, adapted to a tree of prefixes: what `adaptive` was weighed against.

Each works on the runs of a log (`radixkv.lab.replay.paths`), evicts leaves only and trims the last
victim, as the tree does; nothing is pinned. They show what an idea gives, and make no claim about
the systems that it is named after.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from radixkv.lab.replay.paths import Paths


class Policy:
    """LRU: the leaf used last longest ago goes."""

    def __init__(self, paths: Paths, capacity: int) -> None:
        self.paths, self.capacity = paths, capacity
        self.cached = [0] * len(paths.lengths)
        self.children = [0] * len(paths.lengths)
        self.leaves: set[int] = set()
        self.last = [0] * len(paths.lengths)
        self.size = self.request = 0

    def hit_rate(self) -> float:
        total = int(self.paths.prompt_tokens.sum())
        return sum(map(self.serve, range(len(self.paths.ends)))) / total

    def serve(self, request: int) -> int:
        self.request = request
        path, found = self.paths.path(request), 0
        for run in path:
            there = self.cached[run]
            found += there
            self.fill(run)
            self.use(run, path, there)
            self.last[run] = request
        while self.size > self.capacity:
            self.evict(self.victim())
        return self.paths.hits(request, found)

    def fill(self, run: int) -> None:
        parent = self.paths.parents[run]
        if not self.cached[run] and parent >= 0:
            self.children[parent] += 1
            self.leaves.discard(parent)
        self.size += self.paths.lengths[run] - self.cached[run]
        self.cached[run] = self.paths.lengths[run]
        if not self.children[run]:
            self.leaves.add(run)

    def evict(self, run: int) -> None:
        gone = min(self.size - self.capacity, self.cached[run])
        self.cached[run] -= gone
        self.size -= gone
        self.lose(run, gone)
        if self.cached[run]:
            return
        self.leaves.discard(run)
        parent = self.paths.parents[run]
        if parent >= 0:
            self.children[parent] -= 1
            if not self.children[parent]:
                self.leaves.add(parent)

    def oldest(self, leaves: Iterable[int]) -> int:
        return min(leaves, key=lambda run: (self.last[run], run))

    # ---- what policies change ----

    def use(self, run: int, path: list[int], there: int) -> None:
        """A run is asked for, of which `there` tokens were cached."""

    def lose(self, run: int, tokens: int) -> None:
        """So many tokens of a run are evicted."""

    def victim(self) -> int:
        return self.oldest(self.leaves)


class Arc(Policy):
    """ARC: once used and often used, each LRU; ghosts of both move the border between them."""

    def __init__(self, paths: Paths, capacity: int) -> None:
        super().__init__(paths, capacity)
        self.is_often = [False] * len(paths.lengths)
        self.once_size = 0
        self.border = 0.0
        self.ghosts: tuple[OrderedDict[int, int], OrderedDict[int, int]] = (
            OrderedDict(),
            OrderedDict(),
        )
        self.ghost_size = [0, 0]

    def use(self, run: int, path: list[int], there: int) -> None:
        tokens = self.paths.lengths[run]
        if there:
            self.once_size -= 0 if self.is_often[run] else there
            self.is_often[run] = True
            return
        self.is_often[run] = False
        for often, ghosts in enumerate(self.ghosts):
            if run in ghosts:
                self.ghost_size[often] -= ghosts.pop(run)
                other = self.ghost_size[1 - often] / max(self.ghost_size[often], 1)
                step = max(1.0, other) * tokens
                self.border += -step if often else step
                self.border = min(max(self.border, 0.0), float(self.capacity))
                self.is_often[run] = True
        self.once_size += 0 if self.is_often[run] else tokens

    def lose(self, run: int, tokens: int) -> None:
        often = self.is_often[run]
        self.once_size -= 0 if often else tokens
        ghosts = self.ghosts[often]
        ghosts[run] = ghosts.pop(run, 0) + tokens
        self.ghost_size[often] += tokens
        while self.ghost_size[often] > self.capacity:
            self.ghost_size[often] -= ghosts.popitem(last=False)[1]

    def victim(self) -> int:
        once = [run for run in self.leaves if not self.is_often[run]]
        often = [run for run in self.leaves if self.is_often[run]]
        chosen = once if self.once_size > self.border else often
        return self.oldest(chosen or once or often)


class S3Fifo(Policy):
    """S3-FIFO: a tenth for what is new; what was used there goes to the main queue, not out."""

    def __init__(self, paths: Paths, capacity: int) -> None:
        super().__init__(paths, capacity)
        self.uses = [0] * len(paths.lengths)
        self.is_main = [False] * len(paths.lengths)
        self.entered = [0] * len(paths.lengths)
        self.ghosts: OrderedDict[int, int] = OrderedDict()
        self.ghost_size = self.small_size = self.clock = 0

    def enter(self, run: int) -> None:
        self.clock += 1
        self.entered[run] = self.clock

    def use(self, run: int, path: list[int], there: int) -> None:
        tokens = self.paths.lengths[run]
        if there:
            self.uses[run] = min(self.uses[run] + 1, 3)
            self.small_size += 0 if self.is_main[run] else tokens - there
            return
        self.uses[run] = 0
        self.is_main[run] = run in self.ghosts
        self.ghost_size -= self.ghosts.pop(run, 0)
        self.small_size += 0 if self.is_main[run] else tokens
        self.enter(run)

    def lose(self, run: int, tokens: int) -> None:
        if self.is_main[run]:
            return
        self.small_size -= tokens
        self.ghosts[run] = self.ghosts.pop(run, 0) + tokens
        self.ghost_size += tokens
        while self.ghost_size > self.capacity:
            self.ghost_size -= self.ghosts.popitem(last=False)[1]

    def victim(self) -> int:
        while True:
            small = [run for run in self.leaves if not self.is_main[run]]
            main = [run for run in self.leaves if self.is_main[run]]
            from_small = small and (self.small_size > self.capacity / 10 or not main)
            run = min(small if from_small else main, key=self.entered.__getitem__)
            if not self.uses[run]:
                return run
            self.uses[run] -= 0 if from_small else 1
            if from_small:
                self.is_main[run] = True
                self.small_size -= self.cached[run]
                self.uses[run] = 0
            self.enter(run)


class Sieve(Policy):
    """SIEVE: a hand goes through the queue from old to new and spares once what was used."""

    def __init__(self, paths: Paths, capacity: int) -> None:
        super().__init__(paths, capacity)
        self.entered = [0] * len(paths.lengths)
        self.was_used = [False] * len(paths.lengths)
        self.clock = self.hand = 0

    def use(self, run: int, path: list[int], there: int) -> None:
        self.was_used[run] = there > 0
        if not there:
            self.clock += 1
            self.entered[run] = self.clock

    def victim(self) -> int:
        queue = sorted(self.leaves, key=self.entered.__getitem__)
        ahead = [run for run in queue if self.entered[run] >= self.hand]
        for run in [*ahead, *queue, *queue]:
            self.hand = self.entered[run]
            if not self.was_used[run]:
                return run
            self.was_used[run] = False
        return queue[0]


class SetDuelling(Policy):
    """Set duelling: LRU against entering at the cold end, all but one request in 32.

    One branch in 16 always does the one, one the other; the rest does what misses less.
    """

    def __init__(self, paths: Paths, capacity: int) -> None:
        super().__init__(paths, capacity)
        self.key = [0] * len(paths.lengths)
        self.score = 0

    def use(self, run: int, path: list[int], there: int) -> None:
        team = (path[min(1, len(path) - 1)] * 2654435761 >> 8) % 16
        missed = self.paths.lengths[run] - there
        bound = 4 * self.capacity
        self.score += {0: missed, 1: -missed}.get(team, 0)
        self.score = min(max(self.score, -bound), bound)
        is_cold = team == 1 or (team > 1 and self.score > 0)
        stays_out = is_cold and not there and self.request % 32
        self.key[run] = -self.request if stays_out else self.request

    def victim(self) -> int:
        return min(self.leaves, key=lambda run: (self.key[run], run))


class ColdEnd(SetDuelling):
    """Entering at the cold end alone."""

    def use(self, run: int, path: list[int], there: int) -> None:
        self.key[run] = -self.request if not there and self.request % 32 else self.request


KNOWN_POLICIES: dict[str, Callable[[Paths, int], Policy]] = {
    "arc-like": Arc,
    "s3-fifo-like": S3Fifo,
    "sieve-like": Sieve,
    "duel-like": SetDuelling,
    "cold end": ColdEnd,
}
