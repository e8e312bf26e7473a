"""Counters and sizes of a cache."""

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Tokens since the cache was made."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    resumed_tokens: int = 0
    published_tokens: int = 0
    evicted_tokens: int = 0
    lookup_tokens: int = 0
    hit_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """One moment. Sizes are tokens: free + allocated + evictable + protected + waiting = num_slots.

    prompt_tokens, cached_tokens: of first admissions; what a resumed request finds of its own is
    resumed_tokens. lookup_tokens, hit_tokens: of admissions and of `match_prefix`.
    """

    num_slots: int
    free: int
    allocated: int
    evictable: int
    protected: int
    waiting: int
    num_nodes: int
    live_requests: int
    prompt_tokens: int
    cached_tokens: int
    resumed_tokens: int
    published_tokens: int
    evicted_tokens: int
    lookup_tokens: int
    hit_tokens: int
    epoch: int
    revision: int
