"""Decode where requests share prefixes: each shared run of slots is read once for all under it."""

from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor

from radixkv.arguments import at_least
from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceAttention, DeviceStep
from radixkv.attention.paged import TritonAttention
from radixkv.attention.tree.explain import Explanation
from radixkv.attention.tree.planned import PlannedTree
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.kernels.gpu.attend import Softmax, merge
from radixkv.memory.kv_pool import MHATokenToKVPool


class TreeAttention(DeviceAttention):
    """As the flat backend, fa3 where it runs, else triton; decode steps as a tree where that pays.

    A step is a tree when every request has one new token, a shared prefix is long enough, and no
    window hides it. `explain()` tells what was chosen and why. mode: "auto", or "tree" or "flat" to
    take that always (where it is possible). q_heads: of the queries; learnt from the first step if
    None, which is flat then.
    """

    def __init__(
        self,
        pool: MHATokenToKVPool,
        *,
        k_scale: float = 1.0,
        v_scale: float = 1.0,
        mode: str = "auto",
        q_heads: int | None = None,
    ) -> None:
        super().__init__(pool, k_scale=k_scale, v_scale=v_scale)
        if mode not in ("auto", "tree", "flat"):
            raise InvalidArgumentError(f"mode is {mode!r}; it takes auto, tree or flat", mode=mode)
        self.mode = mode
        self.flat = flat_backend(pool, k_scale, v_scale, self.step)
        self._planned_tree = PlannedTree(pool)
        self._heads = 0
        if q_heads is not None:
            self._learn(_checked_heads(q_heads, pool))
        self._flat_kernels = "triton" if isinstance(self.flat, TritonAttention) else "fa3"
        self._explanation = Explanation("flat", "nothing is planned", self._flat_kernels)

    def explain(self) -> Explanation:
        """What was chosen when the last step was planned from scratch, why, and what it reads.

        The steps that follow it, up to 64, go by the same choice.
        """
        return self._explanation

    @property
    def graph_key(self) -> Hashable:
        if self._explanation.choice == "flat":
            return "flat", self.flat.graph_key
        # Layers with a window, or with other heads than were planned for, are flat all the same.
        return "tree", self.step.key, self._planned_tree.key, self.flat.graph_key

    def prepare(self, batch: AttentionBatch) -> None:
        self.flat.batch = batch
        self.flat.prepare(batch)
        self._explanation = self._choose(batch)
        if self._explanation.choice == "tree":
            self._planned_tree.send(self.step.requests)

    def _choose(self, batch: AttentionBatch) -> Explanation:
        reason = self._never_a_tree(batch)
        if reason:
            self._planned_tree.forget()
            return Explanation("flat", reason, self._flat_kernels)
        found = self._planned_tree.update(batch, self.mode)
        is_flat = found.choice == "flat"
        return replace(
            found, kernels=self._flat_kernels if is_flat else self._planned_tree.served_by
        )

    def _never_a_tree(self, batch: AttentionBatch) -> str:
        """Why the step is flat whatever its rows share; empty if it may be a tree."""
        if self.mode == "flat":
            return "the mode is flat"
        if not self._heads:
            return "the heads of the queries are not known yet"
        return "" if batch.is_decode else "requests have more than one new token"

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
        if not self._is_tree(q) or window is not None:
            if q.shape[1] != self._heads:
                self._learn(q.shape[1])
            return self.flat.run(
                q, layer, sm_scale=sm_scale, window=window, softcap=softcap, sinks=sinks
            )
        softmax = Softmax(self._scale(sm_scale), softcap or 0.0, self.k_scale, self.v_scale)
        return self._run_tree(q.contiguous(), layer, softmax, sinks)

    def _is_tree(self, q: Tensor) -> bool:
        return self._explanation.choice == "tree" and q.shape[1] == self._planned_tree.heads

    def _learn(self, heads: int) -> None:
        self._heads = heads
        self._planned_tree.reshape(heads)

    def _run_tree(self, q: Tensor, layer: int, softmax: Softmax, sinks: Tensor | None) -> Tensor:
        tree, out = self._planned_tree, torch.empty_like(q)
        parts = q.new_empty((tree.num_parts, *q.shape[1:]), dtype=torch.float32)
        lse = q.new_empty((tree.num_parts, q.shape[1]), dtype=torch.float32)
        inputs = q, self.pool.k(layer), self.pool.v(layer), self.step.table
        tree.run(inputs, parts, lse, softmax)
        merge(parts, lse, tree.starts, out, sinks, early=tree.is_hopper)
        return out


def _checked_heads(q_heads: int, pool: MHATokenToKVPool) -> int:
    if at_least(1, q_heads=q_heads) % pool.kv_heads:
        raise InvalidArgumentError(
            f"q_heads is {q_heads}; this pool takes multiples of {pool.kv_heads}", q_heads=q_heads
        )
    return q_heads


def flat_backend(
    pool: MHATokenToKVPool, k_scale: float, v_scale: float, step: DeviceStep
) -> DeviceAttention:
    """fa3 where it runs and serves `pool`, else triton."""
    # Imported here: what fa3 needs is not everywhere.
    from radixkv.attention.fa3 import FA3Attention, check_card

    try:
        check_card()
        return FA3Attention(pool, k_scale=k_scale, v_scale=v_scale, step=step)
    except (BackendUnavailableError, ImportError, InvalidArgumentError):
        return TritonAttention(pool, k_scale=k_scale, v_scale=v_scale, step=step)
