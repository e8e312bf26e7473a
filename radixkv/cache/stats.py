"""Counters and sizes of a cache."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Totals:
    """Tokens since the cache was made; they only grow.

    prompt_tokens, cached_tokens: of first admissions, and of these what was cached already.
    resumed_tokens: what resumed requests found cached. published_tokens: newly stored in the tree.
    evicted_tokens: by any call, for any reason. lookup_tokens, hit_tokens: of admissions and of
    `match_prefix`, `match_batch`, `match_lengths` and `pin`.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    resumed_tokens: int = 0
    published_tokens: int = 0
    evicted_tokens: int = 0
    lookup_tokens: int = 0
    hit_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class CacheStats(Totals):
    """One moment: the totals, and sizes in slots, which are tokens, one each.

    free + allocated + evictable + protected + waiting = num_slots. allocated: held by live requests
    outside the tree, or on loan. waiting: behind a fence, retired or set aside. num_nodes: of the
    tree, roots not counted. epoch, revision: of the event log.
    """

    num_slots: int
    free: int
    allocated: int
    evictable: int
    protected: int
    waiting: int
    num_nodes: int
    live_requests: int
    epoch: int
    revision: int
