"""What a decode step costs flat and as a tree, so that the cheaper is taken.

The figures are those of an H200; on another card of its kind both estimates are off alike.
"""

from dataclasses import dataclass

import numpy as np

from radixkv.arrays import Int32Array
from radixkv.attention.shared_prefix.plan import Shape, TreePlan


@dataclass(frozen=True)
class Card:
    """Microseconds, and bytes or operations a microsecond.

    A flat kernel reads what is shared once from memory and the other times from its cache.
    """

    flat_launch: float = 9.0
    tree_launch: float = 12.0
    memory: float = 4.05e6
    cache: float = 7.6e6
    wide: float = 4.8e8
    parts: float = 4.0e6
    # Both kinds of items run side by side; this share of the shorter one shows.
    overlap: float = 0.35


H200 = Card()


@dataclass(frozen=True)
class Cost:
    """Estimated microseconds of one layer, either way."""

    flat_us: float
    tree_us: float

    @property
    def tree_pays(self) -> bool:
        return self.tree_us < self.flat_us


def cost_of(plan: TreePlan, shape: Shape, head_dim: int, itemsize: int, card: Card = H200) -> Cost:
    """What `plan` costs, and what its batch costs flat."""
    slot = 2 * shape.kv_heads * head_dim * itemsize
    heads = shape.kv_heads * shape.group
    again = plan.total - plan.unique
    flat = card.flat_launch + plan.unique * slot / card.memory + again * slot / card.cache
    narrow = _slots(plan.narrow) * slot / card.memory
    # A tile of 64 rows or fewer is computed by one half of a block.
    rows = 64 * -(-plan.wide[:, 4] * shape.group // 64)
    work = int(rows.astype(np.int64) @ (plan.wide[:, 2] - plan.wide[:, 1]))
    wide = work * shape.kv_heads * head_dim * 4 / card.wide
    parts = int(plan.starts[-1]) * heads * head_dim * 4 * 2 / card.parts
    side_by_side = max(narrow, wide) + card.overlap * min(narrow, wide)
    read = max(side_by_side, plan.unique * slot / card.memory)
    return Cost(flat, card.tree_launch + read + parts)


def _slots(items: Int32Array) -> int:
    return int((items[:, 2] - items[:, 1]).sum())
