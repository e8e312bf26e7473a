"""Attention in plain torch on any device: the seed of truth for every other backend."""

from typing import NamedTuple

import torch
from torch import Tensor

from radixkv.attention.base import AttentionBackend

# Bounds the scores held at once (64 MiB of float32), so that a long prompt needs no chunks.
MAX_SCORES = 2**24


class ReferenceAttention(AttentionBackend):
    """One request after another, softmax and sums in float32."""

    def run(
        self,
        q: Tensor,
        layer: int,
        *,
        sm_scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        self._check_query(q, window, softcap, sinks)
        scores = Scores(self._scale(sm_scale), window, softcap, sinks)
        keys, values = self.pool.k(layer), self.pool.v(layer)
        queries = q.split_with_sizes(list(self._planned().query_lens))
        outputs = [
            attend(query, keys[slots].float(), values[slots].float(), scores)
            for query, slots in zip(queries, self._contexts, strict=True)
        ]
        return torch.cat(outputs).to(q.dtype)


class Scores(NamedTuple):
    """What becomes of the product of query and key, see `AttentionBackend.run`."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None


def attend(q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    """Causal attention of the last len(q) of len(k) tokens, in float32.

    q: (n, q_heads, head_dim). k, v: (m, kv_heads, head_dim), m >= n.
    """
    before = len(k) - len(q)
    piece = max(1, MAX_SCORES // (q.shape[1] * len(k)))
    ends = range(before, len(k), piece)
    return torch.cat(
        [
            _attend_piece(
                q[at - before : at - before + piece], k[: at + piece], v[: at + piece], scores
            )
            for at in ends
        ]
    )


def _attend_piece(q: Tensor, k: Tensor, v: Tensor, scores: Scores) -> Tensor:
    (n, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    # (kv_heads, queries of the heads that share it, dim), so that no KV head is copied.
    grouped = (q.float() * scores.scale).view(n, kv_heads, -1, dim).permute(1, 2, 0, 3)
    products = (grouped.reshape(kv_heads, -1, dim) @ k.permute(1, 2, 0)).view(kv_heads, -1, n, m)
    if scores.softcap:
        products = scores.softcap * (products / scores.softcap).tanh()
    seen = torch.ones(n, m, dtype=torch.bool, device=q.device).tril(m - n)
    if scores.window:
        seen &= seen.triu(m - n - scores.window + 1)
    if n > 1 or scores.window:
        products.masked_fill_(~seen, float("-inf"))
    weights = _softmax(products, scores.sinks).view(kv_heads, -1, m)
    output = (weights @ v.transpose(0, 1)).view(kv_heads, -1, n, dim)
    return output.permute(2, 0, 1, 3).reshape(n, heads, dim)


def _softmax(products: Tensor, sinks: Tensor | None) -> Tensor:
    """Over the last of (kv_heads, heads of each, n, m)."""
    if sinks is None:
        return products.softmax(-1)
    kv_heads, group, n, _ = products.shape
    column = sinks.float().view(kv_heads, group, 1, 1).expand(-1, -1, n, 1)
    return torch.cat([products, column], -1).softmax(-1)[..., :-1]
