"""Paged attention in Triton: any CUDA card, dtype, page size and head size. Correct first."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceArrays, DeviceAttention, DeviceStep
from radixkv.kernels.gpu.attend import NARROW, Softmax, Tile, Work, attend, merge
from radixkv.memory.kv_pool import MHATokenToKVPool

# Slots of a decode row that one block reads; what is longer is read in pieces and merged.
PIECE = 1024
Int32Array = NDArray[np.int32]


class TritonAttention(DeviceAttention):
    """Decode rows in pieces that are merged; prompts in causal tiles that read their whole context.

    k_scale, v_scale: what K and V were divided by when they were stored (fp8 only).
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
        self.step = step or self.step
        self._arrays = DeviceArrays(pool.device)
        self._heads = 0
        self._items = self._parts = 0

    @property
    def graph_key(self) -> Hashable:
        return self.step.key, self._arrays.generation, self._items, self._parts

    def prepare(self, batch: AttentionBatch) -> None:
        # The heads of the queries are known once a layer ran.
        if self._heads:
            self._cut()

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
        if q.shape[1] != self._heads:
            self._heads = q.shape[1]
            self._cut()
        q, parts, lse = q.contiguous(), None, None
        out = torch.empty_like(q)
        if self._parts:
            parts = q.new_empty((self._parts, *q.shape[1:]), dtype=torch.float32)
            lse = q.new_empty((self._parts, q.shape[1]), dtype=torch.float32)
        arrays = self._arrays
        attend(
            q,
            self.pool.k(layer),
            self.pool.v(layer),
            self.step.table,
            Work(arrays["items"], arrays["count"], arrays["members"], self._items),
            out if parts is None else parts,
            lse,
            Softmax(self._scale(sm_scale), softcap or 0.0, self.k_scale, self.v_scale),
            page_size=self.pool.page_size,
            tile=self._tile(),
            window=window,
            sinks=sinks if parts is None else None,
        )
        if parts is not None and lse is not None:
            merge(parts, lse, arrays["starts"][: len(q) + 1], out, sinks)
        return out

    def _tile(self) -> Tile:
        # A tile holds all heads of a KV head; prompts fill larger ones.
        rows = max(16, triton.next_power_of_2(self._heads // self.pool.kv_heads))
        if self._is_decode():
            return replace(NARROW, rows=rows)
        return Tile(max(64, rows), 32, 4, 3)

    def _is_decode(self) -> bool:
        return self.step.max_query == 1

    def _cut(self) -> None:
        lengths, query_lens = self.step.host_lengths, self.step.host_query_lens
        if self._is_decode():
            items, members, starts = cut_decode(lengths)
        else:
            queries = self._tile().rows // (self._heads // self.pool.kv_heads)
            items, members, starts = cut_extend(lengths, query_lens, queries)
        count = np.array([len(items)], np.int32)
        self._arrays.put(items=items, members=members, starts=starts, count=count)
        self._items = triton.next_power_of_2(len(items))
        # Without pieces there is nothing to merge.
        split = self._is_decode() and len(items) > len(lengths)
        self._parts = triton.next_power_of_2(len(items)) if split else 0


def cut_decode(lengths: Int32Array) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Items, members and starts (see `kernels.gpu.attend`) of one new token a row."""
    counts = -(-lengths // PIECE)
    starts = np.concatenate([[0], np.cumsum(counts)])
    request = np.repeat(np.arange(len(lengths)), counts)
    piece = np.arange(starts[-1]) - starts[request]
    begin, size = piece * PIECE, lengths[request]
    end = np.minimum(begin + PIECE, size)
    zeros, ones, at = np.zeros_like(piece), np.ones_like(piece), np.arange(len(piece))
    items = np.stack([request, begin, end, at, ones, size, zeros, zeros], 1)
    return _int32(items, np.stack([request, at], 1), starts)


def cut_extend(
    lengths: Int32Array, query_lens: Int32Array, queries: int
) -> tuple[Int32Array, Int32Array, Int32Array]:
    """Items and members in causal tiles of `queries` new tokens; nothing is to be merged."""
    counts = -(-query_lens // queries)
    request = np.repeat(np.arange(len(lengths)), counts)
    tile = np.arange(counts.sum()) - (np.cumsum(counts) - counts)[request]
    first = tile * queries  # among the request's new tokens
    count = np.minimum(queries, query_lens[request] - first)
    before = (lengths - query_lens)[request] + first
    token = (np.cumsum(query_lens) - query_lens)[request] + first
    zeros, ones = np.zeros_like(tile), np.ones_like(tile)
    items = np.stack([request, zeros, before + count, token, count, before + 1, ones, zeros], 1)
    tokens = np.arange(query_lens.sum())
    return _int32(items, np.stack([tokens, tokens], 1), np.zeros(1))


def _int32(*arrays: NDArray[np.generic]) -> tuple[Int32Array, Int32Array, Int32Array]:
    one, two, three = (array.astype(np.int32) for array in arrays)
    return one, two, three
