"""What a step of attention is asked for, and what every backend answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError
from radixkv.memory.kv_pool import MHATokenToKVPool


@dataclass(frozen=True)
class AttentionBatch:
    """The requests of one step, their new tokens packed one request after another.

        rows[i]    [ slots of the context so far | slots of the new tokens ]
                                                  <--- query_lens[i] ---->

    A new token sees its whole context and the new tokens up to itself.
    rows: one (context length,) int32 array a request; rows that share a slot share all before it,
    and at larger pages a row fills its pages in order, as the cache's rows do.
    query_lens: 1 or more each. names: one a request, all different. A name that the last step had,
    too, promises that the row is that step's row of this name, or that row with slots added; what
    is on a device already is not sent again. None promises nothing.
    """

    rows: Sequence[NDArray[np.int32]]
    query_lens: Sequence[int]
    names: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        if not len(self.rows) == len(self.query_lens) > 0:
            raise InvalidArgumentError(
                f"the batch has {len(self.rows)} rows and {len(self.query_lens)} query lengths; "
                "it takes one of each a request, and at least one request",
                rows=len(self.rows),
                query_lens=len(self.query_lens),
            )
        if self.names is not None:
            self._check_names(self.names)
        for at, (row, query_len) in enumerate(zip(self.rows, self.query_lens, strict=True)):
            if not 1 <= query_len <= len(row):
                raise InvalidArgumentError(
                    f"query_lens[{at}] is {query_len}; its row of {len(row)} slots takes "
                    f"1 to {len(row)}",
                    index=at,
                    query_len=query_len,
                    context_len=len(row),
                )

    def _check_names(self, names: Sequence[Hashable]) -> None:
        given = [name for name in names if name is not None]
        if len(names) != len(self.rows) or len(set(given)) != len(given):
            raise InvalidArgumentError(
                f"names has {len(names)} names, {len(set(given))} of them different, for "
                f"{len(self.rows)} rows; it takes one a row, all different",
                names=len(names),
                rows=len(self.rows),
            )

    @cached_property
    def is_decode(self) -> bool:
        """Whether every request has one new token."""
        return self.num_tokens == len(self.query_lens)

    @cached_property
    def num_tokens(self) -> int:
        """New tokens of all requests."""
        return sum(self.query_lens)

    @cached_property
    def context_lens(self) -> NDArray[np.int32]:
        """Slots of each row, the new tokens' included: (requests,) int32."""
        return np.fromiter(map(len, self.rows), np.int32, len(self.rows))

    @cached_property
    def out_cache_loc(self) -> NDArray[np.int32]:
        """Slots of the new tokens, packed: (num_tokens,) int32."""
        if self.is_decode:
            return np.array([row[-1] for row in self.rows], np.int32)
        return np.concatenate(
            [row[len(row) - n :] for row, n in zip(self.rows, self.query_lens, strict=True)]
        )

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """Positions of the new tokens, packed: (num_tokens,) int64."""
        # A request's tokens lie one after another, the last of them at the end of its row.
        past_last = np.repeat(self.context_lens - self.last_tokens, self.query_lens)
        return past_last + np.arange(self.num_tokens) - 1

    @cached_property
    def last_tokens(self) -> NDArray[np.int64]:
        """Where each request's last new token is among the packed ones: (requests,) int64."""
        return np.cumsum(self.query_lens, dtype=np.int64) - 1


class AttentionBackend(ABC):
    """Causal attention of packed queries over the pages of a KV pool.

    Once a step `plan(batch)`; then, layer by layer, `write` the new keys and values and `run` the
    queries. One backend serves one step at a time and is not thread-safe.

    captures: whether `write` and `run` can be captured in a CUDA graph, see `DeviceAttention`.
    """

    captures: ClassVar[bool] = False

    def __init__(self, pool: MHATokenToKVPool) -> None:
        self.pool = pool
        self.batch: AttentionBatch | None = None

    def plan(self, batch: AttentionBatch) -> None:
        """Prepare what all layers of a step share.

        Raises InvalidSlotsError for a slot that the pool does not have.
        """
        self.batch = None
        slots = self.pool.as_index(np.concatenate(batch.rows), "rows")
        self._contexts = slots.split_with_sizes([len(row) for row in batch.rows])
        self._out_cache_loc = self.pool.as_index(batch.out_cache_loc, "rows")
        self.batch = batch

    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Store K and V of the planned new tokens, each (num_tokens, kv_heads, head_dim)."""
        self._planned()
        self.pool.write(layer, self._out_cache_loc, k, v)

    @abstractmethod
    def run(
        self,
        q: Tensor,
        layer: int,
        *,
        sm_scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attention of the planned new tokens over their contexts, themselves included.

        q, result: (num_tokens, q_heads, head_dim), q_heads a multiple of the pool's kv_heads: query
        head h reads KV head h // (q_heads // kv_heads). sm_scale: head_dim ** -0.5 if None.
        window: tokens that a token sees, itself included. softcap: scores are softcap *
        tanh(score / softcap). sinks: (q_heads,), a score each that takes part in the softmax and
        has no value. q's dtype: the pool's, and over fp8 any of floating point; "reference" and
        "triton" take others, too.
        Raises InvalidArgumentError for what the plan, the pool or the backend does not take.
        """

    def _scale(self, sm_scale: float | None) -> float:
        return self.pool.head_dim**-0.5 if sm_scale is None else sm_scale

    def _planned(self) -> AttentionBatch:
        if self.batch is None:
            raise InvalidArgumentError("no batch is planned; call plan(batch) once a step first")
        return self.batch

    def _check_query(
        self,
        q: Tensor,
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> None:
        self._planned()
        tokens, pool = self._expected_tokens(), self.pool
        heads = q.shape[1] if q.ndim == 3 else 0
        if q.shape != (tokens, heads, pool.head_dim) or not heads or heads % pool.kv_heads:
            raise InvalidArgumentError(
                f"q has shape {tuple(q.shape)}; this plan takes ({tokens}, a multiple "
                f"of {pool.kv_heads}, {pool.head_dim})",
                shape=tuple(q.shape),
            )
        if not q.is_floating_point():
            raise InvalidArgumentError(
                f"q has dtype {q.dtype}; it takes floating point", dtype=str(q.dtype)
            )
        if window is not None:
            at_least(1, window=window)
        if softcap is not None and not 0 <= softcap < math.inf:
            raise InvalidArgumentError(
                f"softcap is {softcap}; it takes 0, for none, or more", softcap=softcap
            )
        if sinks is not None and sinks.shape != (heads,):
            raise InvalidArgumentError(
                f"sinks has shape {tuple(sinks.shape)}; these queries take ({heads},)",
                shape=tuple(sinks.shape),
            )

    def _expected_tokens(self) -> int:
        return self._planned().num_tokens
