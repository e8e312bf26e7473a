"""The steps of a request's life that go through the tree and its slots together.

Each is told here by the single calls that it stands for; the native core does each in one call that
reads the tokens once. Both answer alike.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError
from radixkv.tree.content import Content, check_content, cut_content
from radixkv.tree.namespace import DEFAULT, Namespace
from radixkv.tree.tokens import Int32Array, TokenIds, as_token_ids

if TYPE_CHECKING:
    from radixkv.tree.radix_tree import Handle, RadixTree


class Ledger(Protocol):
    """Who keeps the slots that are not in the tree: see `radixkv.cache.ledger.SlotLedger`.

    The native tree takes the native ledger alone, which it reads without Python.
    """

    @property
    def free_size(self) -> int: ...
    @property
    def deferred_size(self) -> int: ...
    def check_range(self, slots: Int32Array) -> None: ...
    def take(self, n: int) -> Int32Array | None: ...
    def give_back(self, slots: Int32Array, fence: Any) -> None: ...
    def free(self, slots: Int32Array, fence: Any = None) -> None: ...


class AdmitResult(NamedTuple):
    """length: tokens matched. handle: locked; None: no room now. evicted: tokens evicted for it."""

    length: int
    handle: "Handle | None"
    evicted: int


class PublishResult(NamedTuple):
    """prefix_length: tokens that were there. handle: locked, all whole pages of the key."""

    prefix_length: int
    handle: "Handle"


def take(tree: "RadixTree", n: int, ledger: Ledger) -> tuple[Int32Array | None, int]:
    """`n` slots (whole pages) and the tokens evicted for them; no slots: none are to be had now.

    What waits behind a fence counts as room to come: none for now, and no more is evicted.
    """
    slots = ledger.take(n)
    if slots is not None:
        return slots, 0
    missing = n - ledger.free_size - ledger.deferred_size
    if missing > tree.evictable_size or missing <= 0:
        return None, 0
    evicted = tree.evict(missing)
    ledger.free(evicted)
    return ledger.take(n), len(evicted)


class RequestSteps:
    """What `RadixTree` offers to who keeps its slots in a ledger."""

    def admit(
        self,
        token_ids: TokenIds,
        ledger: Ledger,
        row: Int32Array,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        max_cached: int | None = None,
        extra: int = 0,
    ) -> AdmitResult:
        """Match, lock, evict, allocate: `row` gets slots for all tokens and `extra` more.

        At most `max_cached` tokens are matched (None: all). Without room now nothing stays taken,
        though tokens may have been evicted whose slots wait behind a fence.

        row: (m,) int32, written to; whole pages are taken. Raises InvalidArgumentError for one that
        is too short, InvalidTokensError, InvalidContentError.
        """
        tree, tokens = cast("RadixTree", self), as_token_ids(token_ids)
        extra = at_least(0, extra=extra)
        limit = len(tokens) if max_cached is None else at_least(0, max_cached=max_cached)
        needed = -(-(len(tokens) + extra) // tree.page_size) * tree.page_size
        spans = cut_content(check_content(content, len(tokens)), limit)
        match = tree.match_prefix(tokens[:limit], namespace, content=spans)
        _check_row(row, needed)
        # Lock before judging capacity: what is about to be used is not evictable.
        tree.inc_lock_ref(match.handle)
        slots = None
        try:
            slots, evicted = take(tree, needed - match.length, ledger)
        finally:  # a fence may raise too
            if slots is None:
                tree.dec_lock_ref(match.handle)
        if slots is None:
            return AdmitResult(0, None, evicted)
        row[: match.length] = match.slots
        row[match.length : needed] = slots
        return AdmitResult(match.length, match.handle, evicted)

    def publish(
        self,
        token_ids: TokenIds,
        ledger: Ledger,
        row: Int32Array,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        priority: int = 0,
        chunked: bool = False,
        held: "Handle | None" = None,
        fence: Any = None,
    ) -> PublishResult:
        """Insert the tokens with the slots of `row`, and move the lock from `held` to all of them.

        [0, held.length) was the tree's and is not looked at again (see `insert`, `after`).

            row     [ tree's | own, already there  | own, new      ]
                    0   held.length          prefix_length         n
                             remapped, then freed    handed over

        The row names the tree's slots before the duplicates are freed, behind `fence` if there is
        one. Raises as `insert` does, and then nothing changed.
        """
        tree, size = cast("RadixTree", self), len(as_token_ids(token_ids))
        _check_row(row, size)
        known = 0 if held is None else held.length
        ledger.check_range(row[known:size])
        result = tree.insert(
            token_ids, row[known:size], namespace,
            content=content, priority=priority, chunked=chunked, after=held,
        )  # fmt: skip
        tree.inc_lock_ref(result.handle)
        if held is not None:
            tree.dec_lock_ref(held)
        there = result.prefix_length
        duplicates = row[known:there].copy()
        row[known:there] = result.slots
        ledger.give_back(duplicates, fence)
        return PublishResult(there, result.handle)


def _check_row(row: Int32Array, size: int) -> None:
    is_row = isinstance(row, np.ndarray) and row.dtype == np.int32 and row.ndim == 1
    if not is_row or len(row) < size or not row.flags.writeable:
        raise InvalidArgumentError(f"row is no writeable int32 array of {size} slots or more")
