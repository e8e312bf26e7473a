"""Decode steps as CUDA graphs: launching kernels one by one takes longer than running them."""

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from radixkv.attention import AttentionBatch

# Each holds what a step takes of memory.
MAX_GRAPHS = 80
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# One thread captures at a time.
_CAPTURING = RLock()


class Captured(NamedTuple):
    """A graph, and where it leaves its logits."""

    graph: torch.cuda.CUDAGraph
    logits: Tensor


# Computes the planned step from token ids and positions, and gives all its logits.
Call = Callable[[Tensor, Tensor], Tensor]


class DecodeGraphs:
    """Graphs of a model's call after a plan of `backend`, captured when needed.

    Batches are padded to a few sizes. A graph serves all plans with the key it was captured under;
    those of a size are captured together and share a memory pool (see
    `DeviceAttention.graph_keys`). Sizes may be captured in any order. backend: a DeviceAttention. A
    pool's memory is what a step takes beside the model: at most MAX_GRAPHS graphs are kept, those
    that were used last.
    """

    def __init__(self, backend: Any, max_batch: int, max_context: int) -> None:
        self._backend = backend
        self._sizes = sorted({*(size for size in SIZES if size < max_batch), max_batch})
        # A table that moved would take every graph with it.
        backend.reserve(max_batch, max_context)
        # Token ids and positions, which every graph reads.
        self._inputs = torch.zeros((2, max_batch), dtype=torch.int64, device=backend.pool.device)
        self._graphs: dict[Hashable, Captured] = {}

    def serves(self, batch: AttentionBatch) -> bool:
        """Whether it has one new token a request, for no more requests than graphs have."""
        return batch.is_decode and len(batch.rows) <= self._sizes[-1]

    def plan(self, batch: AttentionBatch) -> None:
        """Plan `batch`, padded to the size of its graph."""
        self._backend.plan(batch, pad_to=self._size(batch))

    def logits(self, token_ids: NDArray[Any], batch: AttentionBatch, call: Call) -> Tensor:
        """Float32 logits (requests, vocabulary) of the planned batch; the next call overwrites
        them. call: always the same.
        """
        n, size = len(batch.rows), self._size(batch)
        self._send(token_ids, batch.positions)
        key = self._backend.graph_key
        captured = self._graphs.pop(key, None)
        if captured is None:
            return self._capture(size, call)[:n]
        self._graphs[key] = captured  # at the end, so that it is the last to go
        captured.graph.replay()
        return captured.logits[:n]

    def _size(self, batch: AttentionBatch) -> int:
        return next(size for size in self._sizes if size >= len(batch.rows))

    def _send(self, token_ids: NDArray[Any], positions: NDArray[Any]) -> None:
        staging = torch.zeros(self._inputs.shape, dtype=torch.int64, pin_memory=True)
        np.stack([token_ids, positions], out=staging.numpy()[:, : len(token_ids)])
        self._inputs.copy_(staging, non_blocking=True)

    def _capture(self, size: int, call: Call) -> Tensor:
        """The planned step, and graphs for every plan of its size."""
        token_ids, positions = self._inputs[:, :size]
        # Compiles what is to be compiled, and is this step.
        logits = call(token_ids, positions)
        # They are never replayed side by side, and logits of one are read before those of another.
        pool = torch.cuda.graph_pool_handle()
        for key in self._backend.graph_keys():
            graph = torch.cuda.CUDAGraph()
            with self._backend.as_if(key), _captured_in(graph, pool):
                captured = call(token_ids, positions)
            if len(self._graphs) == MAX_GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[key] = Captured(graph, captured)
        return logits


@contextmanager
def _captured_in(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """As `torch.cuda.graph` with the memory pool `pool`, with nothing else given back meanwhile.

    A graph that a collection of garbage finds would be destroyed, which ends a capture as an error.
    Other threads may do as they like but wait for the whole device, which ends one too. A capture
    begins with that, so threads capture one after another.
    """
    with _CAPTURING:
        collects = gc.isenabled()
        gc.disable()
        try:
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
                yield
        finally:
            if collects:
                gc.enable()
