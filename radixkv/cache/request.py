"""One request as the cache sees it."""

from collections.abc import Hashable
from typing import Literal, TypeAlias

import numpy as np

from radixkv.arrays import EMPTY, Int32Array
from radixkv.errors import OutOfMemoryError
from radixkv.memory import ReqToTokenPool
from radixkv.tree import ContentSpan, Handle, Namespace
from radixkv.tree.content import cut_content

RequestState: TypeAlias = Literal["running", "finished", "aborted", "retracted"]


class Request:
    """A row of slots and who owns which part of it. Only `PrefixCache` changes it.

    [0, shared)          the tree's slots, protected by `handle`
    [shared, length)     the request's own slots, whose tokens are known
    [length, capacity)   the request's own slots, reserved; at larger pages the rest of the last
    page

    Parameters
    ----------
    id
        Its number in the cache.
    pool
        What its row is of.
    namespace
        What must be equal besides the tokens.
    content
        Spans of its prompt.
    store
        Whether its tokens may be published.
    priority
        What the policy `priority` goes by.

    Attributes
    ----------
    length
        Tokens known.
    cached_len
        Leading tokens whose K/V was there at the last admission.
    tokens
        (length or more,) int32; beyond `length` is room to grow.
    row
        Number of the row of `pool` that it holds.
    table
        (max_context_len,) int32: that row, reserved and unused positions included.
    generation
        Of the tree and the weights that its K/V belongs to.
    prompt_tokens
        Tokens of the prompt at the first admission.
    cached_tokens
        Tokens that were cached then.
    resumed_tokens
        Tokens that a resumed request found of its own.
    published_tokens
        That it added to the tree.
    """

    __slots__ = (
        "_rewritten", "cached_len", "cached_tokens", "capacity", "content", "generation",
        "handle", "id", "length", "namespace", "pool", "priority", "prompt_tokens",
        "published_tokens", "resumed_tokens", "row", "shared", "state", "store", "table",
        "tokens",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        pool: ReqToTokenPool,
        namespace: Namespace,
        content: tuple[ContentSpan, ...],
        store: bool,
        priority: int,
    ) -> None:
        self.id, self.pool, self.namespace = id, pool, namespace
        self.content, self.store, self.priority = content, store, priority
        self.prompt_tokens = self.cached_tokens = 0
        self.resumed_tokens = self.published_tokens = 0
        self._rewritten = 0  # how often slots gave way to others, but for those that it shares

    @property
    def slots(self) -> Int32Array:
        """(length,) int32: the slot of each token, a view of the row; empty after the end."""
        return self.table[: self.length] if self.state == "running" else EMPTY

    @property
    def row_version(self) -> Hashable:
        """For `AttentionBatch`: the same as long as the row only grows, and never another row's.

        A publication, which may put others' slots in place of the request's own, changes it, and so
        does a new admission, a rollback or a reset.
        """
        return self.id, self._rewritten, self.shared

    @property
    def token_ids(self) -> Int32Array:
        """(length,) int32, read-only use."""
        return self.tokens[: self.length]

    def begin(
        self,
        row: int,
        table: Int32Array,
        capacity: int,
        tokens: Int32Array,
        length: int,
        cached_len: int,
        shared: int,
        handle: Handle | None,
        generation: int,
    ) -> None:
        """Run in that row with the first `length` of `tokens`, which it may write to and grow.

        Parameters
        ----------
        row
            Number of the row.
        table
            (max_context_len,) int32: the row.
        capacity
            Slots in the row.
        tokens
            (length or more,) int32.
        length
            Tokens known.
        cached_len
            Tokens whose K/V is there.
        shared
            Tokens whose slots are the tree's.
        handle
            Of the shared tokens, locked.
        generation
            Of the tree and the weights.
        """
        self.state: RequestState = "running"
        self.row, self.table, self.capacity = row, table, capacity
        self.tokens, self.length, self.cached_len = tokens, length, cached_len
        self.shared, self.handle, self.generation = shared, handle, generation
        self._rewritten += 1

    def write(self, token_ids: Int32Array, most: int) -> int:
        """Write tokens behind those known, unless that is more than `most`; how many they are.

        Amortised O(1) a token.

        Parameters
        ----------
        token_ids
            (n,) int32, checked.
        most
            Tokens of the whole request at most.

        Returns
        -------
        int
            How many they are.

        Raises
        ------
        OutOfMemoryError
            Where there is no memory for it.
        """
        end = self.length + len(token_ids)
        if end <= most:
            if end > len(self.tokens):
                self._grow(end)
            self.tokens[self.length : end] = token_ids
        return len(token_ids)

    def _grow(self, length: int) -> None:
        try:
            grown = np.empty(length + length // 4 + 16, np.int32)
        except MemoryError:
            raise OutOfMemoryError(
                f"a row must find memory for its tokens; there was none for {length}"
            ) from None
        grown[: self.length] = self.tokens[: self.length]
        self.tokens = grown

    def cut(self, length: int, *, capacity: int) -> None:
        """Know the first `length` tokens only; the row keeps its first `capacity` slots.

        Parameters
        ----------
        length
            Tokens that stay.
        capacity
            Slots that stay.
        """
        self.length, self.capacity = length, capacity
        self._rewritten += 1
        self.cached_len = min(self.cached_len, length)
        self.content = cut_content(self.content, length)

    def own_all(self) -> None:
        """Share nothing any more: the tree that it shared with is gone."""
        self.handle, self.shared = None, 0
        self._rewritten += 1

    def __repr__(self) -> str:
        return (
            f"<Request {self.id} {self.state} length={self.length} cached={self.cached_len} "
            f"shared={self.shared}>"
        )
