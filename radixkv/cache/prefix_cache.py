"""PrefixCache: the tree, the pools and the life of a request. What an engine embeds.

    admit ──> extend / reserve + commit ──> publish ... ──> finish | abort | retract
      ^                                                                        │
      └──────────────────── admit(resume=request) <────────────────────────────┘

Every call happens whole or changes nothing that anyone holds, under one lock.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from radixkv.arguments import at_least, between
from radixkv.cache.capacity import CapacityEstimator
from radixkv.cache.events import EventLog
from radixkv.cache.integrity import check_cache
from radixkv.cache.ledger import Fence
from radixkv.cache.lifecycle import Copies, Forked, KVPool, RequestLife
from radixkv.cache.loans import Loans
from radixkv.cache.request import Request
from radixkv.cache.stats import CacheStats
from radixkv.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    LiveRequestsError,
    PromptTooLongError,
    RequestEndedError,
    StaleWeightsError,
)
from radixkv.memory import ReqToTokenPool, new_allocator
from radixkv.pages import round_up
from radixkv.tree import DEFAULT, MatchResult, Namespace, TokenIds, as_token_ids, new_tree
from radixkv.tree.content import Content, check_content
from radixkv.tree.tokens import Int32Array, as_prompts

DEFAULT_MAX_CONTEXT = 131_072
LOWEST_PRIORITY, HIGHEST_PRIORITY = -(2**31), 2**31 - 1

P = ParamSpec("P")
R = TypeVar("R")


def _atomic(
    method: Callable[Concatenate["PrefixCache", P], R],
) -> Callable[Concatenate["PrefixCache", P], R]:
    """Under the cache's lock, with what changed in the tree logged as one revision."""

    @wraps(method)
    def locked(self: "PrefixCache", /, *args: P.args, **kwargs: P.kwargs) -> R:
        if "fence" in kwargs:
            _check_fence(kwargs["fence"])
        with self.lock:
            self._check_not_copying()
            try:
                return method(self, *args, **kwargs)
            finally:
                changes = self.tree.take_changes()
                if changes:
                    self.events.append(changes)

    return locked


class PrefixCache(RequestLife):
    """A prefix cache over `num_slots` slots. Thread-safe; nothing waits inside.

    max_requests, max_context_len: rows and columns of `req_to_token`. None: as long as the pool
    allows, up to 131,072.
    page_size, policy, core: see `RadixTree`.
    kv: the pool whose K/V `fork` and `rollback` copy by themselves.
    max_cached_tokens: most that the tree keeps beside what is locked; a longer prompt keeps its
    beginning.
    estimate_capacity: keep `capacity_estimator` (see `CapacityEstimator`), which sees each look-up
    that is counted: what half or four times the memory would give. Cost: a look-up some 0.2 ms.
    lock: around each call; hold it to make several calls at one revision.
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
        estimate_capacity: bool = False,
    ) -> None:
        tree = new_tree(page_size, policy, core)
        allocator = new_allocator(num_slots, page_size, tree.core)
        if max_context_len is None:
            max_context_len = min(num_slots, DEFAULT_MAX_CONTEXT)
        if max_cached_tokens is not None:
            at_least(0, max_cached_tokens=max_cached_tokens)
        # A whole last page has a place in the row even where the context ends inside it.
        width = round_up(at_least(1, max_context_len=max_context_len), page_size)
        rows = ReqToTokenPool(max_requests, width)
        super().__init__(tree, allocator, rows, kv, max_cached_tokens)
        self.max_context_len = max_context_len
        self.events = EventLog()
        self.weight_version = 0
        self.lock = threading.RLock()
        self.loans = Loans(self)
        capacity = num_slots if max_cached_tokens is None else min(num_slots, max_cached_tokens)
        self.capacity_estimator = CapacityEstimator(capacity) if estimate_capacity else None
        tree.track_changes()

    # ---- looking ----

    @property
    def core(self) -> str:
        """Which tree runs: "native" or "python"."""
        return self.tree.core

    @property
    def free_size(self) -> int:
        """Slots that are free now; eviction may add `tree.evictable_size`."""
        with self.lock:
            return self._ledger.free_size

    @property
    def live_requests(self) -> list[Request]:
        """Requests that were admitted and have not ended."""
        with self.lock:
            return list(self._live.values())

    @_atomic
    def match_prefix(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> MatchResult:
        """`RadixTree.match_prefix` in the present weights, counted as a look-up; takes nothing.

        Other weights match nothing. The slots may be evicted at the next call of anyone: to keep
        them, `admit`.
        """
        tokens = as_token_ids(token_ids)
        visible, spans = (tokens, content) if self._is_present(namespace) else (tokens[:0], ())
        match = self.tree.match_prefix(visible, self._now(namespace), content=spans)
        self._estimate(tokens, namespace, content)
        self.totals.lookup_tokens += len(tokens)
        self.totals.hit_tokens += match.length
        return match

    @_atomic
    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT
    ) -> list[MatchResult]:
        """`match_prefix` of each prompt, all at one revision; a bad prompt changes nothing.

        The native core lets other threads run meanwhile, though no other call of this cache.
        """
        keys = self._look_up(prompts, namespace)
        matches = self.tree.match_batch(keys, self._now(namespace))
        self.totals.hit_tokens += sum(match.length for match in matches)
        return matches

    @_atomic
    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT
    ) -> list[int]:
        """The lengths of `match_batch`, for who wants no slots."""
        keys = self._look_up(prompts, namespace)
        lengths = self.tree.match_lengths(keys, self._now(namespace))
        self.totals.hit_tokens += sum(lengths)
        return lengths

    def _look_up(self, prompts: Sequence[TokenIds], namespace: Namespace) -> list[Int32Array]:
        """What is to be looked for of each prompt, counted."""
        keys = as_prompts(prompts)
        self.totals.lookup_tokens += sum(map(len, keys))
        if self.capacity_estimator is not None:
            for key in keys:
                self._estimate(key, namespace)
        return keys if self._is_present(namespace) else [key[:0] for key in keys]

    @_atomic
    def probe(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> int:
        """Tokens cached of `token_ids`; changes nothing, recency and counters included."""
        if not self._is_present(namespace):
            return 0
        return self.tree.probe(token_ids, self._now(namespace), content=content)

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
        """A request with slots for all of `token_ids`; `cached_len` of them have their K/V already.

        None: no room now, nothing taken.
        At most len - 1 tokens (or `max_cached`) are matched, so that something is computed and
        gives logits.
        store: False keeps its tokens out of the tree for good.
        priority: what the policy of that name goes by.
        resume: a retracted request goes on, with its id, numbers, namespace, content, store and
        priority.
        Raises PromptTooLongError if it can never fit, InvalidTokensError, InvalidContentError,
        InvalidNamespaceError, InvalidArgumentError, StaleWeightsError, RequestEndedError.
        """
        tokens = as_token_ids(token_ids)
        if not isinstance(token_ids, list | tuple):  # of which this is a copy already
            tokens = tokens.copy()
        if not len(tokens):
            raise InvalidArgumentError("token_ids is empty; a request has at least one token")
        self._check_fits(len(tokens))
        limit = len(tokens) - 1
        if max_cached is not None:
            limit = min(limit, at_least(0, max_cached=max_cached))
        if resume is not None:
            request = self._to_resume(resume, namespace)
            return self._admit(request, tokens, limit, resumed=True)
        spans = tuple(check_content(content, len(tokens))) if content else ()
        request = Request(self._next_id, self.req_to_token, self._to_admit(namespace))
        request.content, request.store = spans, store
        request.priority = between(LOWEST_PRIORITY, HIGHEST_PRIORITY, priority=priority)
        admitted = self._admit(request, tokens, limit, resumed=False)
        if admitted is not None:
            self._estimate(tokens, request.namespace, spans)
        return admitted

    @_atomic
    def extend(self, request: Request, token_ids: TokenIds) -> Int32Array | None:
        """Slots, (n,) int32, for tokens about to be computed; None: no room now, nothing taken.

        Raises PromptTooLongError beyond what a row or the pool can hold, RequestEndedError.
        """
        tokens = as_token_ids(token_ids)
        self._check_running(request)
        self._check_fits(request.length + len(tokens))
        slots = self._reserve(request, len(tokens))
        if slots is not None:
            request.append(tokens)
        return slots

    @_atomic
    def reserve(self, request: Request, n: int) -> Int32Array | None:
        """Slots, (n,) int32, for the next `n` tokens, whose ids `commit` brings later.

        Otherwise as `extend`. Reserving again names the same slots first.
        """
        self._check_running(request)
        self._check_fits(request.length + at_least(0, n=n))
        return self._reserve(request, n)

    @_atomic
    def commit(self, request: Request, token_ids: TokenIds) -> None:
        """The ids of the next reserved tokens.

        Raises InvalidArgumentError for more than were reserved, RequestEndedError.
        """
        self._check_running(request)
        tokens = as_token_ids(token_ids)
        self._check_fits(request.length + len(tokens))
        reserved = request.capacity - request.length
        if len(tokens) > reserved:
            raise InvalidArgumentError(f"{len(tokens)} tokens are committed, {reserved} reserved")
        request.append(tokens)

    @_atomic
    def publish(self, request: Request, up_to: int, *, fence: Fence | None = None) -> None:
        """The first `up_to` tokens are computed: share their whole pages from now on. Idempotent.

        Where someone else published the same tokens first, the row now names the tree's slots and
        the request's duplicates are freed, behind `fence` if there is one.
        Raises InvalidArgumentError beyond `length`, RequestEndedError.
        """
        self._check_running(request)
        self._publish(request, between(0, request.length, up_to=up_to), fence, chunked=True)
        self._keep_bound(fence)

    @_atomic
    def finish(
        self, request: Request, up_to: int | None = None, *, fence: Fence | None = None
    ) -> None:
        """Publish what is computed (None: all tokens), then give everything back. Idempotent."""
        if self._has_ended(request):
            return
        computed = request.length if up_to is None else between(0, request.length, up_to=up_to)
        self._publish(request, max(computed, request.shared), fence, chunked=False)
        self._end(request, "finished", fence)

    @_atomic
    def abort(self, request: Request | None, *, fence: Fence | None = None) -> None:
        """Give everything back, publish nothing more. Idempotent; None (never admitted) is fine."""
        if request is None:
            return
        if not self._has_ended(request):
            self._end(request, "aborted", fence)
        elif request.state == "retracted":
            self._check_ours(request)
            request.state = "aborted"  # it does not come back either

    @_atomic
    def retract(self, request: Request, *, fence: Fence | None = None) -> None:
        """As `abort`, but the request can come back by `admit(..., resume=request)`. Idempotent."""
        if not self._has_ended(request):
            self._end(request, "retracted", fence)

    @_atomic
    def fork(self, request: Request, n: int, *, fence: Fence | None = None) -> Forked | None:
        """`n` more requests that share all tokens of `request`, which are taken as computed.

        They are published first (if they may be). Rows are aliased and nothing is copied, but with
        larger pages each fork gets its own copy of the part-filled last page.
        None: no room now, nothing taken. Raises RequestEndedError, InvalidArgumentError.
        """
        self._check_running(request)
        return self._fork(request, at_least(1, n=n), fence)

    @_atomic
    def rollback(
        self, request: Request, length: int, *, fence: Fence | None = None
    ) -> Copies | None:
        """Give back all tokens but the first `length`; the lock may get shorter.

        With larger pages, a part of a page that others may read becomes a copy first, which needs
        one page: None if there is no room, nothing taken. Otherwise what is to be copied, if
        anything is (see `Copies`).
        Raises InvalidArgumentError, RequestEndedError.
        """
        self._check_running(request)
        return self._rollback(request, between(0, request.length, length=length), fence)

    # ---- the whole cache ----

    @_atomic
    def evict(self, num_tokens: int) -> int:
        """Tokens evicted: `num_tokens` rounded up to whole pages, or all that are evictable."""
        return self._evict(at_least(0, num_tokens=num_tokens))

    @_atomic
    def set_weight_version(self, version: int) -> None:
        """The weights changed: what was admitted before is no longer matched nor published.

        Everything is forgotten as in a forced `reset`. The same version again changes nothing.
        """
        replace(DEFAULT, weight_version=version)  # checks it
        if version != self.weight_version:
            self.weight_version = version
            self._begin_epoch()

    @_atomic
    def reset(self, force: bool = False) -> None:
        """Forget everything cached and begin a new epoch.

        Raises LiveRequestsError while requests live or pins are held. Forced, they go on with the
        slots they have, which are freed when the last of their readers is done; they publish
        nothing any more.
        """
        live, pins = len(self._live), sum(pin.handle is not None for pin in self.loans.pins)
        if not force and (live or pins):
            held = f"{live} live requests" + (f" and {pins} pins" if pins else "")
            raise LiveRequestsError(
                f"{held} hold the cache; finish them or force", live_requests=live, pins=pins
            )
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._forget(self.loans.forget())
        self.events.clear()

    @_atomic
    def check_integrity(self) -> list[str]:
        """One line for each broken invariant, I1 to I7, on sets of slots. Walks everything."""
        return check_cache(self)

    @_atomic
    def stats(self) -> CacheStats:
        """Sizes and counters at one moment. Cost: O(num_slots)."""
        return CacheStats(
            num_slots=self.num_slots,
            free=self._ledger.free_size,
            allocated=len(self._private_slots()) + self.loans.num_loaned,
            evictable=self.tree.evictable_size,
            protected=self.tree.protected_size,
            waiting=self._ledger.waiting_size + self.loans.aside_size,
            num_nodes=self.tree.num_nodes,
            live_requests=len(self._live),
            epoch=self.events.epoch,
            revision=self.events.revision,
            **asdict(self.totals),
        )

    def _estimate(self, tokens: Int32Array, namespace: Namespace, content: Content = ()) -> None:
        if self.capacity_estimator is not None:
            self.capacity_estimator.observe(tokens, namespace, content=content)

    # ---- arguments ----

    def _has_ended(self, request: Request) -> bool:
        if isinstance(request, Request) and request.state != "running":
            return True
        self._check_running(request)
        return False

    def _check_running(self, request: Request) -> None:
        if not isinstance(request, Request):
            raise InvalidArgumentError(
                f"request is {request!r}; it takes a Request (None from admit: there was no room)"
            )
        if request.state != "running":
            raise RequestEndedError(f"request {request.id} is {request.state}", request=request.id)
        self._check_ours(request)

    def _check_ours(self, request: Request) -> None:
        if request._pool is not self.req_to_token:
            raise InvalidArgumentError(
                f"request {request.id} belongs to another cache", request=request.id
            )

    def _check_fits(self, length: int) -> None:
        most = min(self.max_context_len, self.num_slots)
        if length > most:
            raise PromptTooLongError(
                f"{length} tokens never fit: the pool has {self.num_slots} slots, "
                f"a request at most {self.max_context_len}",
                length=length,
                most=most,
            )

    def _is_present(self, namespace: Namespace) -> bool:
        if not isinstance(namespace, Namespace):
            raise InvalidNamespaceError(f"namespace is {namespace!r}; it takes a Namespace")
        return namespace.weight_version in (0, self.weight_version)

    def present(self, namespace: Namespace) -> Namespace:
        """The namespace as it is stored: weight version 0 stands for the present weights."""
        return self._now(namespace) if self._is_present(namespace) else namespace

    def _now(self, namespace: Namespace) -> Namespace:
        if namespace.weight_version == self.weight_version:
            return namespace
        return replace(namespace, weight_version=self.weight_version)

    def _to_admit(self, namespace: Namespace) -> Namespace:
        if not self._is_present(namespace):
            raise StaleWeightsError(
                f"the namespace names weight version {namespace.weight_version}; "
                f"{self.weight_version} is served",
                weight_version=self.weight_version,
            )
        return self._now(namespace)

    def _to_resume(self, request: Request, namespace: Namespace) -> Request:
        if not isinstance(request, Request):
            raise InvalidArgumentError(f"resume is {request!r}; it takes a retracted Request")
        self._check_ours(request)
        if request.state != "retracted":
            raise RequestEndedError(
                f"request {request.id} is {request.state}; only a retracted one resumes",
                request=request.id,
            )
        if namespace != DEFAULT and self._now(namespace) != self._now(request.namespace):
            raise InvalidNamespaceError(
                f"a resumed request keeps its namespace, {request.namespace}"
            )
        request.namespace = self._now(request.namespace)
        return request


def _check_fence(fence: object) -> None:
    if fence is not None and not callable(getattr(fence, "query", None)):
        raise InvalidArgumentError(f"fence is {fence!r}; it takes what has query(), or None")
