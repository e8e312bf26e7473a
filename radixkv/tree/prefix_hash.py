"""A hash of every prefix of a key, both ways: tokens can be added at the end and taken away.

Two sums of tokens times powers of an odd number, mod 2**32, as one integer;
`kernels/tree/prefix_hash.hpp` computes the same.
"""

import numpy as np

from radixkv.tree.tokens import Int32Array

STRIDE = 128  # tokens that are added at once
_MASK = 2**32 - 1
_BASES = (0x9E3779B1, 0x85EBCA77)
_INVERSES = tuple(pow(base, -1, 2**32) for base in _BASES)
# From the power STRIDE - 1 down to 0.
_POWERS = [
    np.array([pow(base, power, 2**32) for power in range(STRIDE - 1, -1, -1)], np.uint32)
    for base in _BASES
]


def extend_hash(hash: int, codes: Int32Array) -> int:
    """The hash of a prefix and `codes` behind it, from the hash of the prefix."""
    for at in range(0, len(codes), STRIDE):
        part = codes[at : at + STRIDE]
        low, high = (
            (own * pow(base, len(part), 2**32) + more) & _MASK
            for own, base, more in zip(_halves(hash), _BASES, _sums(part), strict=True)
        )
        hash = high << 32 | low
    return hash


def shorten_hash(hash: int, codes: Int32Array) -> int:
    """The hash of a prefix without `codes` at its end."""
    for end in range(len(codes), 0, -STRIDE):
        part = codes[max(end - STRIDE, 0) : end]
        low, high = (
            (own - less) * pow(inverse, len(part), 2**32) & _MASK
            for own, inverse, less in zip(_halves(hash), _INVERSES, _sums(part), strict=True)
        )
        hash = high << 32 | low
    return hash


def _halves(hash: int) -> tuple[int, int]:
    return hash & _MASK, hash >> 32


def _sums(codes: Int32Array) -> list[int]:
    tokens = codes.view(np.uint32) + np.uint32(1)
    return [int(np.dot(tokens, powers[STRIDE - len(codes) :])) for powers in _POWERS]
