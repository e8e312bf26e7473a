"""The life of a request: what happens to its row, its lock and its slots.

    admit ──> reserve ──> publish ... ──> end
      ^                                    │
      └───────────── resume <──────────────┘

`PrefixCache` checks the arguments, and whose turn it is, before any of this.
"""

from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from radixkv.arrays import EMPTY, Int32Array
from radixkv.cache.ledger import Fence
from radixkv.cache.request import Request, RequestState
from radixkv.cache.slots import Slots
from radixkv.memory import ReqToTokenPool
from radixkv.pages import round_down, round_up
from radixkv.tree import ContentSpan, Handle, Namespace
from radixkv.tree.content import cut_content


class KVPool(Protocol):
    """What the cache asks of the K/V tensors."""

    def copy(self, source: Int32Array, target: Int32Array) -> None:
        """Copy K and V of every layer from `source` slots to `target` slots.

        Called in the middle of a `fork` or `rollback`: it must not call the cache.
        """


class Copies(NamedTuple):
    """K/V to copy, in order, before the next forward, (n,) int32; empty where the cache did it."""

    source: Int32Array
    target: Int32Array


class Forked(NamedTuple):
    """The new requests, and K/V to copy before the next forward (see `Copies`)."""

    requests: list[Request]
    source: Int32Array
    target: Int32Array


class Lifecycle:
    """The live requests of a cache. Runs inside a transaction; trusts its callers.

    kv: copies K/V by itself; None: the caller of `fork` and `rollback` does.
    generation: how often the tree was forgotten; a request of an earlier one publishes nothing.
    """

    def __init__(
        self,
        slots: Slots,
        req_to_token: ReqToTokenPool,
        kv: KVPool | None = None,
    ) -> None:
        self._slots, self._tree, self._ledger = slots, slots.tree, slots.ledger
        self._totals, self._page_size = slots.totals, slots.page_size
        self._rows = req_to_token
        self.kv = kv
        self.live: dict[int, Request] = {}
        # One call, which nothing can come between.
        self._ids = count(1)
        self._generation = 0

    # ---- coming and growing ----

    def admit(
        self,
        tokens: Int32Array,
        length: int,
        namespace: Namespace,
        content: tuple[ContentSpan, ...],
        max_cached: int,
        store: bool,
        priority: int,
    ) -> Request | None:
        """A new request of the first `length` of `tokens`, an array that is its own from now on.

        None: no room now.
        """
        request = Request(next(self._ids), self._rows, namespace, content, store, priority)
        if not self._start(request, tokens, length, max_cached):
            return None
        cached, totals = request.cached_len, self._totals
        request.prompt_tokens, request.cached_tokens = length, cached
        totals.prompt_tokens += length
        totals.cached_tokens += cached
        totals.lookup_tokens += length
        totals.hit_tokens += cached
        return request

    def resume(
        self, request: Request, tokens: Int32Array, length: int, max_cached: int
    ) -> Request | None:
        """The same request again with these tokens; None: no room now."""
        if not self._start(request, tokens, length, max_cached):
            return None
        request.resumed_tokens += request.cached_len
        self._totals.resumed_tokens += request.cached_len
        return request

    def _start(self, request: Request, tokens: Int32Array, length: int, max_cached: int) -> bool:
        """Give it a row with slots for all tokens; False: no room now, nothing stays taken."""
        row = self._rows.allocate()
        if row is None:
            return False
        table, found = self._rows.rows[row], None
        try:
            found = self._tree.admit(
                tokens,
                self._ledger,
                table,
                request.namespace,
                content=request.content,
                max_cached=max_cached,
                length=length,
            )
        finally:  # a fence may raise too
            if found is None or found.handle is None:
                self._rows.free(row)
        cached, handle, evicted = found
        if evicted:
            self._totals.evicted_tokens += evicted
        if handle is None:
            return False
        capacity = length + -length % self._page_size
        request.begin(
            row, table, capacity, tokens, length, cached, cached, handle, self._generation
        )
        self.live[request.id] = request
        return True

    def reserve(self, request: Request, n: int) -> Int32Array | None:
        """Slots, (n,) int32, for the next `n` tokens; None: no room now."""
        length, capacity = request.length, request.capacity
        end = length + n
        if end > capacity:
            grown = end + -end % self._page_size
            fresh = self._slots.take(grown - capacity, request.namespace)
            if fresh is None:
                return None
            request.table[capacity:grown] = fresh
            request.capacity = grown
            if length == capacity and end == grown:
                return fresh
        return request.table[length:end].copy()

    # ---- sharing and ending ----

    def publish(self, request: Request, up_to: int, fence: Fence | None, *, chunked: bool) -> None:
        """[0, shared) was the tree's; afterwards [0, up_to) is, in whole pages."""
        length = up_to - up_to % self._page_size
        is_current = request.store and request.generation == self._generation
        if not is_current or not length or (chunked and length <= request.shared):
            return
        # Where nothing else is to be given back, the one call ends the lock as well.
        unlock = not chunked and fence is None and length == request.capacity
        published = self._tree.publish(
            request.tokens,
            self._ledger,
            request.table,
            request.namespace,
            content=cut_content(request.content, length) if request.content else (),
            priority=request.priority,
            chunked=chunked,
            held=request.handle,
            fence=fence,
            length=length,
            unlock=unlock,
        )
        request.handle, request.shared = published.handle, length
        if new := length - published.prefix_length:
            request.published_tokens += new
            self._totals.published_tokens += new

    def end(self, request: Request, state: RequestState, fence: Fence | None) -> None:
        """Give everything back."""
        if request.capacity > request.shared or fence is not None:
            self._ledger.give_back(request.table[request.shared : request.capacity], fence)
        if request.handle is not None:
            self._tree.dec_lock_ref(request.handle)
        self._rows.free(request.row)
        del self.live[request.id]
        request.state, request.handle = state, None
        if self._slots.is_bounded:
            self._slots.keep_bound(fence)

    # ---- branching and going back ----

    def fork(self, request: Request, n: int, fence: Fence | None) -> Forked | None:
        """The whole pages are aliased; of a part-filled last page each fork gets a copy.

        row     [ tree's                | own, whole pages   | own, cut page ]
                 locked once more         held once more       copied
        """
        if n > self._rows.free_size:
            return None
        whole = round_down(request.length, self._page_size)
        tail = request.length - whole
        pages = self._slots.take(n * self._page_size if tail else 0, request.namespace)
        if pages is None:
            return None
        own_pages = pages.reshape(n, -1)
        source = np.tile(request.table[whole : request.length], n)
        copies = self._copy(source, own_pages[:, :tail].reshape(-1), pages)
        forks: list[Request] = []
        try:
            self.publish(request, request.length, fence, chunked=True)
            forks.extend(self._fork_one(request, whole, own_page) for own_page in own_pages)
        except MemoryError:
            for fork in forks:
                self.end(fork, "aborted", None)
            self._ledger.give_back(own_pages[len(forks) :].reshape(-1), None)
            raise
        self._slots.keep_bound(fence)
        return Forked(forks, *copies)

    def _fork_one(self, request: Request, whole: int, own_page: Int32Array) -> Request:
        fork = Request(
            next(self._ids),
            self._rows,
            request.namespace,
            request.content,
            request.store,
            request.priority,
        )
        row = self._rows.allocate()
        assert row is not None
        table, capacity = self._rows.rows[row], whole + len(own_page)
        table[:whole] = request.table[:whole]
        table[whole:capacity] = own_page
        fork.begin(
            row,
            table,
            capacity,
            tokens=request.token_ids.copy(),
            length=request.length,
            cached_len=request.length,
            shared=request.shared,
            handle=request.handle,
            generation=request.generation,
        )
        if request.handle is not None:
            self._tree.inc_lock_ref(request.handle)
        self._ledger.share(request.table[request.shared : whole])
        self.live[fork.id] = fork
        return fork

    def rollback(self, request: Request, length: int, fence: Fence | None) -> Copies | None:
        """Keep the first `length` tokens; None: no room now for a copy of the page that is cut."""
        whole, keep = round_down(length, self._page_size), round_up(length, self._page_size)
        must_copy = self._must_copy(request, whole, length)
        fresh = self._slots.take(self._page_size if must_copy else 0, request.namespace)
        if fresh is None:
            return None
        table, handle = request.table, request.handle
        copied = length - whole if len(fresh) else 0
        copies = self._copy(table[whole : whole + copied].copy(), fresh[:copied], fresh)
        given_from = max(request.shared, whole if len(fresh) else keep)
        try:
            if whole < request.shared:
                handle = self._lock_beginning(request, whole)
            self._ledger.give_back(table[given_from : request.capacity], fence)
        except MemoryError:
            if handle is not None and handle is not request.handle:
                self._tree.dec_lock_ref(handle)
            self._ledger.give_back(fresh, None)
            raise
        if whole < request.shared:
            self._shorten_lock(request, handle, whole)
        table[whole : whole + len(fresh)] = fresh
        request.cut(length, capacity=keep)
        self._slots.keep_bound(fence)
        return copies

    def _must_copy(self, request: Request, whole: int, length: int) -> bool:
        """Whether the page from `whole` on is cut, and others read it: writing takes a copy."""
        is_shared = whole < request.shared
        return length > whole and (is_shared or self._ledger.sharers[request.table[whole]] > 0)

    def _lock_beginning(self, request: Request, shared: int) -> Handle:
        match = self._tree.match_prefix(
            request.tokens[:shared],
            request.namespace,
            content=cut_content(request.content, shared),
            checked=True,
        )
        self._tree.inc_lock_ref(match.handle)
        return match.handle

    def _shorten_lock(self, request: Request, handle: Handle | None, shared: int) -> None:
        if request.handle is not None:
            self._tree.dec_lock_ref(request.handle)
        request.handle, request.shared = handle, shared

    def _copy(self, source: Int32Array, target: Int32Array, taken: Int32Array) -> Copies:
        """Comes before any other change: if it raises, what was `taken` for it goes back."""
        if self.kv is None or not len(source):
            return Copies(source, target)
        try:
            self.kv.copy(source, target)
        except BaseException:
            self._ledger.give_back(taken, None)
            raise
        return Copies(EMPTY, EMPTY)

    # ---- all requests ----

    def private_slots(self) -> Int32Array:
        """Slots that live requests hold outside the tree, (n,) int32, ascending, each once.

        Without retired ones. Cost: O(n log n).
        """
        own = [request.table[request.shared : request.capacity] for request in self.live.values()]
        slots = np.unique(np.concatenate([EMPTY, *own]))
        private: Int32Array = slots[~self._ledger.is_retired[slots]]
        return private

    def forget(self, pinned: list[Int32Array]) -> None:
        """Drop the tree; what live requests read of it is theirs until the last of them ends.

        pinned: what others than requests read of it, once for each of them.
        """
        live = self.live.values()
        self._slots.forget([*pinned, *(request.table[: request.shared] for request in live)])
        for request in live:
            request.own_all()
        self._generation += 1
