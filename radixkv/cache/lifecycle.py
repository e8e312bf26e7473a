"""The moves in the life of a request: what happens to its row, its lock and its slots.

`PrefixCache` says who may make a move, checks the arguments and puts its lock around it.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from radixkv.cache.ledger import Fence, SlotLedger
from radixkv.cache.request import Request, State
from radixkv.cache.stats import Totals
from radixkv.errors import InvalidArgumentError
from radixkv.memory import ReqToTokenPool, TokenToKVAllocator
from radixkv.pages import round_down, round_up
from radixkv.tree import Handle, RadixTree
from radixkv.tree.content import cut_content
from radixkv.tree.radix_tree import AdmitResult
from radixkv.tree.tokens import EMPTY, Int32Array


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


class RequestLife:
    """Tree, pools, live requests and the moves over them. Not thread-safe; trusts its callers."""

    def __init__(
        self,
        tree: RadixTree,
        allocator: TokenToKVAllocator,
        req_to_token: ReqToTokenPool,
        kv: KVPool | None,
        max_cached_tokens: int | None,
    ) -> None:
        self.tree, self.allocator, self.req_to_token = tree, allocator, req_to_token
        self.kv, self.max_cached_tokens = kv, max_cached_tokens
        self.num_slots, self.page_size = allocator.num_slots, allocator.page_size
        self.totals = Totals()
        self._ledger = SlotLedger(allocator)
        self._live: dict[int, Request] = {}
        self._is_copying = False
        self._next_id = 1
        self._generation = 0  # of the weights and the tree

    # ---- coming and growing ----

    def _admit(
        self, request: Request, tokens: Int32Array, max_cached: int, *, resumed: bool
    ) -> Request | None:
        """`tokens` are the request's from now on."""
        row = self.req_to_token.allocate()
        if row is None:
            return None
        admission = None
        try:
            admission = self.tree.admit(
                tokens,
                self._ledger,
                self.req_to_token.rows[row],
                request.namespace,
                content=request.content,
                max_cached=max_cached,
            )
        finally:  # a fence may raise too
            if admission is None or admission.handle is None:
                self.req_to_token.free(row)
        self.totals.evicted_tokens += admission.evicted
        if admission.handle is None:
            return None
        self._begin(request, row, admission, tokens)
        self._count_admission(request, resumed=resumed)
        return request

    def _begin(
        self, request: Request, row: int, admission: AdmitResult, tokens: Int32Array
    ) -> None:
        request.place(row)
        request.handle, request.generation = admission.handle, self._generation
        request.shared = request.cached_len = admission.length
        request.capacity = round_up(len(tokens), self.page_size)
        request.begin(tokens)
        self._register(request)

    def _register(self, request: Request) -> None:
        self._next_id = max(self._next_id, request.id + 1)
        request.state = "running"
        self._live[request.id] = request

    def _count_admission(self, request: Request, *, resumed: bool) -> None:
        numbers, totals = request.numbers, self.totals
        if resumed:
            numbers.resumed_tokens += request.cached_len
            totals.resumed_tokens += request.cached_len
            return
        numbers.prompt_tokens, numbers.cached_tokens = request.length, request.cached_len
        totals.prompt_tokens += request.length
        totals.cached_tokens += request.cached_len
        totals.lookup_tokens += request.length
        totals.hit_tokens += request.cached_len

    def _reserve(self, request: Request, n: int) -> Int32Array | None:
        end = request.length + n
        missing = round_up(end, self.page_size) - request.capacity
        if missing > 0:
            slots = self._take(missing)
            if slots is None:
                return None
            request.table[request.capacity : request.capacity + missing] = slots
            request.capacity += missing
        return request.table[request.length : end].copy()

    # ---- sharing and ending ----

    def _publish(self, request: Request, up_to: int, fence: Fence | None, *, chunked: bool) -> None:
        """[0, shared) was the tree's; afterwards [0, up_to) is, in whole pages."""
        length = round_down(up_to, self.page_size)
        if not self._may_publish(request) or not length or (chunked and length <= request.shared):
            return
        published = self.tree.publish(
            request.token_ids[:length],
            self._ledger,
            request.table,
            request.namespace,
            content=cut_content(request.content, length),
            priority=request.priority,
            chunked=chunked,
            held=request.handle,
            fence=fence,
        )
        request.handle, request.shared = published.handle, length
        request.numbers.published_tokens += length - published.prefix_length
        self.totals.published_tokens += length - published.prefix_length

    def _may_publish(self, request: Request) -> bool:
        return request.store and request.generation == self._generation

    def _move_lock(self, request: Request, handle: Handle, shared: int) -> None:
        self.tree.inc_lock_ref(handle)
        if request.handle is not None:
            self.tree.dec_lock_ref(request.handle)
        request.handle, request.shared = handle, shared

    def _end(self, request: Request, state: State, fence: Fence | None) -> None:
        own = request.table[request.shared : request.capacity]
        if len(own) or fence is not None:
            self._ledger.give_back(own, fence)
        if request.handle is not None:
            self.tree.dec_lock_ref(request.handle)
        self.req_to_token.free(request.row)
        del self._live[request.id]
        request.state, request.handle = state, None
        self._keep_bound(fence)

    # ---- branching and going back ----

    def _fork(self, request: Request, n: int, fence: Fence | None) -> Forked | None:
        """The whole pages are aliased; of a part-filled last page each fork gets a copy.

        row     [ tree's                | own, whole pages   | own, cut page ]
                 locked once more         held once more       copied
        """
        if n > self.req_to_token.free_size:
            return None
        whole = round_down(request.length, self.page_size)
        tail = request.length - whole
        pages = self._take(n * self.page_size if tail else 0)
        if pages is None:
            return None
        own_pages = pages.reshape(n, -1)
        source = np.tile(request.table[whole : request.length], n)
        copies = self._copy(source, own_pages[:, :tail].reshape(-1), pages)
        self._publish(request, request.length, fence, chunked=True)
        forks = [self._fork_one(request, whole, own_page) for own_page in own_pages]
        self._keep_bound(fence)
        return Forked(forks, *copies)

    def _fork_one(self, request: Request, whole: int, own_page: Int32Array) -> Request:
        fork = request.twin(self._next_id)
        row = self.req_to_token.allocate()
        assert row is not None
        fork.place(row)
        fork.cached_len = request.length
        fork.capacity = whole + len(own_page)
        fork.table[:whole] = request.table[:whole]
        fork.table[whole : fork.capacity] = own_page
        fork.begin(request.token_ids.copy())
        if request.handle is not None:
            self.tree.inc_lock_ref(request.handle)
        self._ledger.share(request.table[request.shared : whole])
        self._register(fork)
        return fork

    def _rollback(self, request: Request, length: int, fence: Fence | None) -> Copies | None:
        whole, keep = round_down(length, self.page_size), round_up(length, self.page_size)
        fresh = self._take(self.page_size if self._must_copy(request, whole, length) else 0)
        if fresh is None:
            return None
        table, shared_before = request.table, request.shared
        copied = length - whole if len(fresh) else 0
        copies = self._copy(table[whole : whole + copied].copy(), fresh[:copied], fresh)
        if whole < request.shared:
            self._shorten_lock(request, whole)
        given_from = max(shared_before, whole if len(fresh) else keep)
        self._ledger.give_back(table[given_from : request.capacity].copy(), fence)
        table[whole : whole + len(fresh)] = fresh
        request.cut(length, capacity=keep)
        self._keep_bound(fence)
        return copies

    def _must_copy(self, request: Request, whole: int, length: int) -> bool:
        """Whether the page from `whole` on is cut, and others read it: writing takes a copy."""
        is_shared = whole < request.shared
        return length > whole and (is_shared or self._ledger.sharers[request.table[whole]] > 0)

    def _shorten_lock(self, request: Request, shared: int) -> None:
        match = self.tree.match_prefix(
            request.token_ids[:shared],
            request.namespace,
            content=cut_content(request.content, shared),
        )
        self._move_lock(request, match.handle, shared)

    def _copy(self, source: Int32Array, target: Int32Array, taken: Int32Array) -> Copies:
        """Comes before any other change: if it raises, what was `taken` for it goes back."""
        if self.kv is None or not len(source):
            return Copies(source, target)
        self._is_copying = True
        try:
            self.kv.copy(source, target)
        except BaseException:
            self._ledger.give_back(taken, None)
            raise
        finally:
            self._is_copying = False
        return Copies(EMPTY, EMPTY)

    def _check_not_copying(self) -> None:
        if self._is_copying:
            raise InvalidArgumentError("kv.copy called the cache, which waits for it to be done")

    # ---- slots ----

    def _take(self, n: int) -> Int32Array | None:
        """`n` slots (whole pages) for one request, evicting what is needed; or None, none taken."""
        slots, evicted = self.tree.take(n, self._ledger)
        self.totals.evicted_tokens += evicted
        return slots

    def _evict(self, num_tokens: int, fence: Fence | None = None) -> int:
        slots = self.tree.evict(num_tokens)
        self.totals.evicted_tokens += len(slots)
        self._ledger.free(slots, fence)
        return len(slots)

    def _keep_bound(self, fence: Fence | None) -> None:
        if self.max_cached_tokens is not None and self.tree.total_size > self.max_cached_tokens:
            self._evict(self.tree.total_size - self.max_cached_tokens, fence)

    def _forget(self, read: Iterable[Int32Array] = ()) -> None:
        """Drop the tree; what live requests read of it is theirs until the last of them ends.

        read: what others than requests read of it, once for each of them.
        """
        slots = self.tree.reset()
        self._generation += 1
        readers = np.zeros_like(self._ledger.sharers)
        for slots_read in read:
            readers[slots_read] += 1
        for request in self._live.values():
            readers[request.table[: request.shared]] += 1
            request.own_all()
        self._ledger.retire(slots, readers)

    def _private_slots(self) -> Int32Array:
        """The slots that live requests hold outside the tree, retired ones apart; each once."""
        own = [request.table[request.shared : request.capacity] for request in self._live.values()]
        slots = np.unique(np.concatenate([EMPTY, *own]))
        private: Int32Array = slots[~self._ledger.is_retired[slots]]
        return private
