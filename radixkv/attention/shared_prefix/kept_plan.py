"""The plan of a step on the host, kept up from step to step."""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from radixkv.attention.base import AttentionBatch
from radixkv.attention.explain import Choice, Explanation
from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.cost import Model, costs
from radixkv.attention.shared_prefix.cuts import candidates, coarser
from radixkv.attention.shared_prefix.plan import SURVEY, Planner, Shape, TreePlan, parts_at_most
from radixkv.memory.kv_pool import PoolShape

# Of the flat estimate: less than that, and a step is cut into pieces though nothing is shared.
UNSHARED = 0.9
SHARED, UNIQUE, TOTAL, PARTS = map(SURVEY.index, ("shared", "unique", "total", "parts"))


class KeptPlan:
    """`follow(batch)` makes the plan of the batch: from the last one where rows only grew.

    plan, shape: of the last batch, and what it was cut by.
    """

    plan: TreePlan
    shape: Shape

    def __init__(self, pool: PoolShape, core: str | None) -> None:
        self._pool, self._core = pool, core
        self._base = Shape(1, pool.kv_heads)
        self.forget()

    def reshape(self, base: Shape) -> None:
        """Choose among cuts like `base` from now on."""
        self._base = base
        self.forget()

    def forget(self) -> None:
        """The step is planned elsewhere: the next batch does not follow the last plan."""
        self._versions: list[Hashable] = []
        self._lengths = np.zeros(0, np.int32)

    def follow(self, batch: AttentionBatch) -> None:
        """Make `plan` that of `batch`."""
        if not self._advanced(batch):
            self._choose(batch)
        self._versions = [] if None in batch.versions else batch.versions
        self._lengths = batch.context_lens

    def _advanced(self, batch: AttentionBatch) -> bool:
        if not batch.versions or batch.versions != self._versions or not batch.is_decode:
            return False
        return bool((batch.context_lens == self._lengths + 1).all()) and self.plan.advance()

    def _choose(self, batch: AttentionBatch) -> None:
        """Cut `batch` in the way that is estimated to be the fastest."""
        max_query, room = max(batch.query_lens), parts_at_most(batch.num_tokens)
        planner = new_planner(batch.rows, batch.query_lens, self._core)
        shapes, survey = self._fitting(planner, max_query, room)
        estimate = costs(survey, max_query, self._model())
        best = int(np.where(survey[:, PARTS] <= room, estimate.tree_us, np.inf).argmin())
        self.shape, self.plan = shapes[best], planner.cut(shapes[best])
        if self._pool.is_latent:
            self.plan = self.plan.joined()
        self._flat_us, self._tree_us = estimate.flat_us, float(estimate.tree_us[best])
        self._survey = survey[best]

    def _fitting(
        self, planner: Planner, max_query: int, room: int
    ) -> tuple[tuple[Shape, ...], NDArray[np.int64]]:
        """Ways to cut of which one or more gives no more than `room` parts, and what they give."""
        shapes = candidates(self._base, max_query)
        survey = planner.survey(shapes)
        while survey[:, PARTS].min() > room:
            shapes = tuple(map(coarser, shapes))
            survey = planner.survey(shapes)
        return shapes, survey

    def _model(self) -> Model:
        base, pool = self._base, self._pool
        heads = base.group * base.kv_heads
        rope_dim = pool.head_dim - pool.v_head_dim
        return Model(heads, base.kv_heads, pool.head_dim, pool.dtype.itemsize, rope_dim)

    def explained(self, mode: str, *, tree: str, flat: str) -> Explanation:
        """What `mode` chooses by the plan. tree, flat: the kernels that would run it."""
        choice, reason = self._choice(mode)
        return Explanation(
            choice,
            reason,
            tree if choice == "tree" else flat,
            self._flat_us,
            self._tree_us,
            int(self._survey[TOTAL]),
            int(self._survey[UNIQUE]),
            int(self._survey[SHARED]),
            len(self.plan.wide),
            len(self.plan.narrow),
        )

    def _choice(self, mode: str) -> tuple[Choice, str]:
        if mode == "tree":
            return "tree", "the mode is tree"
        if self._survey[SHARED] and self._tree_us < self._flat_us:
            return "tree", "it is estimated to be faster"
        if self._tree_us < UNSHARED * self._flat_us:
            return "tree", "short pieces are estimated to be faster, with nothing shared"
        if not self._survey[SHARED]:
            return "flat", "no shared run is long enough"
        return "flat", "flat is estimated to be as fast"
