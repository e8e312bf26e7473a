"""One request as the cache sees it."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from radixkv.memory import ReqToTokenPool
from radixkv.tree import ContentSpan, Handle, Namespace
from radixkv.tree.content import cut_content
from radixkv.tree.tokens import EMPTY, Int32Array

State: TypeAlias = Literal["running", "finished", "aborted", "retracted"]


@dataclass(slots=True)
class RequestNumbers:
    """Tokens.

    cached <= prompt always: what a resumed request finds of its own counts as resumed.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    resumed_tokens: int = 0
    published_tokens: int = 0


class Request:
    """A row of slots and who owns which part of it. Only `PrefixCache` changes it.

    [0, shared)          the tree's slots, protected by `handle`
    [shared, length)     the request's own slots, whose tokens are known
    [length, capacity)   the request's own slots, reserved; at larger pages the rest of the last
    page

    length: tokens known. cached_len: leading tokens whose K/V was there at the last admission.
    table: the whole row, reserved and unused positions included.
    """

    content: tuple[ContentSpan, ...] = ()
    store = True
    priority = 0
    state: State = "running"
    row = -1
    length = cached_len = shared = capacity = 0
    handle: Handle | None = None
    generation = 0  # of the weights and the tree that its K/V belongs to
    _rewritten = 0  # how often slots of the row gave way to others, but for those that it shares
    table: Int32Array = EMPTY
    _tokens: Int32Array = EMPTY

    def __init__(self, id: int, pool: ReqToTokenPool, namespace: Namespace) -> None:
        self.id = id
        self.namespace = namespace
        self.numbers = RequestNumbers()
        self._pool = pool

    @property
    def slots(self) -> Int32Array:
        """(length,) int32: the slot of each token, a view of the row; empty after the end."""
        return self.table[: self.length] if self.state == "running" else EMPTY

    @property
    def row_name(self) -> Hashable:
        """For `AttentionBatch.names`: the same as long as the row only grows, and no other's ever.

        A publication, which may put others' slots in place of the request's own, changes it, and so
        does a new admission, a rollback or a reset.
        """
        return self.id, self._rewritten, self.shared

    @property
    def token_ids(self) -> Int32Array:
        """(length,) int32, read-only use."""
        return self._tokens[: self.length]

    def place(self, row: int) -> None:
        """Hold that row of the pool."""
        self.row, self.table = row, self._pool.rows[row]
        self._rewritten += 1

    def begin(self, token_ids: Int32Array) -> None:
        """Know these tokens and no others; the array is the request's from now on."""
        self._tokens, self.length = token_ids, len(token_ids)

    def append(self, token_ids: Int32Array) -> None:
        """Know more tokens. Amortised O(1) a token."""
        end = self.length + len(token_ids)
        if end > len(self._tokens):
            grown = np.empty(end + end // 4 + 16, np.int32)
            grown[: self.length] = self.token_ids
            self._tokens = grown
        self._tokens[self.length : end] = token_ids
        self.length = end

    def cut(self, length: int, *, capacity: int) -> None:
        """Know the first `length` tokens only; the row keeps its first `capacity` slots."""
        self.length, self.capacity = length, capacity
        self._rewritten += 1
        self.cached_len = min(self.cached_len, length)
        self.content = cut_content(self.content, length)

    def own_all(self) -> None:
        """Share nothing any more: the tree that it shared with is gone."""
        self.handle, self.shared = None, 0
        self._rewritten += 1

    def twin(self, id: int) -> "Request":
        """Another request that may share what this one shares; it has no row yet."""
        twin = Request(id, self._pool, self.namespace)
        twin.content, twin.store, twin.priority = self.content, self.store, self.priority
        twin.handle, twin.shared, twin.generation = self.handle, self.shared, self.generation
        return twin

    def __repr__(self) -> str:
        return (
            f"<Request {self.id} {self.state} length={self.length} cached={self.cached_len} "
            f"shared={self.shared}>"
        )
