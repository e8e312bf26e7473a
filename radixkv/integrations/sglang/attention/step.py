"""A decode step over SGLang's pool: its plan, and the kernels that run it.

choose(rows)  -> KeptPlan    on the host: which runs of slots are shared, tree or flat
send(places)  -> DevicePlan  work items, and the rows as the page table
run(q, k, v)  -> TileKernels layer by layer, captured or not
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.attention import AttentionBatch, ScoreOptions
from radixkv.attention.explain import Explanation
from radixkv.attention.shared_prefix.device_plan import DevicePlan, Kind, kind_of, kinds_of
from radixkv.attention.shared_prefix.kept_plan import KeptPlan
from radixkv.attention.shared_prefix.kernels import TileKernels
from radixkv.integrations.sglang.attention.rows import RowVersion
from radixkv.pages import ceil_div

MODES = ("auto", "tree", "flat")
FLAT_KERNELS = "sglang"


@dataclass(frozen=True)
class Pool:
    """SGLang's pool as our kernels see it, see `PoolShape`."""

    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    page_size: int
    is_latent: bool = False

    @property
    def v_head_dim(self) -> int:
        return self.head_dim


class TreeStep:
    """One step after another; what captured graphs read keeps its place.

    heads: of the queries. req_to_token: (rows, width) int32, SGLang's rows of slots. mode: "auto",
    or "tree" or "flat" to take that always.
    """

    def __init__(self, pool: Pool, heads: int, req_to_token: Tensor, mode: str = "auto") -> None:
        self._pool, self._req_to_token, self._mode = pool, req_to_token, mode
        self._tiles = TileKernels(pool, 1.0, 1.0)
        self._shape = self._tiles.shape(heads)
        self._kept = KeptPlan(pool, None)
        self._kept.reshape(self._shape)
        self._on_device = DevicePlan(pool)
        # What was reserved is never given up: a larger step in between loses no graph.
        self._reserved = self._other = self._page_table = self._tables(0)
        self._width = 0

    def reserve(self, requests: int) -> None:
        """Have room for steps of so many requests of any length, so that no graph is lost."""
        self._on_device.reserve(requests, self._shape.group * self._shape.kv_heads)
        if requests > len(self._reserved):
            self._reserved = self._tables(requests)

    def kinds(self) -> list[Kind]:
        """Those of all plans of more than one wide item's tokens."""
        return kinds_of(self._shape.narrow_rows + 1, self._shape.group, self._shape.narrow_rows)

    @property
    def chosen_kind(self) -> Kind:
        """Which kernels the plan of the last `choose` asks for."""
        return kind_of(self._kept.plan, self._kept.shape)

    def choose(self, rows: Sequence[Int32Array], versions: Sequence[RowVersion]) -> Explanation:
        """Plan the step of these rows, each with the new token; returns whether it is a tree."""
        if self._mode == "flat":
            return Explanation("flat", "the mode is flat", FLAT_KERNELS)
        self._kept.follow(AttentionBatch(rows, [1] * len(rows), versions))
        self._width = max(map(len, rows))
        return self._kept.explained(
            self._mode, tree=self._tiles.serving(self._shape.group), flat=FLAT_KERNELS
        )

    def imagine(self, places: Tensor, kind: Kind) -> None:
        """Send the plan of requests that share nothing, as if it asked for the kernels of `kind`:
        to capture them."""
        rows = [np.array([at], np.int32) for at in range(len(places))]
        self._kept.follow(AttentionBatch(rows, [1] * len(rows)))
        self._width = 1
        self.send(places)
        self._on_device.kind = kind

    def send(self, places: Tensor) -> None:
        """Bring the plan and the rows to the device, for as many requests as there are places.

        places: (requests,) int64 on the device, of the rows in `req_to_token`; those behind the
        planned ones are padding.
        """
        requests, size = len(places), self._pool.page_size
        self._on_device.send(self._kept.plan, self._kept.shape, requests)
        # Of a page only the first slot is read.
        slots = self._req_to_token[:, : self._width : size].index_select(0, places)
        self._page_table = self._table_of(requests)
        self._page_table[:, : slots.shape[1]] = slots if size == 1 else slots // size

    def run(self, q: Tensor, k: Tensor, v: Tensor, options: ScoreOptions) -> Tensor:
        """Attention of (requests, heads, head_dim) queries over one layer's K and V."""
        return self._tiles.run((q.contiguous(), k, v, self._page_table), self._on_device, options)

    def _table_of(self, requests: int) -> Tensor:
        if requests <= len(self._reserved):
            return self._reserved[:requests]
        if requests > len(self._other):
            self._other = self._tables(requests)
        return self._other[:requests]

    def _tables(self, requests: int) -> Tensor:
        width = ceil_div(self._req_to_token.shape[1], self._pool.page_size)
        return self._req_to_token.new_zeros((requests, width), dtype=torch.int32)
