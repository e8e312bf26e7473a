"""The planner in C++."""

from collections.abc import Sequence

from radixkv.arrays import Int32Array
from radixkv.attention.shared_prefix.plan import Shape, TreePlan
from radixkv.kernels import _planner


def plan_tree(rows: Sequence[Int32Array], shape: Shape) -> TreePlan:
    """See `Planner`. Rows that are not contiguous int32 are copied."""
    return TreePlan(*_planner.plan_tree(rows, shape.options))
