"""Tokens that two prompts have in common behind the place where they part."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.lab.logs.requests import Indices

WINDOW = 16  # tokens in a row that count as the same text
_BASE = np.uint64(0x9E3779B97F4A7C15)
_OUT_OF_ORDER = 0.2  # of the text that stands once in both


@dataclass(frozen=True, slots=True)
class Overlap:
    """What `mine` has in common with `other`.

    tokens: of `mine` that stand in `other` too, in stretches of at least `WINDOW`. mine_resumes,
    other_resumes: where the first such stretch begins in each. is_reordered: the stretches stand in
    another order there.
    """

    tokens: int
    mine_resumes: int
    other_resumes: int
    is_reordered: bool


NOTHING = Overlap(0, 0, 0, is_reordered=False)


def overlap(mine: Int32Array, other: Int32Array) -> Overlap:
    """Cost: O(n log n). Stretches are found by a hash of 64 bits.

    >>> text = np.arange(100, dtype=np.int32)
    >>> overlap(text[50:], text)
    Overlap(tokens=50, mine_resumes=0, other_resumes=50, is_reordered=False)
    """
    if min(len(mine), len(other)) < WINDOW:
        return NOTHING
    windows, others = _hashes(mine), _hashes(other)
    known, places = np.unique(others, return_index=True)
    at = np.minimum(np.searchsorted(known, windows), len(known) - 1)
    is_shared = known[at] == windows
    if not is_shared.any():
        return NOTHING
    first = int(is_shared.argmax())
    return Overlap(
        tokens=_covered(is_shared),
        mine_resumes=first,
        other_resumes=int(places[at[first]]),
        is_reordered=_is_reordered(windows, others),
    )


def _hashes(token_ids: Int32Array) -> NDArray[np.uint64]:
    """One for each window of `WINDOW` tokens."""
    tokens = token_ids.astype(np.uint64) + np.uint64(1)
    hashes = np.zeros(len(tokens) - WINDOW + 1, np.uint64)
    for at in range(WINDOW):
        hashes = hashes * _BASE + tokens[at : at + len(hashes)]
    return hashes


def _covered(is_shared: NDArray[np.bool_]) -> int:
    """Tokens in any of the windows that are shared."""
    edges = np.zeros(len(is_shared) + WINDOW, np.int64)
    edges[:-WINDOW] += is_shared
    edges[WINDOW:] -= is_shared
    return int((np.cumsum(edges) > 0).sum())


def _is_reordered(mine: NDArray[np.uint64], other: NDArray[np.uint64]) -> bool:
    """Whether much of what stands once in both stands in another order there."""
    my_places, places = _places_of_once(mine), _places_of_once(other)
    _, in_mine, in_other = np.intersect1d(
        mine[my_places], other[places], assume_unique=True, return_indices=True
    )
    there = places[in_other][np.argsort(my_places[in_mine])].tolist()
    return len(there) - _longest_rise(there) > _OUT_OF_ORDER * len(there)


def _longest_rise(values: list[int]) -> int:
    """The most of `values` that can be left so that they rise."""
    ends: list[int] = []  # the lowest end of a rise of each length
    for value in values:
        at = bisect_left(ends, value)
        ends[at : at + 1] = [value]
    return len(ends)


def _places_of_once(hashes: NDArray[np.uint64]) -> Indices:
    _, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    once: Indices = places[counts == 1]
    return once
