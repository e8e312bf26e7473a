"""Latent attention (MLA) of Hugging Face models over a pool of latents, in the absorbed form.

    model   key = [W_k latent | rope]    value = W_v latent       output = weights @ value
    here    query = [W_k' q | q_rope]    key = [latent | rope]    output = W_v (weights @ latent)

W_k and W_v of a head are the rows of the model's `kv_b_proj` that make its keys and its values.
"""

from typing import Any

import torch
from torch import Tensor, nn

from radixkv.errors import InvalidArgumentError
from radixkv.memory.kv_pool import TokenToKVPool


class Absorbed:
    """The matrices of one layer's attention, which queries `query`, (1, heads, n, dim), meet.

    Raises InvalidArgumentError for a layer that makes its keys and values of latents otherwise.
    """

    def __init__(self, module: nn.Module, query: Tensor, pool: TokenToKVPool) -> None:
        projection: Any = getattr(module, "kv_b_proj", None)
        if type(projection) is not nn.Linear or projection.bias is not None:
            raise InvalidArgumentError(
                "latent attention must make keys and values by kv_b_proj, a linear layer without "
                f"bias; got {projection}"
            )
        (_, heads, _, dim), rank = query.shape, pool.v_head_dim
        self._nope: int = dim - (pool.head_dim - rank)
        # (heads, numbers of a key without its rotary part, then those of a value, rank)
        matrices = projection.weight.view(heads, -1, rank)
        self._k: Tensor = matrices[:, : self._nope]
        self._v: Tensor = matrices[:, self._nope :]

    def query(self, q: Tensor) -> Tensor:
        """(n, heads, dim) as (n, heads, pool.head_dim), to be multiplied with rows of the pool."""
        own = torch.einsum("nhd,hdr->nhr", q[..., : self._nope], self._k)
        return torch.cat([own, q[..., self._nope :]], -1)

    def values(self, output: Tensor) -> Tensor:
        """Weighted latents, (n, heads, rank), as weighted values, (n, heads, dim)."""
        return torch.einsum("nhr,hdr->nhd", output, self._v)

    def expanded(self, latent: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all heads, (n, heads, dim), as the model would make them."""
        own = torch.einsum("nr,hdr->nhd", latent[:, 0], self._k)
        key = torch.cat([own, rope.expand(-1, own.shape[1], -1)], -1)
        return key, torch.einsum("nr,hdr->nhd", latent[:, 0], self._v)
