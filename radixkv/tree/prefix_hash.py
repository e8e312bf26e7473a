"""A hash of every prefix of a key, both ways: tokens can be added at the end and taken away.

Tokens times powers of an odd number, mod 2**32; `kernels/tree/prefix_hash.hpp` computes the same.
"""

from hashlib import blake2b

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.tree.namespace import Namespace

STRIDE = 128  # tokens that are added at once
_SIZE = 2**32
_BASE = 0x9E3779B1
_INVERSE = pow(_BASE, -1, _SIZE)
# From the power STRIDE - 1 down to 0.
_POWERS = np.array([pow(_BASE, power, _SIZE) for power in range(STRIDE - 1, -1, -1)], np.uint32)


def hash_space(namespace: Namespace) -> int:
    """Where the hashes of a namespace's prefixes begin: two namespaces never share one."""
    return int.from_bytes(blake2b(repr(namespace).encode(), digest_size=4).digest(), "little")


def extend_hash(hash: int, codes: Int32Array) -> int:
    """The hash of a prefix and `codes` behind it, from the hash of the prefix."""
    for at in range(0, len(codes), STRIDE):
        part = codes[at : at + STRIDE]
        hash = (hash * pow(_BASE, len(part), _SIZE) + _sum(part)) % _SIZE
    return hash


def shorten_hash(hash: int, codes: Int32Array) -> int:
    """The hash of a prefix without `codes` at its end."""
    for end in range(len(codes), 0, -STRIDE):
        part = codes[max(end - STRIDE, 0) : end]
        hash = (hash - _sum(part)) * pow(_INVERSE, len(part), _SIZE) % _SIZE
    return hash


def _sum(codes: Int32Array) -> int:
    return int(np.dot(codes.view(np.uint32) + np.uint32(1), _POWERS[STRIDE - len(codes) :]))
