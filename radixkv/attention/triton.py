"""Attention of every row by itself, in Triton: any CUDA card, dtype, page size and head size."""

from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceAttention, DeviceStep, check_scales
from radixkv.attention.device_arrays import DeviceArrays
from radixkv.attention.explain import Explanation
from radixkv.attention.scores import ScoreOptions
from radixkv.kernels.gpu.attend import (
    NARROW,
    Tile,
    Work,
    attend,
    latent_tile,
    merge_states,
    parts_of_heads,
)
from radixkv.memory.kv_pool import TokenToKVPool
from radixkv.pages import ceil_div

# Slots of a decode row that one block reads; what is longer is read in pieces and merged.
PIECE = 1024


def triton_attention(
    pool: TokenToKVPool,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    q_heads: int | None = None,
) -> DeviceAttention:
    """Triton alone: no prefix is shared.

    k_scale, v_scale: what K and V are divided by when they are stored (fp8 only).
    q_heads: for backends that plan by it; here each call shows its own.
    """
    return DeviceAttention(pool, TritonKernels(pool, k_scale, v_scale))


class TritonKernels:
    """Decode rows in pieces that are merged; prompts in causal tiles that read all before them."""

    name = "triton"

    def __init__(self, pool: TokenToKVPool, k_scale: float, v_scale: float) -> None:
        check_scales(pool, k_scale=k_scale, v_scale=v_scale)
        self.pool, self.k_scale, self.v_scale = pool, k_scale, v_scale
        self._arrays = DeviceArrays(pool.device)
        self._heads = 0
        self._num_items = self._num_parts = 0

    @property
    def key(self) -> Hashable:
        return self._arrays.generation, self._num_items, self._num_parts

    def all_keys(self) -> list[Hashable]:
        return [self.key]

    def as_if(self, key: Hashable) -> AbstractContextManager[None]:
        return nullcontext()

    def reserve(self, requests: int) -> None:
        """Nothing: what it takes is by the lengths of rows."""

    def plan(self, batch: AttentionBatch, step: DeviceStep) -> Explanation:
        self._step = step
        # The heads of the queries are known once a layer ran.
        if self._heads:
            self._cut()
        return Explanation("flat", "the backend is triton", self.name)

    def run(self, q: Tensor, layer: int, options: ScoreOptions) -> Tensor:
        if q.shape[1] != self._heads:
            self._heads = q.shape[1]
            self._cut()
        q, partial_o, partial_lse = q.contiguous(), None, None
        out = q.new_empty((*q.shape[:2], self.pool.v_head_dim))
        if self._num_parts:
            partial_o = q.new_empty((self._num_parts, *out.shape[1:]), dtype=torch.float32)
            partial_lse = q.new_empty((self._num_parts, q.shape[1]), dtype=torch.float32)
        arrays = self._arrays
        attend(
            q,
            self.pool.k(layer),
            self.pool.v(layer),
            self._step.page_table,
            Work(arrays["items"], arrays["count"], arrays["q_indices"], self._num_items),
            out if partial_o is None else partial_o,
            partial_lse,
            page_size=self.pool.page_size,
            tile=self._tile(),
            scale=options.scale_at(self.pool.head_dim) * self.k_scale,
            softcap=options.softcap or 0.0,
            v_scale=self.v_scale,
            window=options.window,
            sinks=options.sinks if partial_o is None else None,
            split=self._split(),
        )
        if partial_o is not None and partial_lse is not None:
            merge_indptr = arrays["merge_indptr"][: len(q) + 1]
            merge_states(partial_o, partial_lse, merge_indptr, out, options.sinks)
        return out

    def _split(self) -> int:
        return parts_of_heads(self._heads, self._tile().rows) if self.pool.is_latent else 1

    def _tile(self) -> Tile:
        if self.pool.is_latent:
            return latent_tile(self.pool.device, self.pool.head_dim * self.pool.dtype.itemsize)
        # A tile holds all heads of a KV head; prompts fill larger ones.
        rows = max(16, triton.next_power_of_2(self._heads // self.pool.kv_heads))
        if self._is_decode():
            return replace(NARROW, rows=rows)
        return Tile(max(64, rows), 32, 4, 3)

    def _is_decode(self) -> bool:
        return self._step.max_query == 1

    def _cut(self) -> None:
        seq_lens, query_lens = self._step.host_seq_lens, self._step.host_query_lens
        if self._is_decode():
            items, q_indices, merge_indptr = cut_decode(seq_lens)
        else:
            heads = self._heads // (self.pool.kv_heads * self._split())
            queries = self._tile().rows // heads
            items, q_indices, merge_indptr = cut_extend(seq_lens, query_lens, queries)
        count = np.array([len(items)], np.int32)
        self._arrays.put(items=items, q_indices=q_indices, merge_indptr=merge_indptr, count=count)
        self._num_items = triton.next_power_of_2(len(items))
        # Without pieces there is nothing to merge.
        split = self._is_decode() and len(items) > len(seq_lens)
        self._num_parts = triton.next_power_of_2(len(items)) if split else 0


def cut_decode(seq_lens: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Items, q_indices and merge_indptr (see `kernels.gpu.attend`) of one new token a row."""
    counts = ceil_div(seq_lens, PIECE)
    merge_indptr = np.concatenate([[0], np.cumsum(counts)])
    request = np.repeat(np.arange(len(seq_lens)), counts)
    piece = np.arange(merge_indptr[-1]) - merge_indptr[request]
    begin, size = piece * PIECE, seq_lens[request]
    end = np.minimum(begin + PIECE, size)
    zeros, ones, at = np.zeros_like(piece), np.ones_like(piece), np.arange(len(piece))
    items = np.stack([request, begin, end, at, ones, size, zeros, zeros], 1)
    return _int32(items, np.stack([request, at], 1), merge_indptr)


def cut_extend(
    seq_lens: Int32Array, query_lens: Int32Array, queries: int
) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Items and q_indices in causal tiles of `queries` new tokens; nothing is merged."""
    counts = ceil_div(query_lens, queries)
    request = np.repeat(np.arange(len(seq_lens)), counts)
    tile = np.arange(counts.sum()) - (np.cumsum(counts) - counts)[request]
    first = tile * queries  # among the request's new tokens
    count = np.minimum(queries, query_lens[request] - first)
    before = (seq_lens - query_lens)[request] + first
    token = (np.cumsum(query_lens) - query_lens)[request] + first
    zeros, ones = np.zeros_like(tile), np.ones_like(tile)
    items = np.stack([request, zeros, before + count, token, count, before + 1, ones, zeros], 1)
    tokens = np.arange(query_lens.sum())
    return _int32(items, np.stack([tokens, tokens], 1), np.zeros(1))


def _int32(*arrays: NDArray[np.generic]) -> tuple[Int32Array, Int32Array, Int32Array]:
    one, two, three = (array.astype(np.int32) for array in arrays)
    return one, two, three
