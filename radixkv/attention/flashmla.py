"""FlashMLA of sgl-kernel over a pool of latents in pages of 64: decode; other steps by FA3."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceAttention, DeviceStep
from radixkv.attention.explain import Explanation
from radixkv.attention.fa3 import FA3Kernels
from radixkv.attention.scores import ScoreOptions
from radixkv.errors import InvalidArgumentError
from radixkv.memory.kv_pool import TokenToKVPool

PAGE_SIZE = 64


def flashmla_attention(
    pool: TokenToKVPool,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    q_heads: int | None = None,
) -> DeviceAttention:
    """FlashMLA alone: no prefix is shared.

    k_scale, v_scale: must be 1, as fp8 is not served. q_heads: for backends that plan by it.
    Raises InvalidArgumentError for a pool that the kernel does not serve.
    """
    return DeviceAttention(pool, FlashMLAKernels(pool, k_scale, v_scale))


class FlashMLAKernels:
    """Decode over the pool as it lies, seen as pages.

    Raises InvalidArgumentError for a pool that the kernel does not serve.
    """

    name = "flashmla"
    k_scale = v_scale = 1.0

    def __init__(self, pool: TokenToKVPool, k_scale: float, v_scale: float) -> None:
        if not pool.is_latent or pool.page_size != PAGE_SIZE:
            raise InvalidArgumentError(
                f"the KV pool must be one of latents in pages of {PAGE_SIZE} for flashmla; got "
                f"{type(pool).__name__} in pages of {pool.page_size}",
                page_size=pool.page_size,
            )
        self._others = FA3Kernels(pool, k_scale, v_scale)
        self.pool = pool
        self._attend, self._schedule = _kernels()
        self.metadata: dict[Hashable, Any] = {}

    @property
    def key(self) -> Hashable:
        return self._others.key

    def all_keys(self) -> list[Hashable]:
        return [self.key]

    @contextmanager
    def as_if(self, key: Hashable) -> Iterator[None]:
        # Each graph makes its own schedule.
        self.metadata = {}
        try:
            with self._others.as_if(key):
                yield
        finally:
            self.metadata = {}

    def reserve(self, requests: int) -> None:
        """Nothing of its own."""

    def plan(self, batch: AttentionBatch, step: DeviceStep) -> Explanation:
        self._step, self.metadata = step, {}
        self._others.plan(batch, step)
        return Explanation("flat", "the backend is flashmla", self.name)

    def run(self, q: Tensor, layer: int, options: ScoreOptions) -> Tensor:
        step, pool = self._step, self.pool
        if step.max_query > 1:
            return self._others.run(q, layer, options)
        self._others.check(q, options)
        output: Tensor = self._attend(
            q.contiguous()[:, None],
            pool.k(layer).view(-1, PAGE_SIZE, 1, pool.head_dim),
            step.page_table,
            step.seq_lens,
            pool.v_head_dim,
            *self._scheduled(q.shape[1]),
            softmax_scale=options.scale_at(pool.head_dim),
            causal=True,
        )[0]
        return output[:, 0]

    def _scheduled(self, heads: int) -> Any:
        """How the kernel splits the batch: made on the device by the first layer that asks.

        A graph makes its own: it is replayed for other batches than it was captured with.
        """
        key = heads, torch.cuda.is_current_stream_capturing()
        if key not in self.metadata:
            self.metadata[key] = self._schedule(self._step.seq_lens, heads, 1)
        return self.metadata[key]


def check_library() -> None:
    """Raises ImportError where sgl-kernel or its FlashMLA is missing."""
    _kernels()


def _kernels() -> tuple[Any, Any]:
    # Without its library the module is there and fails when it is called.
    from sgl_kernel import flashmla_ops  # noqa: F401
    from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata

    return flash_mla_with_kvcache, get_mla_metadata
