"""FlashAttention 3 of sgl-kernel over the KV pool: decode, extend and mixes of both in one call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceAttention, DeviceStep
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import MHATokenToKVPool

DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
MAX_HEAD_DIM = 256
CAPABILITIES = (8, 9)


class FA3Attention(DeviceAttention):
    """The pool, seen as pages, is what the kernel reads; the rows on the device are its page table.

    An fp8 pool takes queries of any dtype, which are quantized with a scale a step and layer.
    k_scale, v_scale: what K and V were divided by when they were stored (fp8 only).
    Raises InvalidArgumentError for a pool that the kernel does not serve.
    """

    def __init__(
        self,
        pool: MHATokenToKVPool,
        *,
        k_scale: float = 1.0,
        v_scale: float = 1.0,
        step: DeviceStep | None = None,
    ) -> None:
        super().__init__(pool, k_scale=k_scale, v_scale=v_scale)
        _check_pool(pool)
        self.step = step or self.step
        self._metadata: dict[Any, Tensor] = {}
        self._attend, self._schedule = _kernels()

    def prepare(self, batch: AttentionBatch) -> None:
        self._metadata = {}

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
        step, pool = self.step, self.pool
        reach = (-1, -1) if window is None else (window - 1, 0)
        query, descale = self._query(q)
        output: Tensor = self._attend(
            query,
            self._paged(pool.k(layer)),
            self._paged(pool.v(layer)),
            page_table=step.table,
            cache_seqlens=step.lengths,
            cu_seqlens_q=step.starts,
            max_seqlen_q=step.max_query,
            softmax_scale=self._scale(sm_scale),
            causal=True,
            window_size=reach,
            softcap=softcap or 0.0,
            sinks=sinks,
            scheduler_metadata=self._scheduled(q.shape[1], reach, softcap),
            **descale,
        )
        return output.to(q.dtype)

    def _paged(self, kv: Tensor) -> Tensor:
        return kv.view(-1, self.pool.page_size, self.pool.kv_heads, self.pool.head_dim)

    def _scheduled(self, heads: int, reach: tuple[int, int], softcap: float | None) -> Tensor:
        """How the kernel deals out the batch: made on the device by the first layer that asks.

        A graph makes its own: it is replayed for other batches than it was captured with.
        """
        key = heads, reach, bool(softcap), torch.cuda.is_current_stream_capturing()
        if key not in self._metadata:
            step, pool = self.step, self.pool
            self._metadata[key] = self._schedule(
                step.requests,
                step.max_query,
                step.table.shape[1] * pool.page_size,
                heads,
                pool.kv_heads,
                pool.head_dim,
                step.lengths,
                qkv_dtype=pool.dtype,
                cu_seqlens_q=step.starts,
                page_size=pool.page_size,
                causal=True,
                window_size=reach,
                has_softcap=bool(softcap),
            )
        return self._metadata[key]

    def _query(self, q: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The query in the pool's dtype, and what undoes the scales."""
        if self.pool.dtype != torch.float8_e4m3fn:
            if q.dtype != self.pool.dtype:
                raise InvalidArgumentError(
                    f"q has dtype {q.dtype}; over a pool of {self.pool.dtype} fa3 takes that",
                    dtype=str(q.dtype),
                )
            return q.contiguous(), {}
        shape = self.step.requests, self.pool.kv_heads
        scale = q.abs().amax().float().clamp(min=1e-6) / torch.finfo(self.pool.dtype).max
        full = q.new_full((2, 1), self.k_scale, dtype=torch.float32)
        full[1] = self.v_scale
        return (q.float() / scale).to(self.pool.dtype), {
            "q_descale": scale.expand(shape),
            "k_descale": full[0].expand(shape),
            "v_descale": full[1].expand(shape),
        }


def _check_pool(pool: MHATokenToKVPool) -> None:
    if pool.dtype not in DTYPES:
        raise InvalidArgumentError(
            f"the KV pool has dtype {pool.dtype}; fa3 takes bfloat16, float16 or fp8_e4m3, "
            "'triton' float32 too",
            dtype=str(pool.dtype),
        )
    if pool.head_dim > MAX_HEAD_DIM or pool.head_dim % 8:
        raise InvalidArgumentError(
            f"the KV pool's head_dim is {pool.head_dim}; fa3 takes multiples of 8 up to "
            f"{MAX_HEAD_DIM}, 'triton' any",
            head_dim=pool.head_dim,
        )
    if pool.device.type != "cuda":
        raise InvalidArgumentError(
            f"the KV pool is on {pool.device}; fa3 takes one on a CUDA device",
            device=str(pool.device),
        )


def check_card() -> None:
    """Raises BackendUnavailableError where sgl-kernel's FlashAttention 3 does not run."""
    if not torch.cuda.is_available():
        raise BackendUnavailableError(
            "attention backend 'fa3' needs a CUDA device of compute capability 8 or 9, and torch "
            "sees none here; 'reference' works on any device",
            backend="fa3",
        )
    major, minor = torch.cuda.get_device_capability()
    if major not in CAPABILITIES:
        raise BackendUnavailableError(
            f"attention backend 'fa3' runs on compute capability 8 and 9, and this card has "
            f"{major}.{minor}; 'triton' works here",
            backend="fa3",
        )
    _kernels()


def _kernels() -> tuple[Callable[..., Any], Callable[..., Tensor]]:
    from sgl_kernel.flash_attn import flash_attn_with_kvcache, get_scheduler_metadata

    return flash_attn_with_kvcache, get_scheduler_metadata
