"""Batches whose contexts lie scattered in a pool, and what the reference backend makes of them."""

import numpy as np
import torch

from radixkv.attention import AttentionBatch, ScoreOptions, get_backend
from radixkv.memory.kv_pool import MHATokenToKVPool, MLATokenToKVPool


class Batch:
    """Requests as lists of runs of tokens; a run that requests have in common has the same slots.

    paths: per request, (name of a run, its length) from the root on; query_lens: new tokens at the
    end of each. rope: numbers of a rotary key, over latents of `dim` numbers.
    """

    def __init__(
        self, paths, query_lens, *, heads, kv_heads, dim, dtype=torch.float32, page_size=1,
        device="cpu", seed=0, spare=0, rope=0,
    ):  # fmt: skip
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        lengths = {run: length for path in paths for run, length in path}
        pages = {run: -(-length // page_size) for run, length in lengths.items()}
        num_pages = sum(pages.values()) + spare
        free = list(rng.permutation(num_pages) + 1)
        slots = {}
        for run, n in pages.items():
            taken, free = free[:n], free[n:]
            of_pages = (np.array(taken)[:, None] * page_size + np.arange(page_size)).reshape(-1)
            slots[run] = of_pages[: lengths[run]]
        self.rows = [
            np.concatenate([slots[run] for run, _ in path]).astype(np.int32) for path in paths
        ]
        self.query_lens = list(query_lens)
        num_slots = num_pages * page_size
        if rope:
            self.pool = MLATokenToKVPool(
                num_slots, 1, dim, rope, dtype, device, page_size=page_size
            )
        else:
            self.pool = MHATokenToKVPool(
                num_slots, 1, kv_heads, dim, dtype, device, page_size=page_size
            )
        for values in self.pool.parts(0):
            values.copy_(torch.randn(values.shape, device=device).to(dtype))
        q_dtype = torch.bfloat16 if dtype == torch.float8_e4m3fn else dtype
        self.q = torch.randn(sum(query_lens), heads, dim + rope, device=device).to(q_dtype)

    def spoil_the_rest(self):
        """NaN in every slot that no row has."""
        shape = self.pool.k(0).shape
        others = np.setdiff1d(np.arange(shape[0]), np.concatenate(self.rows))
        for values in (self.pool.k(0), self.pool.v(0)):
            values[torch.from_numpy(others).to(values.device)] = float("nan")

    @property
    def asked(self):
        return AttentionBatch(self.rows, self.query_lens)

    def expected(self, **features):
        """In float32."""
        backend = get_backend("reference", self.pool)
        backend.plan(self.asked)
        return backend.run(self.q.float(), 0, ScoreOptions(**features))

    def exact(self, scale=None):
        """In float64, each request by itself."""
        results = []
        for row, q in zip(self.rows, self.q.split(self.query_lens), strict=True):
            index = torch.from_numpy(row).long().to(q.device)
            group = q.shape[1] // self.pool.kv_heads
            k, v = (
                pool[index].double().repeat_interleave(group, 1)
                for pool in (self.pool.k(0), self.pool.v(0))
            )
            scores = torch.einsum("nhd,mhd->hnm", q.double(), k) * (scale or q.shape[2] ** -0.5)
            seen = torch.ones_like(scores[0], dtype=torch.bool).tril(len(row) - len(q))
            weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
            results.append(torch.einsum("hnm,mhd->nhd", weights, v))
        return torch.cat(results)

    def run(self, backend, **features):
        backend.plan(self.asked)
        return backend.run(self.q, 0, ScoreOptions(**features))


def difference(result, expected):
    """Relative, over the whole result; NaN is no small number."""
    result = result.to(expected)
    return float((result - expected).norm() / expected.norm())


def decode(lengths):
    return [[(i, n)] for i, n in enumerate(lengths)], [1] * len(lengths)


def shared(*levels, own=5, requests=8):
    """levels: (requests a group, tokens); then tokens of each request's own."""
    paths = [
        [((depth, i // size), n) for depth, (size, n) in enumerate(levels)] for i in range(requests)
    ]
    return [[*path, (i, own)] for i, path in enumerate(paths)], [1] * requests


def random_tree(seed, requests=9):
    """Requests of random lengths, each forked from one before it at a multiple of 4 slots; one to
    five new tokens each."""
    rng = np.random.default_rng(seed)
    paths, query_lens = [], []
    for request in range(requests):
        parent = paths[int(rng.integers(len(paths)))] if paths else []
        kept = parent[: int(rng.integers(len(parent) + 1))]
        shared = [(("up to", request), 4 * int(rng.integers(1, 60)))] if rng.random() < 0.7 else []
        kept, own = [run for run in kept if run[1] % 4 == 0], int(rng.integers(1, 90))
        paths.append([*kept, *shared, (request, own)])
        query_lens.append(int(rng.integers(1, min(5, own) + 1)))
    return paths, query_lens


RAGGED = [[(i, n)] for i, n in enumerate((37, 5, 20, 1, 70))], [1, 5, 8, 1, 33]
