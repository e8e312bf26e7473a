"""The plan of a step on the device, where captured graphs find every later one, too."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.attention.device_arrays import DeviceArrays
from radixkv.attention.shared_prefix.plan import Shape, TreePlan, parts_at_most
from radixkv.kernels.gpu.merging import split_of
from radixkv.memory.kv_pool import PoolShape

# Query rows of the smallest narrow block. It has half the registers of one of twice as many.
FEW = 8
# Query rows of the smaller wide block.
HALF = 64


class Room(NamedTuple):
    """Room for every plan of up to `tokens` new tokens under so many query heads.

    number: another one for each room. arrays: the plan that was sent last. partial_o:
    (parts, heads, v_head_dim), partial_lse: (parts, heads) float32: the results of its items.
    """

    number: int
    tokens: int
    heads: int
    arrays: DeviceArrays
    partial_o: Tensor
    partial_lse: Tensor


class Kind(NamedTuple):
    """Which kernels a plan asks for.

    wide: 0: there are no wide items; 1: blocks on half of the multiprocessors take one each; 2:
    there are more. Blocks in vain would stand in the way of the narrow ones. has_few_rows: no
    narrow item beside wide ones has more than FEW query rows. is_half: no wide item has more than
    HALF, which leaves more room for narrow blocks of many rows; only where there are such blocks.
    """

    wide: int = 0
    has_few_rows: bool = False
    is_half: bool = False


class Listed(NamedTuple):
    """items: (capacity, 8) int32, see `kernels.gpu.attend`. size: (1,) int32, how many."""

    items: Tensor
    size: Tensor


class DevicePlan:
    """The work items that were sent last.

    All that a captured graph depends on of the plan itself is its kind, of which there are few.
    heads: of the queries that it was planned for. narrow_rows: query rows that a narrow item has at
    most.
    """

    def __init__(self, pool: PoolShape) -> None:
        self._pool = pool
        self.heads = self.narrow_rows = self._tokens = 0
        self.kind = Kind()
        self._num_rooms = 0
        # What was reserved is never given up: a long step in between loses no graph.
        self._reserved: Room | None = None
        self._other: Room | None = None
        self._room: Room | None = None

    def reserve(self, tokens: int, heads: int) -> None:
        """Have room for plans of up to so many tokens, which no later plan takes away."""
        if not _fits(self._reserved, tokens, heads):
            self._reserved = self._new_room(tokens, heads)

    def send(self, plan: TreePlan, shape: Shape, tokens: int) -> None:
        """Bring `plan`, cut by `shape`, to the device, for a batch padded to `tokens` new ones."""
        self.heads, self._tokens = shape.group * shape.kv_heads, tokens
        self.narrow_rows = shape.narrow_rows
        merge_indptr = np.full(tokens + 1, plan.merge_indptr[-1], np.int32)
        merge_indptr[: len(plan.merge_indptr)] = plan.merge_indptr
        self.kind = kind_of(plan, shape)
        counts = len(plan.wide), len(plan.narrow), 0, self._split(plan)
        self._enter_room()
        self._present.arrays.put(
            counts=np.array(counts, np.int32),
            merge_indptr=merge_indptr,
            q_indices=plan.q_indices,
            narrow=plan.narrow,
            wide=plan.wide,
        )

    @property
    def key(self) -> Hashable:
        return self._present.number, self.kind

    def all_keys(self) -> list[Hashable]:
        """Of all kinds of plans of as many tokens."""
        kinds = [Kind()]  # over latents, where one kernel computes all items
        if not self._pool.is_latent:
            kinds = kinds_of(self._tokens, self.heads // self._pool.kv_heads, self.narrow_rows)
        return [(self._present.number, kind) for kind in kinds]

    @contextmanager
    def as_if(self, key: Hashable) -> Iterator[None]:
        """Of another kind, one of `all_keys`, for the capture of its kernels."""
        kind = self.kind
        _, self.kind = cast(tuple[int, Kind], key)
        try:
            yield
        finally:
            self.kind = kind

    @property
    def wide(self) -> Listed:
        """Items that many query rows read."""
        return self._listed("wide", 0)

    @property
    def narrow(self) -> Listed:
        """All others."""
        return self._listed("narrow", 1)

    def _listed(self, name: str, count: int) -> Listed:
        arrays = self._present.arrays
        return Listed(arrays[name], arrays["counts"][count:])

    @property
    def taken(self) -> Tensor:
        """(1,) int32, see `kernels.gpu.tiles.attend_narrow`."""
        return self._present.arrays["counts"][2:3]

    @property
    def split(self) -> Tensor:
        """(1,) int32: warps that merge a row, see `kernels.gpu.merging`."""
        return self._present.arrays["counts"][3:4]

    @property
    def merge_indptr(self) -> Tensor:
        """(tokens + 1,) int32, of the partial results of each token."""
        return self._present.arrays["merge_indptr"][: self._tokens + 1]

    @property
    def q_indices(self) -> Tensor:
        """(capacity, 2) int32, see `kernels.gpu.attend`."""
        return self._present.arrays["q_indices"]

    @property
    def partials(self) -> tuple[Tensor, Tensor]:
        """Outputs and logarithms of sums, see `Room`; what is in them is of the last layer."""
        return self._present.partial_o, self._present.partial_lse

    @property
    def _present(self) -> Room:
        assert self._room is not None
        return self._room

    def _enter_room(self) -> None:
        if _fits(self._reserved, self._tokens, self.heads):
            self._room = self._reserved
            return
        if not _fits(self._other, self._tokens, self.heads):
            self._other = self._new_room(self._tokens, self.heads)
        self._room = self._other

    def _new_room(self, tokens: int, heads: int) -> Room:
        tokens = 1 << (tokens - 1).bit_length()
        parts, device = parts_at_most(tokens), self._pool.device
        self._num_rooms += 1
        # Every item, and every query of one, writes a partial result.
        room = {
            "counts": 4, "merge_indptr": tokens + 1, "q_indices": 2 * parts, "narrow": 8 * parts,
            "wide": 8 * parts,
        }  # fmt: skip
        return Room(
            self._num_rooms,
            tokens,
            heads,
            DeviceArrays(device, room),
            torch.empty((parts, heads, self._pool.v_head_dim), dtype=self._dtype(), device=device),
            torch.empty((parts, heads), dtype=torch.float32, device=device),
        )

    def _dtype(self) -> torch.dtype:
        """Of partial outputs. Those over latents are long: written and read as the result will be,
        they cost half, and as they are averaged, rounding shows less than in the result."""
        halves = self._pool.is_latent and self._pool.dtype.itemsize == 2
        return self._pool.dtype if halves else torch.float32

    def _split(self, plan: TreePlan) -> int:
        return split_of(int(np.diff(plan.merge_indptr).max()))


def kinds_of(tokens: int, group: int, narrow_rows: int) -> list[Kind]:
    """Those that plans of so many new tokens can be of."""
    if tokens * group <= narrow_rows:
        return [Kind()]
    if _has_many_rows(narrow_rows):
        return [
            Kind(),
            *(Kind(wide, False, is_half) for wide in (1, 2) for is_half in (False, True)),
        ]
    few = (False, True) if group <= FEW else (False,)
    return [Kind(), *(Kind(wide, has_few) for wide in (1, 2) for has_few in few)]


def kind_of(plan: TreePlan, shape: Shape) -> Kind:
    """That of a plan cut by `shape`."""
    if not len(plan.wide):
        return Kind()
    wide = 1 if 2 * len(plan.wide) * shape.kv_heads <= shape.wide_blocks else 2
    if _has_many_rows(shape.narrow_rows):
        return Kind(wide, False, _most_rows(plan.wide, shape) <= HALF)
    return Kind(wide, _most_rows(plan.narrow, shape) <= FEW)


def _has_many_rows(narrow_rows: int) -> bool:
    return narrow_rows > 2 * FEW


def _most_rows(items: Int32Array, shape: Shape) -> int:
    return int(items[:, 4].max(initial=0)) * shape.group


def _fits(room: Room | None, tokens: int, heads: int) -> bool:
    return room is not None and tokens <= room.tokens and heads == room.heads
