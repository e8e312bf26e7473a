from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array

HAS_ASSERTIONS: bool

class Planner:
    """A shape is its `options`."""

    def __init__(self, rows: Sequence[Int32Array], query_lens: Sequence[int]) -> None: ...
    def survey(self, shapes: Sequence[Int32Array]) -> NDArray[np.int64]:
        """See `radixkv.attention.shared_prefix.plan.Planner`."""

    def cut(
        self, shape: Int32Array
    ) -> tuple[Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array]:
        """Wide, narrow, q_indices, merge_indptr, runs and growing of `TreePlan`."""
