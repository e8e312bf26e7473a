"""Attention in plain torch on any device: what every other backend is tested against."""

import numpy as np
import torch
from torch import Tensor

from radixkv.attention.base import AttentionBackend, AttentionBatch
from radixkv.attention.scores import PLAIN, ScoreOptions
from radixkv.memory.kv_pool import TokenToKVPool

# Bounds the scores held at once (64 MiB of float32), so that a long prompt needs no chunks.
MAX_SCORES = 2**24


class ReferenceAttention(AttentionBackend):
    """One request after another, softmax and sums in float32.

    q_heads: for backends that plan by it; here each call shows its own.
    """

    def __init__(self, pool: TokenToKVPool, *, q_heads: int | None = None) -> None:
        super().__init__(pool)

    def plan(self, batch: AttentionBatch) -> None:
        self.batch = None
        slots = self.pool.as_index(np.concatenate(batch.rows), "rows")
        self._contexts = slots.split_with_sizes([len(row) for row in batch.rows])
        self._out_cache_loc = self.pool.as_index(batch.out_cache_loc, "rows")
        self.batch = batch

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self._planned()
        self.pool.write(layer, self._out_cache_loc, k, v)

    def run(self, q: Tensor, layer: int, options: ScoreOptions = PLAIN) -> Tensor:
        batch = self._planned()
        self._check_query(q, options, batch.num_tokens)
        keys, values = self.pool.k(layer), self.pool.v(layer)
        queries = q.split_with_sizes(list(batch.query_lens))
        outputs = [
            attend(query, keys[slots].float(), values[slots].float(), options)
            for query, slots in zip(queries, self._contexts, strict=True)
        ]
        return torch.cat(outputs).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, options: ScoreOptions) -> Tensor:
    """Causal attention of the last len(q) of len(k) tokens, in float32.

    q: (n, q_heads, head_dim). k, v: (m, kv_heads, head_dim each), m >= n.
    """
    before = len(k) - len(q)
    piece = max(1, MAX_SCORES // (q.shape[1] * len(k)))
    ends = range(before, len(k), piece)
    return torch.cat(
        [
            _attend_piece(
                q[at - before : at - before + piece], k[: at + piece], v[: at + piece], options
            )
            for at in ends
        ]
    )


def _attend_piece(q: Tensor, k: Tensor, v: Tensor, options: ScoreOptions) -> Tensor:
    (n, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    # (kv_heads, queries of the heads that share it, dim), so that no KV head is copied.
    grouped = (q.float() * options.scale_at(dim)).view(n, kv_heads, -1, dim).permute(1, 2, 0, 3)
    products = (grouped.reshape(kv_heads, -1, dim) @ k.permute(1, 2, 0)).view(kv_heads, -1, n, m)
    if options.softcap:
        products = options.softcap * (products / options.softcap).tanh()
    seen = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    if options.window:
        seen &= seen.triu(m - n - options.window + 1)
    if n > 1 or options.window:
        products.masked_fill_(~seen, float("-inf"))
    weights = _softmax(products, options.sinks).view(kv_heads, -1, m)
    output = (weights @ v.transpose(0, 1)).view(kv_heads, -1, n, v.shape[2])
    return output.permute(2, 0, 1, 3).reshape(n, heads, v.shape[2])


def _softmax(products: Tensor, sinks: Tensor | None) -> Tensor:
    """Over the last of (kv_heads, heads of each, n, m)."""
    if sinks is None:
        return products.softmax(-1)
    kv_heads, group, n, _ = products.shape
    column = sinks.float().view(kv_heads, group, 1, 1).expand(-1, -1, n, 1)
    return torch.cat([products, column], -1).softmax(-1)[..., :-1]
