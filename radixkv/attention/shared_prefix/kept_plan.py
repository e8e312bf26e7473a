"""The plan of a decode step on the host, kept up from step to step."""

from collections.abc import Hashable

import numpy as np

from radixkv.attention.base import AttentionBatch
from radixkv.attention.explain import Choice, Explanation
from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.cost import Cost, cost_of
from radixkv.attention.shared_prefix.plan import Shape, TreePlan
from radixkv.memory.kv_pool import MHATokenToKVPool


class KeptPlan:
    """`follow(batch)` makes the plan of the batch: from the last one where rows only grew.

    plan, shape: of the last batch, and what it was cut by.
    """

    plan: TreePlan
    shape: Shape

    def __init__(self, pool: MHATokenToKVPool, core: str | None) -> None:
        self._pool = pool
        self._plan_rows = new_planner(core)
        self.forget()

    def reshape(self, shape: Shape) -> None:
        """Cut by `shape` from now on."""
        self.shape = shape
        self.forget()

    def forget(self) -> None:
        """The step is planned elsewhere: the next batch does not follow the last plan."""
        self._versions: list[Hashable] = []
        self._lengths = np.zeros(0, np.int32)

    def follow(self, batch: AttentionBatch) -> None:
        """Make `plan` that of `batch`."""
        if not self._advanced(batch):
            self.plan = self._plan_rows(batch.kv_indices, self.shape)
            self._cost = cost_of(
                self.plan, self.shape, self._pool.head_dim, self._pool.dtype.itemsize
            )
            self._counts = self.plan.total, self.plan.unique
        self._versions = [] if None in batch.versions else batch.versions
        self._lengths = batch.context_lens

    def _advanced(self, batch: AttentionBatch) -> bool:
        if not batch.versions or batch.versions != self._versions:
            return False
        return bool((batch.context_lens == self._lengths + 1).all()) and self.plan.advance()

    def explained(self, mode: str, *, tree: str, flat: str) -> Explanation:
        """What `mode` chooses by the plan. tree, flat: the kernels that would run it."""
        plan = self.plan
        shared = int((plan.runs[:, 3] > 1).sum())
        choice, reason = _choice(mode, shared > 0, self._cost)
        return Explanation(
            choice,
            reason,
            tree if choice == "tree" else flat,
            self._cost.flat_us,
            self._cost.tree_us,
            *self._counts,
            shared,
            len(plan.wide),
            len(plan.narrow),
        )


def _choice(mode: str, is_shared: bool, cost: Cost) -> tuple[Choice, str]:
    if mode == "tree":
        return "tree", "the mode is tree"
    if not is_shared:
        return "flat", "no shared run is long enough"
    if not cost.tree_pays:
        return "flat", "flat is estimated to be as fast"
    return "tree", "it is estimated to be faster"
