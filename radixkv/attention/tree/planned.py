"""The plan of a decode step as a tree, kept up from step to step, and what runs it."""

from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from radixkv.attention.base import AttentionBatch
from radixkv.attention.device import DeviceArrays
from radixkv.attention.tree.cost import cost_of
from radixkv.attention.tree.explain import Choice, Explanation
from radixkv.attention.tree.planner import Int32Array, Shape, TreePlan, plan_rows
from radixkv.attention.tree.tiles import NARROW_BLOCKS, Inputs, Items, TileKernels
from radixkv.kernels.gpu.attend import NARROW, Softmax, Work
from radixkv.memory.kv_pool import MHATokenToKVPool

# Launched items are rounded up to these, so that few captured graphs cover all plans.
WIDE_GRID, NARROW_GRID, PARTS_GRID = 4, 32, 256


class PlannedTree:
    """The plan of the last decode step, kept up from step to step, and its arrays on the device.

    heads: of the queries that what is on the device was planned for. served_by: whose kernels
    compute it, "cuda" or "triton".
    """

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self._pool = pool
        self._arrays = DeviceArrays(pool.device)
        self._shape = Shape(1, pool.kv_heads)
        self._kernels = TileKernels(pool)
        self.served_by = "triton"
        self._plan: TreePlan | None = None
        self._names: list[Hashable] = []
        self._lengths = np.zeros(0, np.int32)
        self._explanation = Explanation("flat", "nothing is planned")
        self.heads = 0
        self._requests = self.num_parts = self.num_wide = self.num_narrow = 0
        self._wide_rows = self._narrow_rows = 0

    def reshape(self, heads: int) -> None:
        """Plan for queries of so many heads from now on."""
        group = heads // self._pool.kv_heads
        rows = max(NARROW.rows, 1 << (group - 1).bit_length())
        wide_rows = max(self._kernels.wide_rows, rows)
        blocks = _multiprocessors(self._pool.device)
        self._shape = Shape(
            group, self._pool.kv_heads, rows, wide_rows, blocks, NARROW_BLOCKS * blocks
        )
        self._plan = None
        self.served_by = self._kernels.serving(group)

    def update(self, batch: AttentionBatch, mode: str) -> Explanation:
        """Plan `batch`: on from the last plan where every row has grown by one slot."""
        names = [] if batch.names is None else list(batch.names)
        if not self._advanced(names, batch.context_lens):
            self._plan = plan_rows(batch.rows, self._shape)
            self._explanation = self._explained(self._plan, mode)
        self._names = [] if None in names else names
        self._lengths = batch.context_lens
        return self._explanation

    def forget(self) -> None:
        """The step is planned elsewhere: what comes next does not follow the last plan here."""
        self._plan = None

    def _advanced(self, names: list[Hashable], lengths: Int32Array) -> bool:
        if self._plan is None or not self._names or names != self._names:
            return False
        return bool((lengths == self._lengths + 1).all()) and self._plan.advance()

    def _explained(self, plan: TreePlan, mode: str) -> Explanation:
        cost = cost_of(plan, self._shape, self._pool.head_dim, self._pool.dtype.itemsize)
        shared = int((plan.runs[:, 3] > 1).sum())

        def explained(choice: Choice, reason: str) -> Explanation:
            return Explanation(
                choice,
                reason,
                "",
                cost.flat_us,
                cost.tree_us,
                plan.total,
                plan.unique,
                shared,
                len(plan.wide),
                len(plan.narrow),
            )

        if mode == "tree":
            return explained("tree", "the mode is tree")
        if not shared:
            return explained("flat", "nothing is shared that is worth it")
        if not cost.tree_pays:
            return explained("flat", "flat is estimated to be as fast")
        return explained("tree", "it is estimated to be faster")

    def send(self, requests: int) -> None:
        """Bring the plan to the device, for a batch padded to `requests`."""
        plan = self._plan
        assert plan is not None
        starts = np.full(requests + 1, plan.starts[-1], np.int32)
        starts[: len(plan.starts)] = plan.starts
        counts = np.array([len(plan.wide), len(plan.narrow)], np.int32)
        self._requests = requests
        self.heads = self._shape.group * self._shape.kv_heads
        self._wide_rows = self._rows(plan.wide, least=64)
        self._narrow_rows = self._rows(plan.narrow, least=8)
        self.num_wide = _up(len(plan.wide), WIDE_GRID)
        self.num_narrow = _up(len(plan.narrow), NARROW_GRID)
        self.num_parts = _up(int(plan.starts[-1]), PARTS_GRID)
        self._arrays.put(
            counts=counts,
            starts=starts,
            wide=_padded(plan.wide, self.num_wide),
            narrow=_padded(plan.narrow, self.num_narrow),
            members=plan.members,
        )

    @property
    def key(self) -> Hashable:
        counts = self.num_wide, self.num_narrow, self.num_parts
        return self._arrays.generation, *counts, self._wide_rows, self._narrow_rows

    @property
    def is_hopper(self) -> bool:
        return self._kernels.is_hopper

    @property
    def starts(self) -> Tensor:
        return self._arrays["starts"][: self._requests + 1]

    def run(self, inputs: Inputs, parts: Tensor, lse: Tensor, softmax: Softmax) -> None:
        """Compute the partial results of the plan. inputs: q, k, v and the table of rows."""
        wide = self._items("wide", 0, self.num_wide, self._wide_rows)
        narrow = self._items("narrow", 1, self.num_narrow, self._narrow_rows)
        self._kernels.run(inputs, wide, narrow, parts, lse, softmax)

    def _rows(self, items: Int32Array, least: int) -> int:
        """Query rows of the largest item, rounded up to a power of two, `least` or more."""
        largest = int(items[:, 4].max(initial=1)) * self._shape.group
        return max(least, 1 << (largest - 1).bit_length())

    def _items(self, name: str, count: int, grid: int, rows: int) -> Items | None:
        if not grid:
            return None
        arrays = self._arrays
        work = Work(arrays[name], arrays["counts"][count:], arrays["members"], grid)
        return Items(work, rows)


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _padded(items: Int32Array, n: int) -> Int32Array:
    padded = np.zeros((n, items.shape[1]), np.int32)
    padded[: len(items)] = items
    return padded


def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count
