"""What a decode step is cut into, and by what: the contract of the planners.

    rows            runs                                   work items
    a b c d e       [a b] by 3 requests                    pieces of a run x tiles of its requests
    a b c x         [c]   by 2        [d e] [x] [y z]
    a b y z

Rows share a slot at a position only if they share all before it: that is how a prefix cache hands
slots out, and what lets a common prefix be found by bisection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from radixkv.arrays import Int32Array

NO_ITEM = -1
# Steps after which a batch is cut anew, so that the pieces that grow stay even.
MAX_ADVANCES = 64


@dataclass(frozen=True)
class Shape:
    """What cutting depends on: the model's heads, and what runs well on the card.

    group: query heads a KV head. narrow_rows, wide_rows: query rows (requests x group) of an item
    of either kind. wide_blocks, narrow_blocks: blocks the card runs at once, a block being an item
    and a KV head. share: slots a request must save for its share of a run to pay.
    """

    group: int
    kv_heads: int
    narrow_rows: int = 16
    wide_rows: int = 128
    wide_blocks: int = 132
    narrow_blocks: int = 792
    shortest_wide: int = 256
    shortest_narrow: int = 256
    longest_narrow: int = 1024
    share: int = 64

    @property
    def options(self) -> Int32Array:
        """All of it in order, as the native planner reads it."""
        return np.array(list(vars(self).values()), np.int32)


@dataclass
class TreePlan:
    """Work items (see `radixkv.kernels.gpu.attend`) of both kinds, and where their results go.

    runs: (n, 4) int32, each (row, start, end, requests). starts: (requests + 1,) int32, of the
    partial results of each request. growing: the narrow item at the end of each row, or NO_ITEM
    where that is shared. unique, total: distinct slots, and slots that all requests see together.
    """

    wide: Int32Array
    narrow: Int32Array
    q_indices: Int32Array
    starts: Int32Array
    runs: Int32Array
    growing: Int32Array
    advances: int = field(default=0, compare=False)

    @property
    def unique(self) -> int:
        return int((self.runs[:, 2] - self.runs[:, 1]).sum()) + self.advances * len(self.growing)

    @property
    def total(self) -> int:
        lengths = (self.runs[:, 2] - self.runs[:, 1]).astype(np.int64)
        return int(lengths @ self.runs[:, 3]) + self.advances * len(self.growing)

    def advance(self) -> bool:
        """Every row has one slot more; False, and nothing changed, where that takes a new plan."""
        if self.advances == MAX_ADVANCES or (self.growing == NO_ITEM).any():
            return False
        self.narrow[self.growing, 2] += 1
        self.narrow[self.growing, 5] += 1
        self.advances += 1
        return True


class Planner(Protocol):
    """Makes plans."""

    def __call__(self, rows: Sequence[Int32Array], shape: Shape) -> TreePlan:
        """The plan of a decode batch.

        rows: one (context length,) int32 array a request, the new token's slot at its end.
        """
