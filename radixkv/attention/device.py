"""A backend that runs kernels: the step's arrays on the device, and the kernels that read them."""

import math
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from radixkv.attention.base import AttentionBackend, AttentionBatch
from radixkv.attention.device_arrays import DeviceArrays
from radixkv.attention.device_table import DeviceTable, grown
from radixkv.attention.explain import Explanation
from radixkv.attention.scores import PLAIN, ScoreOptions
from radixkv.errors import InvalidArgumentError
from radixkv.kernels.gpu.store import write_kv
from radixkv.memory.kv_pool import TokenToKVPool
from radixkv.pages import ceil_div


class DeviceStep:
    """A step on the device: what all kernels read of a batch.

    requests, tokens: of the batch, padding included. max_query, max_context: the longest.
    page_table: (requests, width) int32. seq_lens: (requests,) int32, contexts with the new tokens.
    cu_seqlens_q: (requests + 1,) int32, where each request's tokens begin. out_cache_loc: (tokens,)
    int32. host_seq_lens, host_query_lens: (requests,) int32.
    """

    def __init__(self, pool: TokenToKVPool) -> None:
        self.pool = pool
        self._table = DeviceTable(pool)
        self._arrays = self._others = DeviceArrays(pool.device)
        self._reserved: tuple[int, DeviceArrays] | None = None
        self._width = 0  # of rows, in slots, if it is fixed
        self.requests = self.tokens = self.max_query = self.max_context = 0
        self.host_seq_lens = self.host_query_lens = np.zeros(0, np.int32)

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room from the start, so that no captured graph is lost to a move."""
        self._table.reserve(requests, context_len)
        self._width = max(self._width, context_len)
        if self._reserved is None or self._reserved[0] < requests:
            # In the order of `load`. A long prompt in between goes elsewhere.
            room = {"seq_lens": requests, "cu_seqlens_q": requests + 1, "out_cache_loc": requests}
            self._reserved = requests, DeviceArrays(self.pool.device, room)

    def load(self, batch: AttentionBatch, pad_to: int | None) -> None:
        """Bring `batch` to the device, as a batch of `pad_to` requests if that is given."""
        padding = max(0, (pad_to or 0) - len(batch.rows))
        self._width = self._width and max(self._width, int(batch.context_lens.max()))
        self.requests, self.tokens = len(batch.rows) + padding, batch.num_tokens + padding
        self._table.load(batch, padding)
        # Padding is a token in slot 0 that sees itself.
        seq_lens, query_lens = np.ones((2, self.requests), np.int32)
        seq_lens[: len(batch.rows)] = batch.context_lens
        query_lens[: len(batch.rows)] = batch.query_lens
        out_cache_loc = np.zeros(self.tokens, np.int32)
        out_cache_loc[: batch.num_tokens] = batch.out_cache_loc
        cu_seqlens_q = np.zeros(self.requests + 1, np.int32)
        np.cumsum(query_lens, out=cu_seqlens_q[1:])
        has_room = self._reserved is not None and self.tokens <= self._reserved[0]
        self._arrays = self._reserved[1] if self._reserved and has_room else self._others
        self._arrays.put(seq_lens=seq_lens, cu_seqlens_q=cu_seqlens_q, out_cache_loc=out_cache_loc)
        self.host_seq_lens, self.host_query_lens = seq_lens, query_lens
        self.max_query, self.max_context = int(query_lens.max()), int(seq_lens.max())

    @property
    def page_table(self) -> Tensor:
        # The width shapes how kernels split. Where graphs are to be kept it is fixed; else it goes
        # by powers of two.
        width = self._width or grown(256, self.max_context)
        pages = ceil_div(width, self.pool.page_size)
        return self._table.pages[: self.requests, :pages]

    @property
    def seq_lens(self) -> Tensor:
        return self._arrays["seq_lens"][: self.requests]

    @property
    def cu_seqlens_q(self) -> Tensor:
        return self._arrays["cu_seqlens_q"][: self.requests + 1]

    @property
    def out_cache_loc(self) -> Tensor:
        return self._arrays["out_cache_loc"][: self.tokens]

    @property
    def key(self) -> Hashable:
        """What a captured graph depends on, beside the contents of these arrays."""
        table = self.page_table
        return (
            self.requests,
            self.tokens,
            self.max_query,
            table.stride(0),
            table.data_ptr(),
            id(self._arrays),
            self._arrays.generation,
        )


class StepKernels(Protocol):
    """Kernels over a pool; `plan` once a step, then `run` layer by layer.

    k_scale, v_scale: what K and V are divided by when they are stored. key: what a captured `run`
    depends on beside the step, see `DeviceStep.key`. all_keys, as_if: of the plans of as many
    tokens, see `DeviceAttention.graph_keys`. reserve: have room from the start for steps of one
    token of so many requests, so that no captured graph is lost to a move.
    """

    k_scale: float
    v_scale: float

    @property
    def key(self) -> Hashable: ...

    def all_keys(self) -> list[Hashable]: ...
    def as_if(self, key: Hashable) -> AbstractContextManager[None]: ...
    def reserve(self, requests: int) -> None: ...

    def plan(self, batch: AttentionBatch, step: DeviceStep) -> Explanation:
        """Prepare `step`, which has `batch` on the device; returns what was chosen."""

    def run(self, q: Tensor, layer: int, options: ScoreOptions) -> Tensor:
        """See `AttentionBackend.run`; `q` is checked."""


class DeviceAttention(AttentionBackend):
    """A backend whose plan lies on the device, where a captured CUDA graph finds it.

    Capture `write` and `run` of all layers after a `plan`, keep the graph under `graph_key`, and
    replay it after every later plan that gives the same key. After `reserve`, and where "tree" runs
    its CUDA kernels, `graph_keys` are all that plans of as many tokens have, whatever is in them:
    work lists, counts and bounds are read on the device. Give the graphs of each size a memory pool
    of their own: what kernels take for themselves must not shrink because a smaller batch was
    captured later. `pad_to` lets one graph serve all batches
    up to a size.

        plan(batch) -> step: the batch on the device -> kernels: what they need beside it
        run(q)      -> kernels
    """

    captures: ClassVar[bool] = True

    def __init__(self, pool: TokenToKVPool, kernels: StepKernels) -> None:
        super().__init__(pool)
        self.step = DeviceStep(pool)
        self.kernels = kernels
        self._explanation = NOTHING_PLANNED

    def explain(self) -> Explanation:
        """What was chosen when the last step was planned from scratch, why, and what it reads.

        The steps that follow it, up to 64, go by the same choice.
        """
        return self._explanation

    def reserve(self, requests: int, context_len: int) -> None:
        """Have room for so many requests of such contexts, so that graphs stay valid."""
        self.step.reserve(requests, context_len)
        self.kernels.reserve(requests)

    @property
    def graph_key(self) -> Hashable:
        """Equal keys of two plans: what was captured under one serves the other."""
        return self.step.key, self.kernels.key

    def graph_keys(self) -> list[Hashable]:
        """`graph_key` of all plans of as many requests and new tokens: where "tree" runs its CUDA
        kernels six at most. Capture one after another, each within `as_if`, and no later plan asks
        for a graph that is not there."""
        return [(self.step.key, key) for key in self.kernels.all_keys()]

    @contextmanager
    def as_if(self, graph_key: Hashable) -> Iterator[None]:
        """Launch what a plan of that key launches, one of `graph_keys`: to capture it, not to run
        it."""
        with self.kernels.as_if(cast(tuple[Hashable, Hashable], graph_key)[1]):
            yield

    def plan(self, batch: AttentionBatch, *, pad_to: int | None = None) -> None:
        """As `AttentionBackend.plan`; `pad_to` adds requests whose results mean nothing.

        Waits for no device. Cost on the host: O(slots) of what the device does not have yet,
        O(requests) of what it has.
        """
        self.batch, self._explanation = None, NOTHING_PLANNED
        self.step.load(batch, pad_to)
        self._explanation = self.kernels.plan(batch, self.step)
        self.batch = batch

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        self._planned()
        self.pool.check_rows(k, v, self.step.tokens)
        write_kv(
            *self.pool.parts(layer), self.step.out_cache_loc, k, v,
            k_scale=self.kernels.k_scale, v_scale=self.kernels.v_scale,
        )  # fmt: skip

    def run(self, q: Tensor, layer: int, options: ScoreOptions = PLAIN) -> Tensor:
        self._planned()
        self._check_query(q, options, self.step.tokens)
        return self.kernels.run(q, layer, options)


NOTHING_PLANNED = Explanation("flat", "nothing is planned")


def check_scales(pool: TokenToKVPool, **scales: float) -> None:
    """Raises InvalidArgumentError for scales that `pool` does not take."""
    if pool.is_latent and len(set(scales.values())) > 1:
        raise InvalidArgumentError(
            f"k_scale and v_scale must be equal over latents, whose values are part of the keys; "
            f"got {scales}",
            **scales,
        )
    for name, scale in scales.items():
        if not 0 < scale < math.inf:
            raise InvalidArgumentError(
                f"{name} must be a positive number; got {scale}", scale=scale
            )
        if scale != 1 and pool.dtype != torch.float8_e4m3fn:
            raise InvalidArgumentError(
                f"{name} must be 1 over a pool of {pool.dtype}, which stores K and V as they are; "
                f"got {scale}",
                scale=scale,
            )
