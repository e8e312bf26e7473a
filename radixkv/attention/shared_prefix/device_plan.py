"""The plan of a step on the device."""

from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.attention.device_arrays import DeviceArrays
from radixkv.attention.shared_prefix.kernels import Items
from radixkv.attention.shared_prefix.plan import Shape, TreePlan
from radixkv.kernels.gpu.attend import Work
from radixkv.pages import round_up

# Launched items, and partial results, are rounded up to multiples of these, or of an eighth of the
# power of two that holds them: few captured graphs cover all plans, and few items are for nothing.
WIDE_GRID, NARROW_GRID, PARTS_GRID = 4, 32, 256
# As many parts of a token are merged alike, and so are that many and more.
FEW_PARTS, MANY_PARTS = 4, 32


class DevicePlan:
    """The work items that were sent last.

    heads: of the queries that they were planned for. num_parts: rows of partial results to make
    room for. most_parts: of one token, rounded up to a power of two from FEW_PARTS to MANY_PARTS.
    wide, narrow: the items of each kind, None without items of that kind.
    """

    def __init__(self, device: torch.device) -> None:
        # Room for some hundred items: plans of other batches take more or fewer, and no graph is
        # lost to that.
        self._arrays = DeviceArrays(device, least=2048)
        self.heads = self.num_parts = self.most_parts = 0
        self._tokens = self._num_wide = self._num_narrow = 0
        self._wide_rows = self._narrow_rows = 0

    def send(self, plan: TreePlan, shape: Shape, tokens: int) -> None:
        """Bring `plan`, cut by `shape`, to the device, for a batch padded to `tokens` new ones."""
        merge_indptr = np.full(tokens + 1, plan.merge_indptr[-1], np.int32)
        merge_indptr[: len(plan.merge_indptr)] = plan.merge_indptr
        self._tokens = tokens
        self.heads = shape.group * shape.kv_heads
        self._wide_rows = _rows(plan.wide, shape.group, least=64)
        self._narrow_rows = _rows(plan.narrow, shape.group, least=8)
        self._num_wide = _up(len(plan.wide), WIDE_GRID)
        self._num_narrow = _up(len(plan.narrow), NARROW_GRID)
        most_parts = int(np.diff(plan.merge_indptr).max())
        self.most_parts = min(max(_power_of_two(most_parts), FEW_PARTS), MANY_PARTS)
        self.num_parts = _up(int(plan.merge_indptr[-1]), PARTS_GRID)
        self._arrays.put(
            counts=np.array([len(plan.wide), len(plan.narrow)], np.int32),
            merge_indptr=merge_indptr,
            wide=_padded(plan.wide, self._num_wide),
            narrow=_padded(plan.narrow, self._num_narrow),
            q_indices=plan.q_indices,
        )

    @property
    def key(self) -> Hashable:
        counts = self._num_wide, self._num_narrow, self.num_parts, self.most_parts
        return self._arrays.generation, *counts, self._wide_rows, self._narrow_rows

    @property
    def merge_indptr(self) -> Tensor:
        """(tokens + 1,) int32, of the partial results of each token."""
        return self._arrays["merge_indptr"][: self._tokens + 1]

    @property
    def wide(self) -> Items | None:
        return self._items("wide", 0, self._num_wide, self._wide_rows)

    @property
    def narrow(self) -> Items | None:
        return self._items("narrow", 1, self._num_narrow, self._narrow_rows)

    def _items(self, name: str, count: int, grid: int, rows: int) -> Items | None:
        if not grid:
            return None
        arrays = self._arrays
        work = Work(arrays[name], arrays["counts"][count:], arrays["q_indices"], grid)
        return Items(work, rows)


def _rows(items: Int32Array, group: int, least: int) -> int:
    """Query rows of the largest item, rounded up to a power of two, `least` or more."""
    largest = int(items[:, 4].max(initial=1)) * group
    return max(least, _power_of_two(largest))


def _up(n: int, least: int) -> int:
    """`n` rounded up as is said above."""
    return round_up(n, max(least, _power_of_two(n) // 8))


def _power_of_two(n: int) -> int:
    """The smallest that is `n` or more."""
    return 1 << max(n - 1, 0).bit_length()


def _padded(items: Int32Array, n: int) -> Int32Array:
    padded = np.zeros((n, items.shape[1]), np.int32)
    padded[: len(items)] = items
    return padded
