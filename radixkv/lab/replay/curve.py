"""The whole curve of hit rate against capacity, in one pass.

Under LRU a tree of prefixes is a stack: what was used last lies on top, of one request the
beginning of its prompt, and a cache of C tokens holds the uppermost C. So a token is a hit in every
cache larger than its depth in the stack (Mattson, 1970), and one pass that finds the depths of all
tokens answers for all capacities at once, exactly. It costs a few steps for each request that a
path was last used by, not for each token: what one request used last lies together.

Other policies are not stacks. `sampled_curve` replays them through real caches on a log that was
made small: of its tree (see `paths.py`) only each k-th token is kept, and capacities shrink alike.
That keeps every prompt, every branch and all sharing; a sample of prompts or of prefixes would
not, since most prompts share their first tokens. LRU on the same sample, where the exact answer is
known, shows how far the sample is off; that is subtracted from the answer and given as its error.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from radixkv.arguments import at_least
from radixkv.arrays import INT32_MAX
from radixkv.errors import InvalidArgumentError
from radixkv.lab.logs.requests import Indices, ListedLog, LoggedRequest
from radixkv.lab.replay.paths import Paths
from radixkv.lab.replay.replay import replay
from radixkv.lab.replay.setting import Setting
from radixkv.pages import ceil_div, round_down


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Hit rates under LRU at every capacity.

    depths, tokens: (m,) int64, stretches of the log's tokens that were used before, and how deep
    each began to lie in the stack when it was used again.
    """

    depths: Indices
    tokens: Indices
    prompt_tokens: int
    page_size: int

    def hit_rate(self, capacity: int) -> float:
        """Of a cache of `capacity` tokens; what a replay of it gives. Cost: O(m)."""
        at_least(0, capacity=capacity)
        room = round_down(capacity, self.page_size) - self.depths
        return float(np.clip(room, 0, self.tokens).sum() / max(self.prompt_tokens, 1))

    @property
    def largest_useful(self) -> int:
        """The capacity above which more brings nothing."""
        return int((self.depths + self.tokens).max(initial=0))

    def capacity_for(self, hit_rate: float) -> int | None:
        """The least capacity (within a page) that reaches `hit_rate`; None if no capacity does."""
        low, high = 0, ceil_div(self.largest_useful, self.page_size)
        if self.hit_rate(high * self.page_size) < hit_rate:
            return None
        while low < high:
            middle = (low + high) // 2
            if self.hit_rate(middle * self.page_size) < hit_rate:
                low = middle + 1
            else:
                high = middle
        return high * self.page_size


def lru_curve(paths: Paths) -> Curve:
    """The curve of requests one after another, as `replay` serves them with one in flight.

    Cost: O(log requests) for each request that a path was last used by, and O(runs) a path.
    """
    stack = _Stack(len(paths.ends))
    last_use = [-1] * len(paths.lengths)
    found: list[tuple[int, int]] = []
    for request in range(len(paths.ends)):
        path = paths.path(request)
        most = min(int(paths.most_hits[request]), int(paths.prompt_tokens[request]) - 1)
        moved = 0
        for user, tokens in _by_last_use(path, last_use, paths.lengths):
            if user >= 0 and moved < most:
                found.append((moved + stack.above(user), min(tokens, most - moved)))
            if user >= 0:
                stack.add(user, -tokens)
            moved += tokens
        for run in path:
            last_use[run] = request
        stack.add(request, moved)
    stretches = np.array(found, np.int64).reshape(-1, 2)
    return Curve(stretches[:, 0], stretches[:, 1], int(paths.prompt_tokens.sum()), paths.page_size)


def _by_last_use(
    path: Iterable[int], last_use: Sequence[int], lengths: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """What each request was the last to use of a path, from its beginning on: it lies together."""
    user, tokens = -1, 0
    for run in path:
        if tokens and last_use[run] != user:
            yield user, tokens
            tokens = 0
        user = last_use[run]
        tokens += lengths[run]
    if tokens:
        yield user, tokens


class _Stack:
    """Tokens by the request that used them last: a Fenwick tree."""

    def __init__(self, requests: int) -> None:
        self._sums = [0] * (requests + 1)
        self._total = 0

    def add(self, request: int, tokens: int) -> None:
        self._total += tokens
        at = request + 1
        while at < len(self._sums):
            self._sums[at] += tokens
            at += at & -at

    def above(self, request: int) -> int:
        """Tokens that a later request used."""
        below, at = 0, request + 1
        while at:
            below += self._sums[at]
            at &= at - 1
        return self._total - below


@dataclass(frozen=True, slots=True)
class Sampled:
    """A hit rate from each `every`-th token; `error`: how far the sample was off under LRU."""

    capacity: int
    hit_rate: float
    every: int
    error: float


def sampled_curve(paths: Paths, capacities: Sequence[int], policy: str) -> list[Sampled]:
    """Hit rates of any policy at `capacities`, from replays of a sample of the tokens.

    The sampled cache has at least 8,192 tokens and at least a 64th of the capacity. Raises
    InvalidArgumentError for paths of pages above 1, and for what `Setting` refuses.
    """
    check_sampled(paths.page_size)
    exact, logs = lru_curve(paths), _Shrunk(paths)
    return [_sample(logs, exact, capacity, policy) for capacity in capacities]


def check_sampled(page_size: int) -> None:
    """Raises InvalidArgumentError for a page size without a sampled curve."""
    if page_size != 1:
        raise InvalidArgumentError(
            f"page_size of a sampled curve must be 1; got {page_size}", page_size=page_size
        )


def _sample(logs: "_Shrunk", exact: Curve, capacity: int, policy: str) -> Sampled:
    every = min(max(capacity // 8192, 1), 64)
    error = logs.hit_rate(every, capacity, "lru") - exact.hit_rate(capacity) if every > 1 else 0.0
    return Sampled(capacity, logs.hit_rate(every, capacity, policy) - error, every, error)


class _Shrunk:
    """A log with each k-th token of its tree, in the order of `Paths`."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._total = max(int(paths.prompt_tokens.sum()), 1)
        self._logs: dict[int, ListedLog] = {}

    def hit_rate(self, every: int, capacity: int, policy: str) -> float:
        if every not in self._logs:
            self._logs[every] = shrink(self._paths, every)
        found = replay(self._logs[every], _sampled(capacity // every, policy))
        return float(found.cached_tokens.sum() * every / self._total)


def _sampled(capacity: int, policy: str) -> Setting:
    # A request of the sample may be longer than the small cache, and is served nevertheless.
    return Setting(capacity=capacity, policy=policy, capacity_of="cache")


def shrink(paths: Paths, every: int) -> ListedLog:
    """The log with each `every`-th token of its tree; every token is a number of its own."""
    ends = np.cumsum(paths.lengths) // every
    starts = np.concatenate([[0], ends[:-1]])
    runs = [np.arange(start, end, dtype=np.int32) for start, end in zip(starts, ends, strict=True)]
    # One more token at the end: all tokens of a prompt but the last can be hits.
    last = np.array([INT32_MAX], np.int32)
    return ListedLog(
        LoggedRequest(
            at, str(at), 0, None, np.concatenate([*(runs[run] for run in paths.path(at)), last])
        )
        for at in range(len(paths.ends))
    )
