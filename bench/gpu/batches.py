"""Decode batches that share prefixes as real traffic does, scattered over a pool of page size 1."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from radixkv.attention import AttentionBatch
from radixkv.memory.kv_pool import MHATokenToKVPool

DIM = 128


@dataclass(frozen=True)
class Shape:
    """levels: (requests a group, tokens), from the root to the requests' own."""

    name: str
    requests: int
    levels: tuple[tuple[int, int], ...]
    heads: int = 32
    kv_heads: int = 8

    @property
    def unique(self) -> int:
        """Tokens, each counted once."""
        return sum(self.requests // size * tokens for size, tokens in self.levels)


SHARED = [
    Shape("64 requests, 16,384 shared + 256 own", 64, ((64, 16384), (1, 256))),
    Shape("64 requests, 4,096 shared + 256 own", 64, ((64, 4096), (1, 256))),
    Shape("256 requests, 4,096 shared + 256 own", 256, ((256, 4096), (1, 256))),
    Shape("3 levels: 2,048, 4 x 2,048, 16 x 1,024, 64 x 256", 64,
          ((64, 2048), (16, 2048), (4, 1024), (1, 256))),
    Shape("8 groups of 8, 3,000 shared + 300 own", 64, ((8, 3000), (1, 300))),
    Shape("32 pairs, 2,000 shared + 512 own", 64, ((2, 2000), (1, 512))),
    Shape("28/4 heads, 64 requests, 16,384 + 256", 64, ((64, 16384), (1, 256)), 28, 4),
]  # fmt: skip
UNSHARED = [
    Shape("nothing shared: 64 x 4,096", 64, ((1, 4096),)),
    Shape("nothing shared: 256 x 1,024", 256, ((1, 1024),)),
    Shape("8 tiny requests, 512 shared + 64 own", 8, ((8, 512), (1, 64))),
]
# Its requests' lengths differ, see `skewed`.
SKEWED = Shape("nothing shared: 2 x 16,384, 62 x 512", 64, ())
# What is claimed for each batch, by name: times the speed of flat fa3, and of FlashInfer's cascade.
AT_LEAST = {
    **{shape.name: n for shape, n in zip(SHARED, [9, 4, 5, 3.3, 2.4, 1.2, 6], strict=True)},
    **{shape.name: 0.99 for shape in [*UNSHARED, SKEWED]},
}
FLASHINFER_AT_LEAST = {
    shape.name: n for shape, n in zip(SHARED, [4, 3, 3, 3, 3, 3, 4], strict=True)
}


class Batch:
    """A batch of a shape: its pool, queries, and the rows of its requests."""

    def __init__(self, shape: Shape, rows: list[NDArray[np.int32]] | None = None) -> None:
        self.shape = shape
        self.rows = rows or scattered(shape)
        slots = int(max(row.max() for row in self.rows))
        self.pool = MHATokenToKVPool(slots, 1, shape.kv_heads, DIM, torch.bfloat16, "cuda")
        for values in (self.pool.k(0), self.pool.v(0)):
            values.normal_()
        self.q = torch.randn(len(self.rows), shape.heads, DIM, device="cuda").bfloat16()
        self.asked = AttentionBatch(self.rows, [1] * len(self.rows), [*range(len(self.rows))])

    def limit_us(self, bandwidth: float) -> float:
        """Reading every slot once at `bandwidth` bytes a microsecond."""
        return sum_unique(self.rows) * self.pool.bytes_per_token / bandwidth


def sum_unique(rows: list[NDArray[np.int32]]) -> int:
    return len(np.unique(np.concatenate(rows)))


def scattered(shape: Shape) -> list[NDArray[np.int32]]:
    """Rows whose slots are a random permutation: the worst that page size 1 can be."""
    slots = np.random.default_rng(0).permutation(shape.unique).astype(np.int32) + 1
    rows: list[list[NDArray[np.int32]]] = [[] for _ in range(shape.requests)]
    at = 0
    for size, tokens in shape.levels:
        for first in range(0, shape.requests, size):
            run, at = slots[at : at + tokens], at + tokens
            for row in rows[first : first + size]:
                row.append(run)
    return [np.concatenate(row) for row in rows]


def skewed() -> Batch:
    """Two requests of 16,384 tokens among 62 of 512."""
    lengths = np.array([16384] * 2 + [512] * 62)
    slots = np.random.default_rng(0).permutation(lengths.sum()).astype(np.int32) + 1
    rows = np.split(slots, np.cumsum(lengths)[:-1])
    return Batch(SKEWED, rows)
