"""A small PrefixCache of any kind, and choices of what to do with it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from radixkv import DEFAULT, Namespace, PrefixCache
from radixkv.tree import POLICIES
from radixkv.tree.shares import NO_SHARES, Share, Shares
from tests.support.cache_compare import ComparedCache, Pair
from tests.support.caches import Memory
from tests.support.oracle import Fence, Oracle

T = TypeVar("T")

MAX_REQUESTS = 4
SYMBOLS = (1, 2, 3)
SPACES = (DEFAULT, Namespace(salt="a"), Namespace(adapter="a"))
CONTENT_IDS = (b"x", b"y")
# Reserves together fit the smallest pool.
SHARES: tuple[Shares, ...] = (
    NO_SHARES,
    NO_SHARES,
    {"a": Share(reserve=8)},
    {"a": Share(reserve=4, cap=6), None: Share(reserve=3, cap=9)},
    {None: Share(cap=5)},
)


class Choices(Protocol):
    """Who decides what happens next."""

    def between(self, low: int, high: int) -> int:
        """An int, both ends included."""

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""

    def chance(self, percent: int) -> bool:
        """True about so often."""


class ChosenCache(ComparedCache):
    """A small cache of any kind, and choices of what to do with it."""

    def __init__(self, choose: Choices, core: str | None = None) -> None:
        self.choose = choose
        page_size = choose.pick((1, 4))
        num_slots = choose.pick((16, 16, 8 * page_size))
        max_context_len = choose.pick((None, None, 11))
        max_cached_tokens = choose.pick((None, None, None, 6, 0))
        shares = choose.pick(SHARES) if max_cached_tokens is None else NO_SHARES
        memory = Memory(num_slots + page_size)
        self.copies_itself = choose.chance(50)
        cache = PrefixCache(
            num_slots,
            max_requests=MAX_REQUESTS,
            max_context_len=max_context_len,
            page_size=page_size,
            policy=choose.pick(sorted(POLICIES)),
            core=core,
            kv=memory if self.copies_itself else None,
            max_cached_tokens=max_cached_tokens,
            shares=shares,
        )
        longest = max_context_len or num_slots
        oracle = Oracle(num_slots, page_size, MAX_REQUESTS, longest, max_cached_tokens, shares)
        super().__init__(cache, oracle, memory)
        self.fences: list[Fence] = []

    def tokens(self, low: int, high: int) -> list[int]:
        return [self.choose.pick(SYMBOLS) for _ in range(self.choose.between(low, high))]

    def spans(self, length: int) -> list[tuple[int, int, bytes]]:
        spans, end = [], 0
        while self.choose.chance(20):
            start = end + self.choose.between(0, 2)
            size = self.choose.between(1, 3)
            if start + size > length:
                break
            spans.append((start, size, self.choose.pick(CONTENT_IDS)))
            end = start + size
        return spans

    def prompt(self) -> tuple[list[int], list[tuple[int, int, bytes]], Namespace]:
        """Something new, or how something known begins."""
        if self.pairs and self.choose.chance(70):
            twin = self.choose.pick(self.pairs).twin
            tokens = (twin.tokens[: self.choose.pick((10, 8, 5, 2))] + self.tokens(0, 3)) or [1]
            spans = [span for span in twin.spans if span[0] + span[1] <= len(tokens)]
            space = replace(twin.namespace, weight_version=0)
        else:
            page = self.oracle.page_size
            low, high = self.choose.pick(((1, 4), (page, 6), (page + 1, 8), (page, 18)))
            tokens = self.tokens(low, high)
            spans, space = self.spans(len(tokens)), self.choose.pick(SPACES)
        if self.choose.chance(10):
            space = self.choose.pick(SPACES)
        if self.choose.chance(10):
            space = replace(space, weight_version=self.choose.between(0, 2))
        return tokens, spans, space

    def is_stale(self, space: Namespace) -> bool:
        return space.weight_version not in (0, self.oracle.weight_version)

    def now(self, space: Namespace) -> Namespace:
        return replace(space, weight_version=self.oracle.weight_version)

    def pair(self) -> Pair:
        """Mostly a live one."""
        live = [pair for pair in self.pairs if pair.request.state == "running"]
        pairs = self.pairs if not live or self.choose.chance(10) else live
        return self.choose.pick(pairs)

    def fence(self) -> Fence | None:
        if not self.choose.chance(20):
            return None
        if self.fences and self.choose.chance(50):
            return self.fences[-1]
        self.fences.append(Fence())
        return self.fences[-1]
