"""FlashAttention 3 of sgl-kernel over the KV pool: decode, extend and mixes of both in one call."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceAttention, DeviceStep, check_scales
from radixkv.attention.explain import Explanation
from radixkv.attention.scores import ScoreOptions
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import TokenToKVPool

DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
MAX_HEAD_DIM = 256
# Of the latent and of its rotary key.
LATENT_DIMS = 512, 64
CAPABILITIES = (8, 9)


def fa3_attention(
    pool: TokenToKVPool,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    q_heads: int | None = None,
) -> DeviceAttention:
    """FlashAttention 3 alone: no prefix is shared.

    k_scale, v_scale: what K and V are divided by when they are stored (fp8 only).
    q_heads: for backends that plan by it; here each call shows its own.
    Raises InvalidArgumentError for a pool that the kernel does not serve.
    """
    return DeviceAttention(pool, FA3Kernels(pool, k_scale, v_scale))


class FA3Kernels:
    """The pool, seen as pages, is what the kernel reads; the rows on the device are its page table.

    An fp8 pool takes queries of any dtype, which are quantized with a scale a step and layer.
    Raises InvalidArgumentError for a pool that the kernel does not serve.
    """

    name = "fa3"

    def __init__(self, pool: TokenToKVPool, k_scale: float, v_scale: float) -> None:
        check_scales(pool, k_scale=k_scale, v_scale=v_scale)
        _check_pool(pool)
        self.pool, self.k_scale, self.v_scale = pool, k_scale, v_scale
        self.attend, self._schedule = _kernels()
        self.metadata: dict[Hashable, Tensor] = {}

    @property
    def key(self) -> Hashable:
        # What a row may reach at most shapes how the kernel splits it.
        return self._step.page_table.shape[1]

    def all_keys(self) -> list[Hashable]:
        return [self.key]

    @contextmanager
    def as_if(self, key: Hashable) -> Iterator[None]:
        # Each graph makes its own schedule.
        self.metadata = {}
        try:
            yield
        finally:
            self.metadata = {}

    def reserve(self, requests: int) -> None:
        """Nothing of its own."""

    def plan(self, batch: AttentionBatch, step: DeviceStep) -> Explanation:
        self._step = step
        self.metadata = {}
        return Explanation("flat", "the backend is fa3", self.name)

    def run(self, q: Tensor, layer: int, options: ScoreOptions) -> Tensor:
        step, pool = self._step, self.pool
        reach = (-1, -1) if options.window is None else (options.window - 1, 0)
        inputs = self._inputs(q, layer, options)
        output: Tensor = self.attend(
            **inputs,
            page_table=step.page_table,
            cache_seqlens=step.seq_lens,
            cu_seqlens_q=step.cu_seqlens_q,
            max_seqlen_q=step.max_query,
            softmax_scale=options.scale_at(pool.head_dim),
            causal=True,
            window_size=reach,
            softcap=options.softcap or 0.0,
            sinks=options.sinks,
            scheduler_metadata=self._metadata(q.shape[1], reach, bool(options.softcap)),
        )
        return output.to(q.dtype)

    def paged(self, kv: Tensor) -> Tensor:
        """What slots of a layer hold, as (pages, page_size, kv_heads, dim)."""
        return kv.view(-1, self.pool.page_size, *kv.shape[1:])

    def _metadata(self, heads: int, reach: tuple[int, int], has_softcap: bool) -> Tensor | None:
        # Engines let the kernel plan several tokens over latents by itself, and so do we.
        if self.pool.is_latent and self._step.max_query > 1:
            return None
        return self.scheduled(heads, reach, has_softcap)

    def scheduled(self, heads: int, reach: tuple[int, int], has_softcap: bool) -> Tensor:
        """How the kernel splits the batch: made on the device by the first layer that asks.

        A graph makes its own: it is replayed for other batches than it was captured with.
        """
        key = heads, reach, has_softcap, torch.cuda.is_current_stream_capturing()
        if key not in self.metadata:
            step, pool = self._step, self.pool
            self.metadata[key] = self._schedule(
                step.requests,
                step.max_query,
                step.page_table.shape[1] * pool.page_size,
                heads,
                pool.kv_heads,
                pool.head_dim - (pool.v_head_dim if pool.is_latent else 0),
                step.seq_lens,
                headdim_v=pool.v_head_dim,
                qkv_dtype=pool.dtype,
                cu_seqlens_q=step.cu_seqlens_q,
                page_size=pool.page_size,
                causal=True,
                window_size=reach,
                has_softcap=has_softcap,
            )
        return self.metadata[key]

    def _inputs(self, q: Tensor, layer: int, options: ScoreOptions) -> dict[str, Tensor]:
        self.check(q, options)
        pool, (query, descale) = self.pool, self._query(q)
        first, second = (self.paged(part) for part in pool.parts(layer))
        if not pool.is_latent:
            return {"q": query, "k_cache": first, "v_cache": second, **descale}
        # What the kernel calls v is multiplied with `qv`, and then with the weights.
        latent, rope = query[..., : pool.v_head_dim], query[..., pool.v_head_dim :]
        return {"q": rope, "qv": latent, "k_cache": second, "v_cache": first}

    def check(self, q: Tensor, options: ScoreOptions) -> None:
        """Raises InvalidArgumentError for what sgl-kernel does not serve over this pool."""
        if self.pool.dtype != torch.float8_e4m3fn and q.dtype != self.pool.dtype:
            raise InvalidArgumentError(
                f"q must have the pool's dtype {self.pool.dtype} for fa3; got {q.dtype}",
                dtype=str(q.dtype),
            )
        is_plain = not (options.window or options.softcap) and options.sinks is None
        if self.pool.is_latent and not is_plain:
            raise InvalidArgumentError(
                "scores over latents must have no window, softcap or sinks for fa3 ('triton' takes "
                f"them); got {options}"
            )

    def _query(self, q: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The query in the pool's dtype, and what undoes the scales."""
        if self.pool.dtype != torch.float8_e4m3fn:
            return q.contiguous(), {}
        shape = self._step.requests, self.pool.kv_heads
        scale = q.abs().amax().float().clamp(min=1e-6) / torch.finfo(self.pool.dtype).max
        full = q.new_full((2, 1), self.k_scale, dtype=torch.float32)
        full[1] = self.v_scale
        return (q.float() / scale).to(self.pool.dtype), {
            "q_descale": scale.expand(shape),
            "k_descale": full[0].expand(shape),
            "v_descale": full[1].expand(shape),
        }


def _check_pool(pool: TokenToKVPool) -> None:
    if pool.dtype not in DTYPES:
        raise InvalidArgumentError(
            "the KV pool must be bfloat16, float16 or fp8_e4m3 for fa3 ('triton' takes float32, "
            f"too); got {pool.dtype}",
            dtype=str(pool.dtype),
        )
    if pool.is_latent:
        _check_latent(pool)
    elif pool.head_dim > MAX_HEAD_DIM or pool.head_dim % 8:
        raise InvalidArgumentError(
            f"the KV pool's head_dim must be a multiple of 8 up to {MAX_HEAD_DIM} for fa3 "
            f"('triton' takes any); got {pool.head_dim}",
            head_dim=pool.head_dim,
        )
    if pool.device.type != "cuda":
        raise InvalidArgumentError(
            f"the KV pool must be on a CUDA device for fa3; got {pool.device}",
            device=str(pool.device),
        )


def _check_latent(pool: TokenToKVPool) -> None:
    dims = pool.v_head_dim, pool.head_dim - pool.v_head_dim
    is_hopper = pool.device.type == "cuda" and torch.cuda.get_device_capability(pool.device)[0] == 9
    if dims != LATENT_DIMS or pool.dtype == torch.float8_e4m3fn or not is_hopper:
        raise InvalidArgumentError(
            f"latents must be of {LATENT_DIMS[0]} numbers with a rotary key of {LATENT_DIMS[1]} in "
            f"bfloat16 or float16 and on a Hopper card for fa3 ('triton' takes any); got {dims[0]} "
            f"with {dims[1]} in {pool.dtype} on {pool.device}"
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
