"""Shapes that people serve, and random ones, for what is measured over many of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from radixkv.attention import AttentionBatch, get_backend
from radixkv.memory.kv_pool import MHATokenToKVPool

HEADS = [
    (32, 8, 128), (8, 1, 128), (4, 1, 128), (8, 2, 128), (16, 1, 128), (16, 2, 128), (28, 4, 128),
    (64, 8, 128), (32, 32, 128), (16, 8, 128), (24, 8, 64), (48, 8, 128), (32, 4, 128),
]  # fmt: skip
# Bytes and operations a microsecond: of what the limit of a shape is made.
BANDWIDTH, COMPUTE = 4.3e6, 7.9e8


@dataclass(frozen=True)
class Case:
    """levels: (requests a group, tokens) from the root to the requests' own."""

    heads: tuple[int, int, int]
    requests: int
    levels: tuple[tuple[int, int], ...]
    query_len: int = 1
    ragged: int | None = None

    def rows(self) -> list[NDArray[np.int32]]:
        if self.ragged is not None:
            return ragged_rows(self.ragged)
        unique = sum(-(-self.requests // size) * tokens for size, tokens in self.levels)
        slots = np.random.default_rng(0).permutation(unique).astype(np.int32) + 1
        rows: list[list[NDArray[np.int32]]] = [[] for _ in range(self.requests)]
        at = 0
        for size, tokens in self.levels:
            for first in range(0, self.requests, size):
                run, at = slots[at : at + tokens], at + tokens
                for row in rows[first : first + size]:
                    row.append(run)
        return [np.concatenate(row) for row in rows]


def ragged_rows(seed: int, requests: int = 200) -> list[NDArray[np.int32]]:
    """Lengths of a zipf distribution from 200 to 20,000; each row forks from one before it."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(200 * rng.zipf(1.7, requests), 200, 20_000)
    rows: list[NDArray[np.int64]] = []
    fresh = 1
    for length in lengths.tolist():
        parent = rows[int(rng.integers(len(rows)))] if rows else np.zeros(0, np.int64)
        kept = int(rng.integers(0, min(len(parent), length - 1) + 1)) if len(parent) else 0
        own = np.arange(fresh, fresh + length - kept)
        fresh += len(own)
        rows.append(np.concatenate([parent[:kept], own]))
    shuffled = np.random.default_rng(seed).permutation(fresh).astype(np.int32) + 1
    return [shuffled[row] for row in rows]


def fixed_cases() -> Iterator[Case]:
    """The shapes that people serve most."""
    h = {f"{each[0]}/{each[1]}": each for each in HEADS}
    for requests, shared, own in (
        (64, 16384, 256), (64, 4096, 256), (256, 4096, 256), (8, 16384, 256), (2, 16384, 256),
        (1, 16384, 256), (512, 2048, 100), (16, 2048, 128), (32, 4096, 256), (8, 512, 64),
    ):  # fmt: skip
        yield Case(h["32/8"], requests, ((requests, shared), (1, own)))
    yield Case(h["32/8"], 64, ((64, 2048), (16, 2048), (4, 1024), (1, 256)))
    yield Case(h["32/8"], 64, ((8, 3000), (1, 300)))
    yield Case(h["32/8"], 64, ((2, 2000), (1, 512)))
    yield Case(h["32/8"], 64, ((1, 4096),))
    yield Case(h["32/8"], 256, ((1, 1024),))
    yield Case(h["28/4"], 64, ((64, 16384), (1, 256)))
    for name, requests, shared, own in (
        ("8/1", 64, 8192, 512), ("8/1", 32, 4096, 256), ("8/1", 128, 2048, 256),
        ("8/1", 256, 8192, 1024), ("4/1", 64, 16384, 256), ("8/2", 64, 4096, 256),
        ("16/2", 64, 8192, 512), ("16/1", 64, 16384, 256), ("16/1", 64, 4096, 256),
        ("64/8", 128, 32768, 1024), ("32/32", 64, 4096, 256),
    ):  # fmt: skip
        yield Case(h[name], requests, ((requests, shared), (1, own)))
    for seed in (2, 3, 4):
        yield Case(h["32/8"], 200, (), ragged=seed)
    yield Case(h["8/1"], 200, (), ragged=2)
    for query_len, requests, shared in (
        (4, 64, 8192),
        (4, 16, 16384),
        (8, 64, 2048),
        (2, 64, 8192),
    ):
        yield Case(h["32/8"], requests, ((requests, shared), (1, 256)), query_len)
    yield Case(h["32/8"], 64, ((64, 16384), (1, 16)), 16)
    yield Case(h["8/1"], 64, ((64, 8192), (1, 512)), 4)


def random_cases(count: int, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        requests = int(2 ** rng.uniform(1, 9))
        size, levels = requests, []
        for _ in range(int(rng.integers(1, 4))):
            levels.append((size, int(2 ** rng.uniform(8, 15))))
            size = max(1, size // int(rng.integers(2, 9)))
        levels.append((1, int(2 ** rng.uniform(4, 11))))
        yield Case(HEADS[int(rng.integers(len(HEADS)))], requests, tuple(levels))


class OnCard:
    """A case with random K, V and queries on the card.

    flat: the flat backend, its schedule made, as it is for all layers of a step but the first.
    limit_us: every byte once, or all operations, whichever takes longer.
    """

    flat: Any

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.heads, self.kv_heads, dim = case.heads
        self.rows = case.rows()
        self.query_lens = [min(case.query_len, len(row)) for row in self.rows]
        slots = max(int(row.max()) for row in self.rows)
        self.pool = MHATokenToKVPool(slots, 1, self.kv_heads, dim, torch.bfloat16, "cuda")
        for values in (self.pool.k(0), self.pool.v(0)):
            values.normal_()
        self.q = torch.randn(sum(self.query_lens), self.heads, dim, device="cuda").bfloat16()
        self.batch = AttentionBatch(self.rows, self.query_lens)
        unique = len(np.unique(np.concatenate(self.rows)))
        seen = sum(len(row) * n for row, n in zip(self.rows, self.query_lens, strict=True))
        self.limit_us = max(
            unique * self.pool.bytes_per_token / BANDWIDTH, seen * self.heads * dim * 4 / COMPUTE
        )
        self.flat = get_backend("tree", self.pool, mode="flat")
        self.flat.plan(self.batch)
        self.flat.run(self.q, 0)
        kernel: Any = self.flat.kernels.flat
        for is_capturing in (False, True):
            schedule = kernel.scheduled(self.heads, (-1, -1), False)
            kernel.metadata[self.heads, (-1, -1), False, is_capturing] = schedule
