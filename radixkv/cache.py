"""PrefixCache: the tree, the pools and the life of a request. What an engine embeds.

    admit ──> extend / reserve+commit ──> publish ... ──> finish | abort | retract
                 ^                                                       │
                 └────────────────── admit(resume=request) <─────────────┘

Every call happens whole or changes nothing that anyone holds, under one lock.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np

from radixkv.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    LiveRequestsError,
    PromptTooLongError,
    RequestEndedError,
    StaleWeightsError,
)
from radixkv.events import EventLog
from radixkv.integrity import check_cache
from radixkv.ledger import Fence, SlotLedger
from radixkv.memory import ReqToTokenPool, TokenToKVAllocator
from radixkv.request import Request, State
from radixkv.stats import CacheStats, Totals
from radixkv.tree import DEFAULT, Handle, MatchResult, Namespace, RadixTree, TokenIds, as_token_ids
from radixkv.tree.content import Content, check_content, cut_content
from radixkv.tree.tokens import EMPTY, Int32Array

DEFAULT_MAX_CONTEXT = 131_072

P = ParamSpec("P")
R = TypeVar("R")


class KVPool(Protocol):
    """What the cache asks of the K/V tensors."""

    def copy(self, source: Int32Array, target: Int32Array) -> None:
        """Copy K and V of every layer from `source` slots to `target` slots."""


class Copies(NamedTuple):
    """K/V to copy before the next forward, (n,) int32 each; empty where the cache copied it."""

    source: Int32Array
    target: Int32Array


class Forked(NamedTuple):
    """The new requests, and K/V to copy before the next forward (see `Copies`)."""

    requests: list[Request]
    source: Int32Array
    target: Int32Array


def _atomic(
    method: Callable[Concatenate["PrefixCache", P], R],
) -> Callable[Concatenate["PrefixCache", P], R]:
    """Under the cache's lock, with what changed in the tree logged as one revision."""

    @wraps(method)
    def locked(self: "PrefixCache", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            try:
                return method(self, *args, **kwargs)
            finally:
                self.events.append(self.tree.take_changes())

    return locked


class PrefixCache:
    """A prefix cache over `num_slots` slots. Thread-safe; nothing waits inside.

    max_requests, max_context_len: rows and columns of `req_to_token` (131,072 or the pool, if that
    is smaller).
    page_size, policy, core: see `RadixTree`. kv: the pool whose K/V `fork` and `rollback` copy by
    themselves.
    max_cached_tokens: bounds what the tree keeps beside what is locked; a longer prompt keeps its
    beginning.
    Raises InvalidArgumentError.

    >>> cache = PrefixCache(16)
    >>> first = cache.admit([1, 2, 3, 4])
    >>> cache.finish(first)
    >>> cache.admit([1, 2, 3, 9]).cached_len
    3
    """

    def __init__(
        self,
        num_slots: int,
        *,
        max_requests: int = 256,
        max_context_len: int | None = None,
        page_size: int = 1,
        policy: str = "lru",
        core: str | None = None,
        kv: KVPool | None = None,
        max_cached_tokens: int | None = None,
    ) -> None:
        self.allocator = TokenToKVAllocator(num_slots, page_size)
        self._ledger = SlotLedger(self.allocator)
        self.tree = RadixTree(page_size, policy, core)
        if max_context_len is None:
            max_context_len = min(num_slots, DEFAULT_MAX_CONTEXT)
        # A whole last page has a place in the row even where the context ends inside it.
        self.req_to_token = ReqToTokenPool(max_requests, _round_up(max_context_len, page_size))
        if max_cached_tokens is not None and max_cached_tokens < 0:
            raise InvalidArgumentError(
                f"max_cached_tokens is {max_cached_tokens}; it takes 0 or more, or None"
            )
        self.num_slots, self.page_size = num_slots, page_size
        self.max_context_len, self.max_cached_tokens = max_context_len, max_cached_tokens
        self.kv = kv
        self.events = EventLog()
        self.totals = Totals()
        self.weight_version = 0
        self.tree.track_changes()
        self._lock = threading.RLock()
        self._live: dict[int, Request] = {}
        self._next_id = 1
        self._generation = 0  # of the weights and the tree

    # ---- looking ----

    @property
    def core(self) -> str:
        """Which tree runs: "native" or "python"."""
        return self.tree.core

    @property
    def free_size(self) -> int:
        """Slots that are free now; eviction may add `tree.evictable_size`."""
        return self.allocator.free_size

    @property
    def live_requests(self) -> list[Request]:
        """Requests that were admitted and have not ended."""
        with self._lock:
            return list(self._live.values())

    @_atomic
    def match_prefix(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> MatchResult:
        """`RadixTree.match_prefix` in the present weights, counted as a look-up; takes nothing.

        The slots may be evicted at the next call of anyone: to keep them, `admit`.
        """
        tokens = as_token_ids(token_ids)
        match = self.tree.match_prefix(
            self._visible(tokens, namespace), self._now(namespace), content=content
        )
        self.totals.lookup_tokens += len(tokens)
        self.totals.hit_tokens += match.length
        return match

    @_atomic
    def probe(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> int:
        """Tokens cached of `token_ids`; changes nothing, recency and counters included."""
        tokens = self._visible(as_token_ids(token_ids), namespace)
        return self.tree.probe(tokens, self._now(namespace), content=content)

    @_atomic
    def probe_batch(self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT) -> list[int]:
        """`probe` of each prompt, all at one revision."""
        if not self._is_present(namespace):
            return [0 for _ in prompts]
        return self.tree.probe_batch(prompts, self._now(namespace))

    # ---- the life of a request ----

    @_atomic
    def admit(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        store: bool = True,
        max_cached: int | None = None,
        priority: int = 0,
        resume: Request | None = None,
    ) -> Request | None:
        """A request with slots for all of `token_ids`, of which `cached_len` have their K/V
        already.

        At most len - 1 tokens (or `max_cached`) are matched, so that something is computed and
        gives logits.
        store: False keeps its tokens out of the tree for good. priority: for the policy of that
        name.
        resume: a retracted request goes on, with its id, numbers, namespace, content, store and
        priority.
        None: no room now, nothing taken.
        Raises PromptTooLongError if it can never fit, InvalidTokensError, InvalidContentError,
        StaleWeightsError, RequestEndedError.
        """
        tokens = as_token_ids(token_ids)
        if not len(tokens):
            raise InvalidArgumentError("token_ids is empty; a request has at least one token")
        self._check_fits(len(tokens))
        limit = (
            len(tokens) - 1
            if max_cached is None
            else min(_at_least(0, max_cached=max_cached), len(tokens) - 1)
        )
        if resume is None:
            spans = tuple(check_content(content, len(tokens)))
            request = Request(
                self._next_id,
                self.req_to_token,
                self._to_admit(namespace),
                spans,
                store=store,
                priority=priority,
            )
        else:
            request = self._to_resume(resume, namespace)
        return self._admit(request, tokens, limit)

    def _admit(self, request: Request, tokens: Int32Array, limit: int) -> Request | None:
        row = self.req_to_token.allocate()
        if row is None:
            return None
        match = self.tree.match_prefix(
            tokens[:limit], request.namespace, content=cut_content(request.content, limit)
        )
        # Lock before judging capacity: what is about to be used is not evictable.
        self.tree.inc_lock_ref(match.handle)
        slots = self._take(_round_up(len(tokens), self.page_size) - match.length)
        if slots is None:
            self.tree.dec_lock_ref(match.handle)
            self.req_to_token.free(row)
            return None
        self._begin(request, row, match)
        request.table[: match.length] = match.slots
        request.capacity = match.length + len(slots)
        request.table[match.length : request.capacity] = slots
        request.append(tokens)
        self._count_admission(request)
        return request

    def _begin(self, request: Request, row: int, match: MatchResult) -> None:
        if request.id == self._next_id:
            self._next_id += 1
        request.row, request.handle, request.generation = row, match.handle, self._generation
        request.shared = request.cached_len = match.length
        request.length = 0
        request.state = "running"
        self._live[request.id] = request

    def _count_admission(self, request: Request) -> None:
        numbers, totals = request.numbers, self.totals
        if numbers.prompt_tokens:
            numbers.resumed_tokens += request.cached_len
            totals.resumed_tokens += request.cached_len
            return
        numbers.prompt_tokens, numbers.cached_tokens = request.length, request.cached_len
        totals.prompt_tokens += request.length
        totals.cached_tokens += request.cached_len
        totals.lookup_tokens += request.length
        totals.hit_tokens += request.cached_len

    @_atomic
    def extend(self, request: Request, token_ids: TokenIds) -> Int32Array | None:
        """Slots, (n,) int32, for tokens about to be computed; None: no room now, nothing taken.

        Raises PromptTooLongError beyond what a row or the pool can hold, RequestEndedError.
        """
        tokens = as_token_ids(token_ids)
        slots = self._reserve(request, len(tokens))
        if slots is not None:
            request.append(tokens)
        return slots

    @_atomic
    def reserve(self, request: Request, n: int) -> Int32Array | None:
        """Slots, (n,) int32, for the next `n` tokens, whose ids `commit` brings later; as `extend`
        otherwise.

        Reserving again names the same slots first.
        """
        return self._reserve(request, _at_least(0, n=n))

    @_atomic
    def commit(self, request: Request, token_ids: TokenIds) -> None:
        """The ids of the next reserved tokens.

        Raises InvalidArgumentError for more than were reserved.
        """
        _check_running(request)
        tokens = as_token_ids(token_ids)
        if request.length + len(tokens) > request.capacity:
            raise InvalidArgumentError(
                f"{len(tokens)} tokens are committed, "
                f"{request.capacity - request.length} are reserved"
            )
        request.append(tokens)

    def _reserve(self, request: Request, n: int) -> Int32Array | None:
        _check_running(request)
        end = request.length + n
        self._check_fits(end)
        missing = _round_up(end, self.page_size) - request.capacity
        if missing > 0:
            slots = self._take(missing)
            if slots is None:
                return None
            request.table[request.capacity : request.capacity + missing] = slots
            request.capacity += missing
        return request.table[request.length : end].copy()

    @_atomic
    def publish(self, request: Request, up_to: int, *, fence: Fence | None = None) -> None:
        """The first `up_to` tokens are computed: share their whole pages from now on. Idempotent.

        Where someone else published the same tokens first, the row now names the tree's slots and
        the
        request's duplicates are freed (behind `fence`).
        Raises InvalidArgumentError beyond `length`, RequestEndedError.
        """
        _check_running(request)
        self._publish(request, _at_most(request.length, up_to=up_to), fence, chunked=True)
        self._keep_bound(fence)

    @_atomic
    def finish(
        self, request: Request, up_to: int | None = None, *, fence: Fence | None = None
    ) -> None:
        """Publish what is computed (all tokens, or the first `up_to`), then give everything back.

        Idempotent.
        """
        if request.state != "running":
            return
        computed = request.length if up_to is None else _at_most(request.length, up_to=up_to)
        self._publish(request, max(computed, request.shared), fence, chunked=False)
        self._end(request, "finished", fence)

    @_atomic
    def abort(self, request: Request | None, *, fence: Fence | None = None) -> None:
        """Give everything back and publish nothing more.

        Idempotent; None (never admitted) is fine.
        """
        if request is not None:
            self._end(request, "aborted", fence)

    @_atomic
    def retract(self, request: Request, *, fence: Fence | None = None) -> None:
        """As `abort`, but the request can come back by `admit(..., resume=request)`. Idempotent."""
        self._end(request, "retracted", fence)

    def _publish(self, request: Request, up_to: int, fence: Fence | None, *, chunked: bool) -> None:
        """[0, shared) was the tree's; afterwards [0, up_to) is, in whole pages.

        row     [ tree's | own, already there  | own, new      | own ]
                0     shared           prefix_length         up_to   length
                         remapped, then freed    handed over
        """
        length = _round_down(up_to, self.page_size)
        shared, table = request.shared, request.table
        if not self._may_publish(request) or length == 0 or (chunked and length <= shared):
            return
        result = self.tree.insert(
            request.token_ids[:length],
            table[:length],
            request.namespace,
            content=cut_content(request.content, length),
            priority=request.priority,
            chunked=chunked,
        )
        self._move_lock(request, result.handle, length)
        duplicates = table[shared : result.prefix_length].copy()
        table[shared : result.prefix_length] = result.slots[shared:]
        self._ledger.hand_over(table[result.prefix_length : length])
        self._ledger.give_back(duplicates, fence)
        request.numbers.published_tokens += length - result.prefix_length
        self.totals.published_tokens += length - result.prefix_length

    def _may_publish(self, request: Request) -> bool:
        return request.store and request.generation == self._generation

    def _move_lock(self, request: Request, handle: Handle, shared: int) -> None:
        self.tree.inc_lock_ref(handle)
        if request.handle is not None:
            self.tree.dec_lock_ref(request.handle)
        request.handle, request.shared = handle, shared

    def _end(self, request: Request, state: State, fence: Fence | None) -> None:
        if request.state != "running":
            return
        self._ledger.give_back(request.table[request.shared : request.capacity].copy(), fence)
        if request.handle is not None:
            self.tree.dec_lock_ref(request.handle)
        self.req_to_token.free(request.row)
        del self._live[request.id]
        request.state, request.handle = state, None
        self._keep_bound(fence)

    # ---- branching and going back ----

    @_atomic
    def fork(self, request: Request, n: int, *, fence: Fence | None = None) -> Forked | None:
        """`n` more requests that share all tokens of `request`, which are taken as computed.

        They are published first (if they may be). Rows are aliased and nothing is copied, but with
        larger
        pages each fork gets its own copy of the part-filled last page. None: no room now, nothing
        taken.
        Raises RequestEndedError, InvalidArgumentError.
        """
        _check_running(request)
        if _at_least(1, n=n) > self.req_to_token.free_size:
            return None
        self._publish(request, request.length, fence, chunked=True)
        whole = _round_down(request.length, self.page_size)
        tail = request.length - whole
        pages = self._take(n * self.page_size if tail else 0)
        if pages is None:
            return None
        own_pages = pages.reshape(n, -1)
        forks = [self._fork_one(request, whole, own_page) for own_page in own_pages]
        source = np.tile(request.table[whole : request.length], n)
        copies = self._copy(source, own_pages[:, :tail].reshape(-1))
        return Forked(forks, *copies)

    def _fork_one(self, request: Request, whole: int, own_page: Int32Array) -> Request:
        fork = Request(
            self._next_id,
            self.req_to_token,
            request.namespace,
            request.content,
            store=request.store,
            priority=request.priority,
        )
        row = self.req_to_token.allocate()
        assert row is not None
        if request.handle is not None:
            self.tree.inc_lock_ref(request.handle)
        self._next_id += 1
        fork.row, fork.handle, fork.generation = row, request.handle, request.generation
        fork.shared, fork.cached_len = request.shared, request.length
        fork.table[:whole] = request.table[:whole]
        fork.table[whole : whole + len(own_page)] = own_page
        fork.capacity = whole + len(own_page)
        self._ledger.share(request.table[request.shared : whole])
        fork.append(request.token_ids)
        self._live[fork.id] = fork
        return fork

    @_atomic
    def rollback(
        self, request: Request, length: int, *, fence: Fence | None = None
    ) -> Copies | None:
        """Give back all tokens but the first `length`; the lock may get shorter.

        With larger pages, a part of a page that others may read becomes a copy first, which needs
        one page:
        None if there is no room, nothing taken. Raises InvalidArgumentError, RequestEndedError.
        """
        _check_running(request)
        _at_most(request.length, length=length)
        whole = _round_down(length, self.page_size)
        fresh = self._take(self.page_size if self._is_foreign(request, whole, length) else 0)
        if fresh is None:
            return None
        source = request.table[whole : whole + len(fresh)].copy()
        own_from = request.shared
        if whole < request.shared:
            shorter = cut_content(request.content, whole)
            match = self.tree.match_prefix(
                request.token_ids[:whole], request.namespace, content=shorter
            )
            self._move_lock(request, match.handle, whole)
        keep = _round_up(length, self.page_size)
        self._ledger.give_back(
            request.table[max(own_from, whole if len(fresh) else keep) : request.capacity].copy(),
            fence,
        )
        request.table[whole : whole + len(fresh)] = fresh
        request.capacity, request.length = keep, length
        request.cached_len = min(request.cached_len, length)
        request.content = cut_content(request.content, length)
        return self._copy(source[: length - whole], fresh[: length - whole])

    def _is_foreign(self, request: Request, whole: int, length: int) -> bool:
        """Whether the last kept token's page is cut and not the request's alone to write into."""
        return length > whole and (
            whole < request.shared or self._ledger.holders[request.table[whole]] > 1
        )

    def _copy(self, source: Int32Array, target: Int32Array) -> Copies:
        if self.kv is None or not len(source):
            return Copies(source, target)
        self.kv.copy(source, target)
        return Copies(EMPTY, EMPTY)

    # ---- the whole cache ----

    @_atomic
    def evict(self, num_tokens: int) -> int:
        """Tokens evicted: `num_tokens` rounded up to whole pages, or all that are evictable."""
        return self._evict(num_tokens)

    @_atomic
    def set_weight_version(self, version: int) -> None:
        """The model's weights changed: what was admitted before is no longer matched nor published.

        Everything cached is forgotten as in a forced `reset`. The same version again changes
        nothing.
        """
        replace(DEFAULT, weight_version=version)  # checks it
        if version != self.weight_version:
            self.weight_version = version
            self._forget()

    @_atomic
    def reset(self, force: bool = False) -> None:
        """Forget everything cached and begin a new epoch.

        Raises LiveRequestsError while requests live. Forced, they go on with the slots they have,
        which are
        freed when the last of their readers is done; they publish nothing any more.
        """
        if self._live and not force:
            raise LiveRequestsError(
                f"{len(self._live)} live requests hold the cache; finish them or force",
                live_requests=len(self._live),
            )
        self._forget()

    def _forget(self) -> None:
        slots = self.tree.reset()
        self._generation += 1
        for request in self._live.values():
            self._ledger.share(request.table[: request.shared])
            request.handle, request.shared = None, 0
        self._ledger.retire(slots)
        self.events.clear()

    @_atomic
    def check_integrity(self) -> list[str]:
        """One line for each broken invariant (I1 to I7), checked on sets of slots.

        Walks everything.
        """
        return check_cache(self)

    @_atomic
    def stats(self) -> CacheStats:
        """Sizes and counters at one moment. Cost: O(num_slots)."""
        return CacheStats(
            num_slots=self.num_slots,
            free=self.free_size,
            allocated=self._ledger.private_size,
            evictable=self.tree.evictable_size,
            protected=self.tree.protected_size,
            waiting=self._ledger.waiting_size,
            num_nodes=self.tree.num_nodes,
            live_requests=len(self._live),
            epoch=self.events.epoch,
            revision=self.events.revision,
            **asdict(self.totals),
        )

    # ---- slots ----

    def _take(self, n: int) -> Int32Array | None:
        """`n` slots (whole pages) for one request, evicting what is needed; or None, none taken."""
        missing = n - self._ledger.free_size
        if missing > self.tree.evictable_size:
            return None
        if missing > 0:
            self._evict(missing)
        return self._ledger.take(n)

    def _evict(self, num_tokens: int, fence: Fence | None = None) -> int:
        slots = self.tree.evict(num_tokens)
        self.totals.evicted_tokens += len(slots)
        self._ledger.free_unread(slots, fence)
        return len(slots)

    def _keep_bound(self, fence: Fence | None) -> None:
        if self.max_cached_tokens is not None and self.tree.total_size > self.max_cached_tokens:
            self._evict(self.tree.total_size - self.max_cached_tokens, fence)

    # ---- arguments ----

    def _check_fits(self, length: int) -> None:
        most = min(self.max_context_len, self.num_slots)
        if length > most:
            raise PromptTooLongError(
                f"{length} tokens never fit: the pool has {self.num_slots} slots, "
                f"a row {self.max_context_len}",
                length=length,
                most=most,
            )

    def _is_present(self, namespace: Namespace) -> bool:
        return namespace.weight_version in (0, self.weight_version)

    def _now(self, namespace: Namespace) -> Namespace:
        return replace(namespace, weight_version=self.weight_version)

    def _visible(self, tokens: Int32Array, namespace: Namespace) -> Int32Array:
        """Other weights than the present ones see nothing."""
        return tokens if self._is_present(namespace) else EMPTY

    def _to_admit(self, namespace: Namespace) -> Namespace:
        if not self._is_present(namespace):
            raise StaleWeightsError(
                f"the namespace names weight version {namespace.weight_version}, "
                f"{self.weight_version} is served",
                weight_version=self.weight_version,
            )
        return self._now(namespace)

    def _to_resume(self, request: Request, namespace: Namespace) -> Request:
        if request.state != "retracted":
            raise RequestEndedError(
                f"request {request.id} is {request.state}; only a retracted one resumes"
            )
        if namespace not in (DEFAULT, request.namespace):
            raise InvalidNamespaceError(
                f"a resumed request keeps its namespace, {request.namespace}"
            )
        request.namespace = self._now(request.namespace)
        return request


def _check_running(request: Request) -> None:
    if request.state != "running":
        raise RequestEndedError(f"request {request.id} is {request.state}", request=request.id)


def _round_up(n: int, page_size: int) -> int:
    return -(-n // page_size) * page_size


def _round_down(n: int, page_size: int) -> int:
    return n - n % page_size


def _at_least(low: int, **named: int) -> int:
    ((name, value),) = named.items()
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise InvalidArgumentError(f"{name} is {value!r}; it takes an int of {low} or more")
    return int(value)


def _at_most(high: int, **named: int) -> int:
    ((name, value),) = named.items()
    if _at_least(0, **named) > high:
        raise InvalidArgumentError(f"{name} is {value}; the request has {high} tokens")
    return int(value)
