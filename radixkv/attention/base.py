"""What a step of attention is asked for, and what every backend answers."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from radixkv.arrays import Int32Array
from radixkv.attention.scores import PLAIN, ScoreOptions
from radixkv.errors import InvalidArgumentError
from radixkv.memory.kv_pool import TokenToKVPool


@dataclass(frozen=True)
class AttentionBatch:
    """The requests of one step, their new tokens packed one request after another.

        rows[i]    [ slots of the context so far | slots of the new tokens ]
                                                  <--- query_lens[i] ---->

    A new token sees its whole context and the new tokens up to itself.

    Attributes
    ----------
    rows
        One (context length,) int32 array of slots a request (FlashInfer packs them one after
        another, as kv_indices and kv_indptr). Rows that share a slot share all before it, and at
        larger pages a row fills its pages in order, as the rows of the cache do.
    query_lens
        1 or more each.
    row_versions
        One a request, all different. A version that the last step also had means that the row is
        the same one, possibly with slots added: what is on a device already is not sent again.
        None: each row may be another.

    Raises
    ------
    InvalidArgumentError
        For a value out of range.
    """

    rows: Sequence[Int32Array]
    query_lens: Sequence[int]
    row_versions: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        if not len(self.rows) == len(self.query_lens) > 0:
            raise InvalidArgumentError(
                "rows and query_lens must have one entry a request, and at least one; "
                f"got {len(self.rows)} rows and {len(self.query_lens)} query lengths",
                rows=len(self.rows),
                query_lens=len(self.query_lens),
            )
        if self.row_versions is not None:
            self._check_versions(self.row_versions)
        for at, (row, query_len) in enumerate(zip(self.rows, self.query_lens, strict=True)):
            if not 1 <= query_len <= len(row):
                raise InvalidArgumentError(
                    f"query_lens[{at}] must be 1 to {len(row)}, the slots of its row; "
                    f"got {query_len}",
                    index=at,
                    query_len=query_len,
                    context_len=len(row),
                )

    def _check_versions(self, versions: Sequence[Hashable]) -> None:
        given = [version for version in versions if version is not None]
        if len(versions) != len(self.rows) or len(set(given)) != len(given):
            raise InvalidArgumentError(
                f"row_versions must have one version a row, all different, for "
                f"{len(self.rows)} rows; got {len(versions)}, {len(set(given))} of them "
                "different",
                row_versions=len(versions),
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
    def context_lens(self) -> Int32Array:
        """Slots of each row, the new tokens' included: (requests,) int32."""
        return np.fromiter(map(len, self.rows), np.int32, len(self.rows))

    @cached_property
    def versions(self) -> list[Hashable]:
        """`row_versions` in a list of its own; empty without versions."""
        return [] if self.row_versions is None else list(self.row_versions)

    @cached_property
    def out_cache_loc(self) -> Int32Array:
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
        """Index of each request's last new token among the packed ones: (requests,) int64."""
        return np.cumsum(self.query_lens, dtype=np.int64) - 1


class AttentionBackend(ABC):
    """Causal attention of packed queries over the pages of a KV pool.

    The pool is one of K and V (`MHATokenToKVPool`) or of latents (`MLATokenToKVPool`, whose
    queries and outputs are absorbed ones).

    Once a step `plan(batch)`; then, layer by layer, `write` the new keys and values and `run` the
    queries. One backend serves one step at a time and is not thread-safe.

    Parameters
    ----------
    pool
        The K/V pool.

    Attributes
    ----------
    captures
        Whether `write` and `run` can be captured in a CUDA graph, see `DeviceAttention`.
    """

    captures: ClassVar[bool] = False

    def __init__(self, pool: TokenToKVPool) -> None:
        self.pool = pool
        self.batch: AttentionBatch | None = None

    @abstractmethod
    def plan(self, batch: AttentionBatch) -> None:
        """Prepare what all layers of a step share.

        Parameters
        ----------
        batch
            The requests of the step.

        Raises
        ------
        InvalidSlotsError
            For a slot that the pool does not have.
        """

    @abstractmethod
    def write(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Store K and V of the planned new tokens, each (num_tokens, kv_heads, head_dim).

        Over latents: latents (num_tokens, 1, kv_lora_rank) and rotary keys (num_tokens, 1,
        qk_rope_head_dim).

        Parameters
        ----------
        layer
            The layer, from 0 on.
        k
            (num_tokens, kv_heads, head_dim).
        v
            (num_tokens, kv_heads, v_head_dim).

        Raises
        ------
        InvalidArgumentError
            For other shapes, or where no batch is planned.
        """

    @abstractmethod
    def run(self, q: Tensor, layer: int, options: ScoreOptions = PLAIN) -> Tensor:
        """Attention of the planned new tokens over their contexts, themselves included.

        Parameters
        ----------
        q
            (num_tokens, q_heads, head_dim), q_heads a multiple of the pool's kv_heads: query head h
            reads KV head h // (q_heads // kv_heads). q's dtype: the pool's, and over fp8 any of
            floating point; "reference" and "triton" take others, too. Over latents options.scale
            must be given, since the heads' own size is not the pool's.
        layer
            The layer, from 0 on.
        options
            How the model scores.

        Returns
        -------
        Tensor
            (num_tokens, q_heads, v_head_dim), of the dtype of `q`.

        Raises
        ------
        InvalidArgumentError
            For what the plan, the pool or the backend does not take.
        """

    def explain(self) -> object:
        """What was chosen for the last step and why, to be printed; see `DeviceAttention`.

        Returns
        -------
        object
            To be printed.
        """
        return f"{type(self).__name__} has nothing to choose"

    def _planned(self) -> AttentionBatch:
        if self.batch is None:
            raise InvalidArgumentError(
                "a batch must be planned; got none: call plan(batch) first, once a step"
            )
        return self.batch

    def _check_query(self, q: Tensor, options: ScoreOptions, tokens: int) -> None:
        heads, pool = q.shape[1] if q.ndim == 3 else 0, self.pool
        if q.shape != (tokens, heads, pool.head_dim) or not heads or heads % pool.kv_heads:
            raise InvalidArgumentError(
                f"q must have shape ({tokens}, a multiple of {pool.kv_heads}, {pool.head_dim}) "
                f"under this plan; got {tuple(q.shape)}",
                shape=tuple(q.shape),
            )
        if not q.is_floating_point():
            raise InvalidArgumentError(
                f"q must be floating point; got {q.dtype}", dtype=str(q.dtype)
            )
        if pool.is_latent and options.scale is None:
            raise InvalidArgumentError(
                "scale must be given over latents: the model's heads are not of the pool's "
                "head_dim; got None"
            )
        if options.sinks is not None and options.sinks.shape != (heads,):
            raise InvalidArgumentError(
                f"sinks must have shape ({heads},), one score a query head; "
                f"got {tuple(options.sinks.shape)}",
                shape=tuple(options.sinks.shape),
            )
