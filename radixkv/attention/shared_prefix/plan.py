"""What a step is cut into, and by what: the contract of the planners.

    rows            runs                                   work items
    a b c d e       [a b] by 3 requests                    pieces of a run x tiles of its tokens
    a b c x         [c]   by 2        [d e] [x] [y z]
    a b y z

Rows share a slot at a position only if they share all before it: that is how a prefix cache hands
slots out, and what lets a common prefix be found by bisection. Every new token of a request sees
what comes before them all; the run at the end of its row, which holds them, it sees up to itself.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from radixkv.arrays import Int32Array

NO_ITEM = -1
# Of partial results: so many, and so many more for each new token of a step. What a step has room
# for on the device is by its tokens alone.
PARTS, PARTS_A_TOKEN = 2048, 16
# Steps after which a batch is cut again, so that the pieces that grow stay even.
MAX_ADVANCES = 64


@dataclass(frozen=True)
class Shape:
    """What cutting depends on: the model's heads, the card, and how long pieces are to be.

    group: query heads a KV head. narrow_rows, wide_rows: query rows (tokens x group) of an item of
    either kind. wide_blocks, narrow_blocks: blocks the card runs at once, a block being an item and
    a KV head. shortest_wide, shortest_narrow, longest_narrow: slots of a piece. share: slots a
    request must save for its share of a run to pay.
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

    @cached_property
    def options(self) -> Int32Array:
        """All of it in order, as the native planner reads it."""
        return np.array(astuple(self), np.int32)


@dataclass
class TreePlan:
    """Work items (see `radixkv.kernels.gpu.attend`) of both kinds, and where their results go.

    runs: (n, 4) int32, each (row, start, end, requests). merge_indptr: (tokens + 1,) int32; the
    partial results of token i are merge_indptr[i] to merge_indptr[i + 1]. growing: the narrow item
    at the end of each row, or NO_ITEM where that is shared or of several tokens. unique, total:
    distinct slots, and slots that all requests see together.
    """

    wide: Int32Array
    narrow: Int32Array
    q_indices: Int32Array
    merge_indptr: Int32Array
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

    def joined(self) -> "TreePlan":
        """All items as narrow ones, the wide first: for one kernel that computes both kinds."""
        growing = np.where(self.growing == NO_ITEM, NO_ITEM, self.growing + len(self.wide))
        return replace(
            self,
            wide=self.wide[:0],
            narrow=np.concatenate([self.wide, self.narrow]),
            growing=growing.astype(np.int32),
        )

    def advance(self) -> bool:
        """Every row has one slot more; False, and nothing changed, where that takes a new plan."""
        if self.advances == MAX_ADVANCES or (self.growing == NO_ITEM).any():
            return False
        self.narrow[self.growing, 2] += 1
        self.narrow[self.growing, 5] += 1
        self.advances += 1
        return True


# What cutting would give. wide_items, narrow_items: how many. wide_slots, narrow_slots: of all
# items. wide_halves: as wide_slots, those of items of more than 64 query rows twice. wide_longest,
# narrow_longest: slots of the longest item. parts: partial results. most_parts: of one token.
# unique, total: as of `TreePlan`. shared: runs of two or more requests.
SURVEY = (
    "wide_items",
    "wide_slots",
    "wide_halves",
    "wide_longest",
    "narrow_items",
    "narrow_slots",
    "narrow_longest",
    "parts",
    "most_parts",
    "unique",
    "total",
    "shared",
)


def parts_at_most(tokens: int) -> int:
    """Partial results that a plan of so many new tokens may have."""
    return PARTS + PARTS_A_TOKEN * tokens


class Planner(Protocol):
    """The rows of a step, to be cut by one shape or another; see `new_planner`."""

    def __init__(self, rows: Sequence[Int32Array], query_lens: Sequence[int]) -> None: ...

    def survey(self, shapes: Sequence[Shape]) -> NDArray[np.int64]:
        """(shapes, len(SURVEY)): what cutting by each shape would give, without cutting."""

    def cut(self, shape: Shape) -> TreePlan:
        """The plan by `shape`."""
