"""Attention in plain torch on any device: the seed of truth for every other backend."""

import torch
from torch import Tensor

from radixkv.attention.base import AttentionBackend

# Bounds the scores held at once (64 MiB of float32), so that a long prompt needs no chunks.
MAX_SCORES = 2**24


class ReferenceAttention(AttentionBackend):
    """One request after another, softmax and sums in float32."""

    def run(self, q: Tensor, layer: int, *, sm_scale: float | None = None) -> Tensor:
        self._check_query(q)
        scale = self.pool.head_dim**-0.5 if sm_scale is None else sm_scale
        keys, values = self.pool.k(layer), self.pool.v(layer)
        queries = q.split_with_sizes(list(self._planned().query_lens))
        outputs = [
            attend(query, keys[slots].float(), values[slots].float(), scale)
            for query, slots in zip(queries, self._contexts, strict=True)
        ]
        return torch.cat(outputs).to(q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Causal attention of the last len(q) of len(k) tokens, in float32.

    q: (n, q_heads, head_dim). k, v: (m, kv_heads, head_dim), m >= n.
    """
    before = len(k) - len(q)
    piece = max(1, MAX_SCORES // (q.shape[1] * len(k)))
    ends = range(before, len(k), piece)
    return torch.cat(
        [
            _attend_piece(
                q[at - before : at - before + piece], k[: at + piece], v[: at + piece], scale
            )
            for at in ends
        ]
    )


def _attend_piece(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    (n, heads, dim), (m, kv_heads, _) = q.shape, k.shape
    # (kv_heads, queries of the heads that share it, dim), so that no KV head is copied.
    grouped = (q.float() * scale).view(n, kv_heads, -1, dim).permute(1, 2, 0, 3)
    scores = grouped.reshape(kv_heads, -1, dim) @ k.permute(1, 2, 0)
    if n > 1:
        future = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(m - n + 1)
        scores.view(kv_heads, -1, n, m).masked_fill_(future, float("-inf"))
    output = (scores.softmax(-1) @ v.transpose(0, 1)).view(kv_heads, -1, n, dim)
    return output.permute(2, 0, 1, 3).reshape(n, heads, dim)
