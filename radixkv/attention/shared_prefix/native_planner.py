"""The planner in C++."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array
from radixkv.attention.shared_prefix.plan import Shape, TreePlan
from radixkv.kernels import _planner


class NativePlanner:
    """See `Planner`. Rows that are not contiguous int32 are copied."""

    def __init__(self, rows: Sequence[Int32Array], query_lens: Sequence[int]) -> None:
        self._planner = _planner.Planner(rows, query_lens)

    def survey(self, shapes: Sequence[Shape]) -> NDArray[np.int64]:
        return self._planner.survey([shape.options for shape in shapes])

    def cut(self, shape: Shape) -> TreePlan:
        return TreePlan(*self._planner.cut(shape.options))
