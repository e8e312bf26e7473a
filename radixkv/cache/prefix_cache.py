"""PrefixCache: the tree, the pools and the life of a request. What an engine embeds.

    admit ──> extend / reserve + commit ──> publish ... ──> finish | abort | retract
      ^                                                                        │
      └──────────────────── admit(resume=request) <────────────────────────────┘

Arguments are checked and tokens converted here, once; the parts below trust what they get:

    Lookups     what is cached of a prompt, counted
    Lifecycle   the live requests: rows, locks, slots
    Loans       pins, and slots on loan to other processes
    Slots       tree and ledger, and the moves between the two

Every call happens whole or changes nothing that anyone holds, under one lock (`transaction.py`).
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import NoReturn, final

from radixkv.arguments import as_flag, as_priority, at_least, between
from radixkv.arrays import Int32Array
from radixkv.cache.capacity import CapacityEstimator
from radixkv.cache.events import EventLog
from radixkv.cache.factory import new_ledger
from radixkv.cache.integrity import CacheView, check_replay, check_slices
from radixkv.cache.ledger import Fence, check_fence
from radixkv.cache.lifecycle import Copies, Forked, KVPool, Lifecycle
from radixkv.cache.loans import Loans
from radixkv.cache.lookups import Lookups
from radixkv.cache.request import Request
from radixkv.cache.shortage import shortage
from radixkv.cache.slots import Slots
from radixkv.cache.snapshot import take_snapshot
from radixkv.cache.stats import CacheStats, Totals
from radixkv.cache.transaction import Transactions, ending, transaction
from radixkv.cache.weights import Weights
from radixkv.errors import (
    InvalidArgumentError,
    InvalidNamespaceError,
    LiveRequestsError,
    PromptTooLongError,
    RequestEndedError,
)
from radixkv.memory import ReqToTokenPool, TokenToKVAllocator, new_allocator
from radixkv.pages import round_up
from radixkv.tree import (
    DEFAULT,
    ContentSpan,
    MatchResult,
    Namespace,
    RadixTree,
    TokenIds,
    new_reader,
    new_tree,
)
from radixkv.tree.content import NO_CONTENT, Content, check_content
from radixkv.tree.namespace import check_namespace
from radixkv.tree.shares import NO_SHARES, Shares, check_fit, reserves

DEFAULT_MAX_CONTEXT = 131_072


@final
class PrefixCache:
    """A prefix cache over `num_slots` slots. Thread-safe: one lock around each call.

    Parameters
    ----------
    num_slots
        Slots of the pool, a multiple of `page_size`: tokens that it holds.
    max_requests
        Rows of `req_to_token`: requests that live at once.
    max_context_len
        Columns of `req_to_token`: tokens of the longest request. None: as long as the pool allows,
        up to 131,072.
    page_size
        Tokens a page, 1 or more; prompts share whole pages.
    policy
        What is evicted first, a name in `radixkv.tree.POLICIES`.
    core
        "native", "python", or None: RADIXKV_CORE if it is set, else native where it is built.
    kv
        The pool whose K/V `fork` and `rollback` copy by themselves.
    max_cached_tokens
        Most that the tree keeps besides what is locked; a longer prompt keeps its beginning.
    estimate_capacity
        Keep `capacity_estimator` (see `CapacityEstimator`), which sees each look-up that is
        counted: what half or four times the memory would give. Costs a look-up some 0.2 ms.
    shares
        Reserves and caps by salt, see `radixkv.tree.shares`; the reserves together must fit.

    Attributes
    ----------
    lock
        Around each call; hold it to make several calls at one revision.

    Raises
    ------
    InvalidArgumentError
        For a value out of range.

    Examples
    --------
    >>> cache = PrefixCache(16)
    >>> first = cache.admit([1, 2, 3, 4])
    >>> cache.finish(first, up_to=4)
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
        shares: Shares = NO_SHARES,
    ) -> None:
        tree = new_tree(page_size, policy, core, shares)
        allocator = new_allocator(num_slots, page_size, tree.core)
        if max_context_len is None:
            max_context_len = min(num_slots, DEFAULT_MAX_CONTEXT)
        if max_cached_tokens is not None:
            at_least(0, max_cached_tokens=max_cached_tokens)
        # A whole last page has a place in the row even where the context ends inside it.
        width = round_up(at_least(1, max_context_len=max_context_len), page_size)
        capacity = num_slots if max_cached_tokens is None else min(num_slots, max_cached_tokens)
        check_fit(shares, page_size, capacity)
        estimates = as_flag(estimate_capacity, "estimate_capacity")
        estimator = CapacityEstimator(capacity) if estimates else None

        self.num_slots, self.page_size = num_slots, page_size
        self.max_context_len = max_context_len
        self._longest = min(max_context_len, num_slots)
        self._reserves = reserves(shares, page_size)
        self.transactions = Transactions(tree, EventLog(), self._broken_invariants)
        self.req_to_token = ReqToTokenPool(max_requests, width)
        self.slots = Slots(tree, new_ledger(allocator), max_cached_tokens)
        self._reader = new_reader(tree.core)
        self._weights = Weights()
        self._lookups = Lookups(self.slots, self._weights, estimator)
        self._lifecycle = Lifecycle(self.slots, self.req_to_token, kv)
        self.loans = Loans(
            self._reader, self.slots, self._weights, self._lookups, self.transactions
        )

    # ---- parts ----

    @property
    def tree(self) -> RadixTree:
        """For looking only: what changes it goes through the cache."""
        return self.slots.tree

    @property
    def allocator(self) -> TokenToKVAllocator:
        """For looking only."""
        return self.slots.allocator

    @property
    def lock(self) -> threading.RLock:
        """Around each call; hold it to make several calls at one revision."""
        return self.transactions.lock

    @property
    def events(self) -> EventLog:
        """What became cached and what was evicted, a revision for each call that changed it."""
        return self.transactions.events

    @property
    def violations(self) -> Sequence[str]:
        """What is broken, after memory ran out where nothing could be undone; the calls are refused
        then, with CacheCorruptedError.
        """
        return self.transactions.violations

    @property
    def totals(self) -> Totals:
        """Tokens counted since the cache was made."""
        return self.slots.totals

    @property
    def max_cached_tokens(self) -> int | None:
        """Most that the tree keeps besides what is locked."""
        return self.slots.max_cached_tokens

    @property
    def capacity_estimator(self) -> CapacityEstimator | None:
        """What sees each look-up, if `estimate_capacity` asked for it."""
        return self._lookups.estimator

    @property
    def kv(self) -> KVPool | None:
        """The pool whose K/V `fork` and `rollback` copy; None: they answer what to copy."""
        return self._lifecycle.kv

    @kv.setter
    def kv(self, kv: KVPool | None) -> None:
        self._lifecycle.kv = kv

    @property
    def core(self) -> str:
        """Which tree runs: "native" or "python"."""
        return self.tree.core

    @property
    def weight_version(self) -> int:
        """The weights that are served."""
        return self._weights.version

    @property
    def free_size(self) -> int:
        """Slots that are free now; eviction may add `tree.room_for` a namespace."""
        with self.lock:
            return self.slots.ledger.free_size

    @property
    def live_requests(self) -> list[Request]:
        """Requests that were admitted and have not ended."""
        with self.lock:
            return list(self._lifecycle.live.values())

    # ---- looking ----

    @transaction
    def match_prefix(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> MatchResult:
        """`RadixTree.match_prefix` in the present weights, counted as a look-up; takes nothing.

        Cost: as `RadixTree.match_prefix`.

        Parameters
        ----------
        token_ids
            (n,) int32 or what `as_token_ids` reads, n >= 0. Other weights match nothing.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
        checked
            As for `RadixTree.match_prefix`, here and in the look-ups below.

        Returns
        -------
        MatchResult
            The length matched, its slots as (length,) int32, and its handle. The slots may be
            evicted at the next call of anyone: to keep them, `admit`.

        Raises
        ------
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        InvalidNamespaceError
            For what is not a `Namespace`.
        """
        tokens, spans = self._reader.key(token_ids, content, checked)
        return self._lookups.match(tokens, namespace, spans)

    @transaction
    def match_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[MatchResult]:
        """`match_prefix` of each prompt, all at one revision; a bad prompt changes nothing.

        The native core lets other threads run meanwhile, though no other call of this cache.

        Parameters
        ----------
        prompts
            Prompts, each as `token_ids` of `match_prefix`.
        namespace
            What must be equal besides the tokens.
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        list[MatchResult]
            One a prompt, in order.

        Raises
        ------
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidNamespaceError
            For what is not a `Namespace`.
        """
        return self._lookups.match_batch(self._reader.keys(prompts, checked), namespace)

    @transaction
    def match_lengths(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        """The lengths of `match_batch`, in tokens, without the slots; counted as the same use.

        Parameters
        ----------
        prompts
            Prompts, each as `token_ids` of `match_prefix`.
        namespace
            What must be equal besides the tokens.
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        list[int]
            Tokens cached of each prompt.
        """
        return self._lookups.match_lengths(self._reader.keys(prompts, checked), namespace)

    @transaction
    def probe(
        self,
        token_ids: TokenIds,
        namespace: Namespace = DEFAULT,
        *,
        content: Content = (),
        checked: bool = False,
    ) -> int:
        """Tokens cached of `token_ids`; changes nothing, recency and counters included.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 0, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        int
            Tokens.

        Raises
        ------
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        InvalidNamespaceError
            For what is not a `Namespace`.
        """
        tokens, spans = self._reader.key(token_ids, content, checked)
        return self._lookups.probe(tokens, namespace, spans)

    @transaction
    def probe_batch(
        self, prompts: Sequence[TokenIds], namespace: Namespace = DEFAULT, *, checked: bool = False
    ) -> list[int]:
        """`probe` of each prompt, all at one revision.

        Parameters
        ----------
        prompts
            Prompts, each as `token_ids` of `match_prefix`.
        namespace
            What must be equal besides the tokens.
        checked
            The tokens and spans were read and checked before, and are not read again.

        Returns
        -------
        list[int]
            Tokens cached of each prompt.
        """
        return self._lookups.probe_batch(self._reader.keys(prompts, checked), namespace)

    # ---- the life of a request ----

    @transaction
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

        At most len - 1 tokens (or `max_cached`) are matched, so that something is computed and
        gives logits.

        Parameters
        ----------
        token_ids
            (n,) int32, n >= 1, each from 0 to 2**31 - 1; or what `as_token_ids` reads.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).
        store
            False keeps its tokens out of the tree for good.
        max_cached
            Most tokens to match; None: all but the last.
        priority
            What the policy of that name goes by.
        resume
            A retracted request goes on, with its id, numbers, namespace, content, store and
            priority; what is given of these besides it must be its own.

        Returns
        -------
        Request | None
            The request; None: there is no room now, and nothing was taken.

        Raises
        ------
        PromptTooLongError
            If it can never fit.
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        InvalidNamespaceError
            For what is not a `Namespace`.
        InvalidArgumentError
            For a value out of range.
        StaleWeightsError
            For a namespace of other weights than the present ones.
        RequestEndedError
            For a request that does not run.
        """
        tokens, length = self._reader.copy_token_ids(token_ids)
        if not 0 < length <= self._longest:
            self._refuse_length(length)
        if self._reserves:
            self._check_beside_reserves(length, namespace if resume is None else resume)
        limit = length - 1
        if max_cached is not None:
            limit = min(limit, at_least(0, max_cached=max_cached))
        if resume is not None:
            given = check_content(content, length)
            self._check_resumes(resume, namespace)
            self._check_kept(resume, given, as_flag(store, "store"), priority)
            resume.namespace = self._weights.present(resume.namespace)
            return self._lifecycle.resume(resume, tokens, length, limit)
        if type(priority) is not int or priority:
            priority = as_priority(priority)
        if store is not True:
            store = as_flag(store, "store")
        spans = () if content is NO_CONTENT else tuple(check_content(content, length))
        if type(namespace) is not Namespace or namespace.weight_version != self._weights.version:
            namespace = self._weights.to_store(namespace)
        request = self._lifecycle.admit(
            tokens,
            length,
            namespace,
            spans,
            limit,
            store,
            priority,
        )
        if request is not None and self._lookups.estimator is not None:
            self._lookups.observe(tokens[:length], request.namespace, spans)
        return request

    @transaction
    def extend(self, request: Request, token_ids: TokenIds) -> Int32Array | None:
        """Slots, (n,) int32, for tokens about to be computed; None: no room now, nothing taken.

        Parameters
        ----------
        request
            A request of this cache.
        token_ids
            (n,) int32: the tokens that are computed next.

        Returns
        -------
        Int32Array | None
            (n,) int32, where to write; None: there is no room now, and nothing was taken.

        Raises
        ------
        PromptTooLongError
            Beyond what a row or the pool can hold.
        RequestEndedError
            For a request that does not run.
        """
        self._check_running(request)
        # Read to where they belong, which is nowhere yet if there is no room.
        count = self._reader.append_ids(token_ids, request.tokens, request.length)
        if count is None:
            count = request.write(self._reader.token_ids(token_ids), self._longest)
        length = request.length + count
        if length > self._longest or self._reserves:
            self._check_length(request, length)
        slots = self._lifecycle.reserve(request, count)
        if slots is not None:
            request.length = length
        return slots

    @transaction
    def reserve(self, request: Request, n: int) -> Int32Array | None:
        """Slots, (n,) int32, for the next `n` tokens, whose ids `commit` brings later.

        Otherwise as `extend`. Reserving again names the same slots first.

        Parameters
        ----------
        request
            A request of this cache.
        n
            Tokens, 0 or more.

        Returns
        -------
        Int32Array | None
            (n,) int32; None: there is no room now, and nothing was taken.
        """
        self._check_running(request)
        self._check_length(request, request.length + at_least(0, n=n))
        return self._lifecycle.reserve(request, n)

    @transaction
    def commit(self, request: Request, token_ids: TokenIds) -> None:
        """The ids of the next reserved tokens.

        Parameters
        ----------
        request
            A request of this cache.
        token_ids
            (n,) int32, n at most what is reserved.

        Raises
        ------
        InvalidArgumentError
            For more than were reserved.
        PromptTooLongError
            Beyond what a row or the pool can hold.
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        RequestEndedError
            For a request that does not run.
        """
        tokens = self._reader.token_ids(token_ids)
        self._check_running(request)
        self._check_length(request, request.length + len(tokens))
        reserved = request.capacity - request.length
        if len(tokens) > reserved:
            raise InvalidArgumentError(
                f"token_ids must have {reserved} tokens or fewer, as reserved; got {len(tokens)}"
            )
        request.length += request.write(tokens, self._longest)

    @transaction
    def publish(self, request: Request, up_to: int, *, fence: Fence | None = None) -> None:
        """The first `up_to` tokens are computed: share their whole pages from now on. Idempotent.

        Where someone else published the same tokens first, the row now names the tree's slots and
        the request's duplicates are freed, behind `fence` if there is one.

        Parameters
        ----------
        request
            A request of this cache.
        up_to
            Tokens whose K/V is computed, from the first on.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.

        Raises
        ------
        InvalidArgumentError
            Beyond `length`.
        RequestEndedError
            For a request that does not run.
        """
        self._check_running(request)
        check_fence(fence)
        computed = between(0, request.length, up_to=up_to)
        self._lifecycle.publish(request, computed, fence, chunked=True)
        self.slots.keep_bound(fence)

    @ending
    def finish(
        self, request: Request, up_to: int | None = None, *, fence: Fence | None = None
    ) -> None:
        """Publish the first `up_to` tokens, which are computed; then give everything back.

        None: what was published already stays, and nothing else does. Idempotent.

        Parameters
        ----------
        request
            A request of this cache.
        up_to
            Tokens whose K/V is computed, from the first on; None: those published already.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.

        Raises
        ------
        InvalidArgumentError
            Beyond `length`.
        """
        is_ours = type(request) is Request and request.pool is self.req_to_token
        if not (is_ours and request.state == "running") and self._has_ended(request):
            return
        if fence is not None:
            check_fence(fence)
        computed = request.shared
        if up_to is not None:
            # Each request comes here: what is well is looked at without a call.
            if type(up_to) is not int or not computed <= up_to <= request.length:
                up_to = max(between(0, request.length, up_to=up_to), computed)
            computed = up_to
        self._lifecycle.publish(request, computed, fence, chunked=False)
        self._lifecycle.end(request, "finished", fence)

    @ending
    def abort(self, request: Request | None, *, fence: Fence | None = None) -> None:
        """Give everything back, publish nothing more. Idempotent; None (never admitted) is fine.

        Parameters
        ----------
        request
            A request of this cache; None does nothing.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.
        """
        check_fence(fence)
        if request is None:
            return
        if not self._has_ended(request):
            self._lifecycle.end(request, "aborted", fence)
        elif request.state == "retracted":
            if request.pool is not self.req_to_token:
                self._refuse_foreign(request)
            request.state = "aborted"  # it does not come back either

    @ending
    def retract(self, request: Request, *, fence: Fence | None = None) -> None:
        """As `abort`, but the request can come back by `admit(..., resume=request)`. Idempotent.

        Parameters
        ----------
        request
            A request of this cache.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.
        """
        check_fence(fence)
        if not self._has_ended(request):
            self._lifecycle.end(request, "retracted", fence)

    @transaction
    def fork(self, request: Request, n: int, *, fence: Fence | None = None) -> Forked | None:
        """`n` more requests that share all tokens of `request`, which are taken as computed.

        They are published first (if they may be). Rows are aliased and nothing is copied, but with
        larger pages each fork gets its own copy of the part-filled last page.

        Parameters
        ----------
        request
            A request of this cache.
        n
            How many, 1 or more.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.

        Returns
        -------
        Forked | None
            The requests, and what K/V is to be copied; None: there is no room now, and nothing was
            taken.

        Raises
        ------
        RequestEndedError
            For a request that does not run.
        InvalidArgumentError
            For a value out of range.
        """
        self._check_running(request)
        check_fence(fence)
        return self._lifecycle.fork(request, at_least(1, n=n), fence)

    @transaction
    def rollback(
        self, request: Request, length: int, *, fence: Fence | None = None
    ) -> Copies | None:
        """Give back all tokens but the first `length`; the lock may get shorter.

        With larger pages, a part of a page that others may read becomes a copy first, which needs
        one page: None if there is no room, nothing taken. Otherwise what is to be copied, if
        anything is (see `Copies`).

        Parameters
        ----------
        request
            A request of this cache.
        length
            Tokens that stay, 0 to `request.length`.
        fence
            An object with `query()`, such as a CUDA event: freed slots wait until it is true.

        Returns
        -------
        Copies | None
            What K/V is to be copied; None: there is no room for the copy, and nothing was taken.

        Raises
        ------
        InvalidArgumentError
            For a value out of range.
        RequestEndedError
            For a request that does not run.
        """
        self._check_running(request)
        check_fence(fence)
        return self._lifecycle.rollback(request, between(0, request.length, length=length), fence)

    # ---- the whole cache ----

    def evict(self, num_tokens: int) -> int:
        """Tokens evicted: `num_tokens` rounded up to whole pages, or all that are evictable.

        What is within a reserve stays. In the middle of another call it is done after that, and the
        answer is 0.

        Parameters
        ----------
        num_tokens
            Tokens, 0 or more.

        Returns
        -------
        int
            Tokens.
        """
        return self._evict(at_least(0, num_tokens=num_tokens)) or 0

    @ending
    def _evict(self, num_tokens: int) -> int:
        return self.slots.evict(num_tokens)

    @transaction
    def evict_below(
        self, token_ids: TokenIds, namespace: Namespace = DEFAULT, *, content: Content = ()
    ) -> int:
        """Tokens evicted: all that continue `token_ids` and that no request and no pin holds.

        `token_ids` stay; without any, the whole namespace goes. 0 where they are not cached whole.
        Cost: O(nodes below).

        Parameters
        ----------
        token_ids
            (n,) int32, whole pages; none: the whole namespace.
        namespace
            What must be equal besides the tokens.
        content
            What placeholder tokens stand for: `ContentSpan`s, or (start, length, id: bytes).

        Returns
        -------
        int
            Tokens.

        Raises
        ------
        InvalidArgumentError
            For a part of a page.
        InvalidTokensError
            For token ids that are not (n,) integers from 0 to 2**31 - 1.
        InvalidContentError
            For spans that overlap, or lie outside the prompt.
        InvalidNamespaceError
            For what is not a `Namespace`.
        """
        check_namespace(namespace)
        return self.slots.evict_below(token_ids, self._weights.present(namespace), content)

    @transaction
    def set_weight_version(self, version: int) -> None:
        """The weights changed: what was admitted before is no longer matched nor published.

        Everything is forgotten as in a forced `reset`. The same version again changes nothing.

        Parameters
        ----------
        version
            A number from 0 on; 0 stands for the present weights.
        """
        served = Namespace(weight_version=version).weight_version  # checks it
        if served != self._weights.version:
            self._weights.version = served
            self._begin_epoch()

    @transaction
    def reset(self, force: bool = False) -> None:
        """Forget everything cached and begin a new epoch.

        Forced, they go on with the slots they have, which are freed when the last of their readers
        is done; they publish nothing any more.

        Parameters
        ----------
        force
            Also while requests live or pins are held.

        Raises
        ------
        LiveRequestsError
            While requests live or pins are held.
        """
        live, pins = len(self._lifecycle.live), self.loans.num_pins
        if not as_flag(force, "force") and (live or pins):
            held = f"{live} live requests" + (f" and {pins} pins" if pins else "")
            raise LiveRequestsError(
                f"without force, a cache must be free of requests and pins to reset it; got {held}",
                live_requests=live,
                pins=pins,
            )
        self._begin_epoch()

    def __repr__(self) -> str:
        with self.lock:
            return (
                f"<PrefixCache {self.core} slots={self.num_slots} page_size={self.page_size} "
                f"policy={self.tree.policy} cached={self.tree.total_size} "
                f"free={self.slots.ledger.free_size} requests={len(self._lifecycle.live)}>"
            )

    def _begin_epoch(self) -> None:
        pins = self.loans.valid_pins()
        kept = [pin.slots for pin in pins]
        self._lifecycle.forget(kept)
        for pin, slots in zip(pins, kept, strict=True):
            pin.void(slots)
        self.events.clear()

    def check_integrity(self) -> list[str]:
        """One line for each broken invariant, I1 to I7, on sets of slots. Walks everything.

        Of a cache that refuses its calls: its `violations`.

        Returns
        -------
        list[str]
            A line for each; empty when all is well.
        """
        with self.lock:
            if self.violations:
                return list(self.violations)
            return [line for lines in self.check_in_steps() for line in lines]

    def check_in_steps(self) -> Iterator[list[str]]:
        """`check_integrity` a slice at a time, between which the lock is free.

        What is sound is never reported, however the cache is used between two slices; what is
        broken from the first to the last is. A slice keeps the lock a millisecond or two, in the
        native core. Memory: a bit a slot, and at last what is resident once more.

        Returns
        -------
        Iterator[list[str]]
            What is broken, step by step.
        """
        slices = check_slices(self._view())
        while (lines := self._next_of(slices)) is not None:
            yield lines
        yield from self._check_replay()

    def _check_replay(self) -> Iterator[list[str]]:
        for snapshot in take_snapshot(self.lock, self.tree, self.events):
            yield []
            if snapshot is not None:
                yield from check_replay(snapshot, self.events)

    @transaction
    def _next_of(self, slices: Iterator[list[str]]) -> list[str] | None:
        return next(slices, None)

    def _broken_invariants(self) -> list[str]:
        slices = chain(check_slices(self._view()), self._check_replay())
        return [line for lines in slices for line in lines]

    def _view(self) -> CacheView:
        return CacheView(
            tree=self.tree,
            ledger=self.slots.ledger,
            req_to_token=self.req_to_token,
            live=self._lifecycle.live,
            loans=self.loans,
        )

    def why_full(self, num_tokens: int, namespace: Namespace = DEFAULT) -> str | None:
        """Why `admit` answers None to a prompt of which `num_tokens` are not cached, in words.

        Cost: O(num_slots).

        Parameters
        ----------
        num_tokens
            Tokens of the prompt that are not cached.
        namespace
            What must be equal besides the tokens.

        Returns
        -------
        str | None
            A sentence; None: there is room.

        Raises
        ------
        InvalidArgumentError
            For a value out of range.
        InvalidNamespaceError
            For what is not a `Namespace`.

        Examples
        --------
        >>> cache = PrefixCache(8, max_requests=1)
        >>> cache.why_full(8)
        >>> request = cache.admit([1, 2, 3, 4, 5])
        >>> cache.why_full(1)[:44]
        'max_requests must be above the live requests'
        """
        needed = round_up(at_least(0, num_tokens=num_tokens), self.page_size)
        check_namespace(namespace)
        with self.lock:
            room, free_rows = self.tree.room_for(namespace), self.req_to_token.free_size
            return shortage(needed, self._stats(), room, free_rows)

    def stats(self) -> CacheStats:
        """Sizes and counters at one moment, of a cache that refuses its calls too.

        Cost: O(num_slots).

        Returns
        -------
        CacheStats
            Sizes in slots and counters in tokens.
        """
        with self.lock:
            return self._stats()

    def _stats(self) -> CacheStats:
        tree, ledger = self.tree, self.slots.ledger
        return CacheStats(
            num_slots=self.num_slots,
            free=ledger.free_size,
            allocated=len(self._lifecycle.private_slots()) + self.loans.num_loaned,
            evictable=tree.evictable_size,
            protected=tree.protected_size,
            waiting=ledger.waiting_size + self.loans.aside_size,
            num_nodes=tree.num_nodes,
            live_requests=len(self._lifecycle.live),
            epoch=self.events.epoch,
            revision=self.events.revision,
            **asdict(self.totals),
        )

    def present(self, namespace: Namespace) -> Namespace:
        """The namespace as it is stored: weight version 0 stands for the present weights.

        Parameters
        ----------
        namespace
            What must be equal besides the tokens.

        Returns
        -------
        Namespace
            The same namespace, where its weights are not the present ones.
        """
        weights = self._weights
        return weights.present(namespace) if weights.is_present(namespace) else namespace

    # ---- arguments ----

    def _has_ended(self, request: Request) -> bool:
        if not isinstance(request, Request):
            raise InvalidArgumentError(
                f"request must be a Request; got {request!r} (admit gives None without room)"
            )
        if request.state != "running":
            return True
        if request.pool is not self.req_to_token:
            self._refuse_foreign(request)
        return False

    def _check_running(self, request: Request) -> None:
        is_ours = type(request) is Request and request.pool is self.req_to_token
        if not (is_ours and request.state == "running") and self._has_ended(request):
            raise RequestEndedError(
                f"request must be running; got request {request.id}, which is {request.state}",
                request=request.id,
            )

    def _refuse_foreign(self, request: Request, name: str = "request") -> NoReturn:
        raise InvalidArgumentError(
            f"{name} must be of this cache; got request {request.id} of another cache",
            request=request.id,
        )

    def _check_resumes(self, request: Request, namespace: Namespace) -> None:
        if not isinstance(request, Request):
            raise InvalidArgumentError(f"resume must be a retracted Request; got {request!r}")
        if request.pool is not self.req_to_token:
            self._refuse_foreign(request, "resume")
        if request.state != "retracted":
            raise RequestEndedError(
                f"resume must be a retracted Request; got request {request.id}, which is "
                f"{request.state}",
                request=request.id,
            )
        check_namespace(namespace)
        present = self._weights.present
        if namespace != DEFAULT and present(namespace) != present(request.namespace):
            raise InvalidNamespaceError(
                f"namespace must be that of the resumed request, {request.namespace}; "
                f"got {namespace}"
            )

    def _check_kept(
        self, request: Request, content: list[ContentSpan], store: bool, priority: int
    ) -> None:
        for name, given, default, kept in (
            ("content", tuple(content), (), request.content),
            ("store", store, True, request.store),
            ("priority", as_priority(priority), 0, request.priority),
        ):
            if given not in (default, kept):
                raise InvalidArgumentError(
                    f"{name} must be that of the resumed request, {kept}; got {given}",
                    request=request.id,
                )

    def _check_length(self, request: Request, length: int) -> None:
        if length > self._longest:
            self._refuse_length(length)
        if self._reserves:
            self._check_beside_reserves(length, request)

    def _check_beside_reserves(self, length: int, whose: Request | Namespace) -> None:
        """What the reserves of others would keep from it for good is refused at once."""
        namespace = whose.namespace if isinstance(whose, Request) else whose
        if not isinstance(namespace, Namespace):
            return  # refused for that
        others = sum(self._reserves.values()) - self._reserves.get(namespace.salt, 0)
        if length > self.num_slots - others:
            raise PromptTooLongError(
                f"a request must be of {self.num_slots - others} tokens or fewer (the pool has "
                f"{self.num_slots} slots, of which {others} are reserved for other namespaces); "
                f"got {length} tokens",
                length=length,
                most=self.num_slots - others,
                reserved=others,
            )

    def _refuse_length(self, length: int) -> NoReturn:
        if not length:
            raise InvalidArgumentError("token_ids must have one token or more; got none")
        raise PromptTooLongError(
            f"a request must be of {self._longest} tokens or fewer (the pool has {self.num_slots} "
            f"slots, max_context_len is {self.max_context_len}); got {length} tokens",
            length=length,
            most=self._longest,
        )
