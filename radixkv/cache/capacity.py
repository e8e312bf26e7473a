"""What half, twice or four times the memory would give, estimated while the cache runs.

Under LRU a cache of C tokens holds the C tokens that were used last (of one request, the beginning
first), whatever the shape of the tree: so a stack of what was used shows for every capacity whether
a token would have been a hit. This keeps a small part of that stack: one prefix in so many, chosen
by its hash, so that a prefix is watched each time that it comes, or never (as SHARDS does it for
blocks, Waldspurger 2015). The share is set by the capacity, and with it the memory.

    estimator = CapacityEstimator(cache.max_cached_tokens or num_slots)
    estimator.observe(tokens)                # int32, of every request that is admitted
    estimator.hit_rate(2) - estimator.hit_rate(1)

It assumes LRU and one request after another. Another policy, or many tokens under locks, give other
hit rates: look at the differences between factors.
"""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from radixkv.arguments import at_least
from radixkv.arrays import Int32Array
from radixkv.errors import InvalidArgumentError
from radixkv.tree import DEFAULT, Namespace
from radixkv.tree.content import Content
from radixkv.tree.prefix_hash import hash_space

MOST_FACTOR = 4
EVERY = 16  # tokens: a prefix of a multiple of so many may be watched
MOST_WATCHED = 8_192
_STEPS = 64  # of capacity, up to each factor of 1

_U64 = NDArray[np.uint64]
_BASE = 0x9E3779B97F4A7C15
_MIX = np.uint64(0xD6E8FEB86659FD93)


class CapacityEstimator:
    """Hit rates of caches up to four times as large as this one, from what it is asked for.

    capacity: tokens of the cache. window: prompt tokens after which what was seen counts half;
    None: 64 capacities. Prefixes are watched in steps of 16 tokens, so that of prompts of a few
    hundred tokens some hits are missed. Memory: about 1 MB at most. Not thread-safe: `observe`
    under the lock of what calls it. Raises InvalidArgumentError for a capacity or window below 1.
    """

    def __init__(self, capacity: int, *, window: int | None = None) -> None:
        at_least(1, capacity=capacity)
        self.capacity = capacity
        self._window = 64 * capacity if window is None else at_least(1, window=window)
        share = min(MOST_WATCHED * EVERY / (MOST_FACTOR * capacity), 1.0)
        self._limit = np.uint64(min(int(share * 2**64), 2**64 - 1))
        self._tokens_each = EVERY / share  # tokens for which a watched prefix stands
        self._places: dict[int, int] = {}  # of each watched prefix, by its hash
        self._stamps = np.full(MOST_WATCHED + 1, -1, np.int64)  # the last request that used it
        self._hashes = np.zeros(MOST_WATCHED + 1, np.uint64)
        self._requests = 0
        self._step = capacity / _STEPS
        self._powers = _Powers()
        self._seen = 0.0
        self._missing = 0.0  # tokens for which no watched prefix came to stand
        self._hits = np.zeros(MOST_FACTOR * _STEPS + 1)  # by how deep they lay in the stack

    def observe(
        self, tokens: Int32Array, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> None:
        """A request came with this prompt. Cost: O(n), some tens of microseconds.

        tokens: (n,) int32, n >= 0, ids >= 0. content: spans inside it. Both checked by the caller.
        """
        if not len(tokens):
            return
        self._requests += 1
        self._fade()
        self._seen += len(tokens)
        hashes = self._powers.prefixes(_with_content(tokens, content), hash_space(namespace))
        watched = np.flatnonzero(hashes * _MIX ^ hashes >> np.uint64(32) <= self._limit)
        depths = self._use(hashes[watched])
        self._missing += len(hashes) * EVERY - len(watched) * self._tokens_each
        could_hit = (watched + 1) * EVERY < len(tokens)  # all of a prompt but one
        steps = np.ceil(depths[could_hit[: len(depths)]] * self._tokens_each / self._step)
        deep = np.bincount(steps[steps < len(self._hits)].astype(np.int64))
        self._hits[: len(deep)] += deep * self._tokens_each

    def hit_rate(self, factor: float = 1.0) -> float:
        """Of a cache `factor` times as large, 0 to 1, lately; to the nearest 64th of the capacity.

        Raises InvalidArgumentError for a factor outside 0 to 4.
        """
        if not 0 <= factor <= MOST_FACTOR:
            raise InvalidArgumentError(f"factor must be 0 to {MOST_FACTOR}; got {factor!r}")
        hits = float(self._hits[: round(factor * _STEPS) + 1].sum())
        # What comes often is a hit, and watched or not: what is missing are mostly hits.
        adjusted = hits + self._missing if hits else 0.0
        return min(max(adjusted / self._seen, 0.0), 1.0) if self._seen else 0.0

    @property
    def watched(self) -> int:
        """Prefixes that are watched now."""
        return len(self._places)

    def _fade(self) -> None:
        if self._seen > self._window:
            self._seen /= 2
            self._missing /= 2
            self._hits /= 2

    def _use(self, hashes: _U64) -> NDArray[np.int64]:
        """How many watched prefixes lay on each of these, which now lie on top; fewer are known."""
        places = [self._places.get(hash, -1) for hash in hashes.tolist()]
        known = places.index(-1) if -1 in places else len(places)
        users, first, which = np.unique(
            -self._stamps[places[:known]], return_index=True, return_inverse=True
        )
        newer = np.array([np.count_nonzero(self._stamps > -user) for user in users], np.int64)
        depths = newer[which] + np.arange(1, known + 1) - first[which]
        self._put_on_top(hashes, places)
        return depths

    def _put_on_top(self, hashes: _U64, places: list[int]) -> None:
        for hash, place in zip(hashes.tolist(), places, strict=True):
            if place < 0:
                place = self._new_place()
                self._places[hash] = place
                self._hashes[place] = hash
            self._stamps[place] = self._requests

    def _new_place(self) -> int:
        if len(self._places) < MOST_WATCHED:
            return len(self._places)
        oldest = int(self._stamps[:MOST_WATCHED].argmin())
        del self._places[int(self._hashes[oldest])]
        return oldest


class _Powers:
    """Prefix hashes of whole blocks: H(k) = H(k - 1) * Q + sum of block k, for all k at once."""

    def __init__(self) -> None:
        self._in_block = _powers(_BASE, EVERY)[::-1].copy()
        self._base = pow(_BASE, EVERY, 2**64)
        self._grow(64)

    def _grow(self, blocks: int) -> None:
        self._up = _powers(self._base, blocks + 1)[1:]
        self._down = _powers(pow(self._base, -1, 2**64), blocks + 1)[1:]

    def prefixes(self, codes: Int32Array, seed: int) -> _U64:
        """The hash of each prefix of a multiple of EVERY tokens; `seed` sets namespaces apart."""
        blocks = len(codes) // EVERY
        if blocks > len(self._up):
            self._grow(2 * blocks)
        tokens = codes[: blocks * EVERY].view(np.uint32).astype(np.uint64) + np.uint64(1)
        sums = tokens.reshape(blocks, EVERY) @ self._in_block
        inner = np.cumsum(sums * self._down[:blocks], dtype=np.uint64) + np.uint64(seed)
        return inner * self._up[:blocks]


def _powers(base: int, count: int) -> _U64:
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _with_content(tokens: Int32Array, content: Content) -> Int32Array:
    """Placeholder tokens that stand for different content become different numbers."""
    if not content:
        return tokens
    codes = tokens.copy()
    for start, length, id_ in content:
        codes[start : start + length] ^= np.int32(crc32(id_) >> 1)
    return codes
