"""SGLang's `BasePrefixCache` over our tree.

What SGLang calls a node is a handle of the tree here. A request's life is match_prefix, lock,
path_device_indices; then checkpoint, once for each chunk and once at its end; then unlock. See
SGLang's `mem_cache/base_prefix_cache.py` and `common.py`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import torch
from sglang.srt.mem_cache.base_prefix_cache import (
    BasePrefixCache,
    DecLockRefParams,
    DecLockRefResult,
    EvictParams,
    EvictResult,
    IncLockRefResult,
    MatchPrefixParams,
    MatchResult,
    TreeLock,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams

from radixkv.arrays import EMPTY
from radixkv.cache.stats import Totals
from radixkv.errors import CacheCorruptedError, InvalidTokensError
from radixkv.integrations.sglang.blocks import BlockEvents
from radixkv.integrations.sglang.keys import Keys
from radixkv.integrations.sglang.numbers import Inserted, SlotNumbers, slot_numbers
from radixkv.integrations.sglang.order import depth_first
from radixkv.pages import round_down
from radixkv.tree import Handle, RadixTree, new_tree
from radixkv.tree.radix_tree import Changes
from radixkv.tree.shares import NO_SHARES, Shares, check_fit
from radixkv.tree.show import format_tree

R = TypeVar("R")

# Makes what stands for slots, of a tree, their number and their device.
NewNumbers: TypeAlias = Callable[[RadixTree, int, Any], SlotNumbers]

# Our handles know what they lock.
_RECEIPT = DecLockRefParams()


class Follower(Protocol):
    """Who gets to know what became cached and what was evicted."""

    def append(self, changes: Changes) -> None:
        """What one call changed, in order."""

    def clear(self) -> None:
        """Everything was forgotten."""


class RadixKVCache(BasePrefixCache):  # type: ignore[misc]
    """A prefix cache for one scheduler of SGLang. Its calls are enqueued, and wait for nothing.

    numbers: makes what stands for slots in its tree, by default as their device wants it.
    shares: reserves and caps by salt, see `radixkv.tree.shares`. SGLang says for none of its
    evictions whom they are for, so what is within a reserve stays for its own tenant's, too.
    """

    disable = False

    def __init__(
        self,
        params: CacheInitParams,
        numbers: NewNumbers = slot_numbers,
        shares: Shares = NO_SHARES,
    ) -> None:
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.page_size: int = params.page_size
        self.is_eagle: bool = params.is_eagle
        self.tree = new_tree(self.page_size, params.eviction_policy.lower(), shares=shares)
        # The scheduler's one thread has it alone, unless a server answers beside it.
        self.tree_lock = threading.RLock()
        self.totals = Totals()
        self._keys = Keys(self.is_eagle, lambda: (node.codes for node in self.tree.walk()))
        allocator = self.token_to_kv_pool_allocator
        check_fit(shares, self.page_size, allocator.size)
        self._numbers = numbers(self.tree, allocator.size, allocator.device)
        self._followers: list[Follower] = []
        self._events = None
        if params.enable_kv_cache_events:
            self._events = BlockEvents(params, self._keys)
            self.follow(self._events)
        if params.enable_metrics:
            self.init_metrics_collector()
        self.root_node = self.tree.match_handle(EMPTY)

    def follow(self, follower: Follower) -> None:
        """Let `follower` know of all that changes from now on, on the scheduler's thread."""
        self.tree.track_changes()
        self._followers.append(follower)

    # ---- looking ----

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        """The longest cached prefix of a key, in whole pages."""
        key = params.key
        length = self._keys.length(len(key.token_ids) if key.limit is None else key.limit)
        namespace = self._keys.of_key(key, params.req)
        with self.tree_lock:
            node = self._read(self.tree.match_handle, key.token_ids, length, namespace)
            found = node.length
            if not found:
                node = self.root_node
        return MatchResult(found, node, node, node, full_kv_hit_length=found)

    def touch_prefix(self, key: Any) -> None:
        """Make a prefix recent."""
        self.match_prefix(MatchPrefixParams(key=key))

    def path_device_indices(self, node: Handle) -> torch.Tensor:
        """(length,) int64 on the device, new: the slots of the path."""
        with self.tree_lock:
            return self._numbers.path_slots(node)

    def dfs_weight_order(self, node_handles: Sequence[Handle]) -> list[int]:
        """See `depth_first`."""
        with self.tree_lock:
            return depth_first([self.tree.path_slots(node) for node in node_handles])

    # ---- the life of a request ----

    def lock(self, node: Handle) -> TreeLock:
        """Protect the tokens of a handle from eviction."""
        with self.tree_lock:
            self.tree.inc_lock_ref(node)
        return TreeLock(node, _RECEIPT)

    def unlock(self, lock: TreeLock | None) -> None:
        """Undo one `lock`."""
        if lock is not None:
            with self.tree_lock:
                self.tree.dec_lock_ref(lock.node)
                self._keep_caps()

    def inc_lock_ref(self, node: Handle) -> IncLockRefResult:
        """`lock` for those who keep the receipt themselves."""
        with self.tree_lock:
            before = self.tree.evictable_size
            self.tree.inc_lock_ref(node)
            return IncLockRefResult(delta=self.tree.evictable_size - before)

    def dec_lock_ref(
        self, node: Handle, params: DecLockRefParams | None = None
    ) -> DecLockRefResult:
        """Undo one `inc_lock_ref`."""
        with self.tree_lock:
            before = self.tree.evictable_size
            self.tree.dec_lock_ref(node)
            return DecLockRefResult(delta=self.tree.evictable_size - before)

    def checkpoint(self, req: Any, *, up_to: int, **_: Any) -> None:
        """Store the whole pages of the request's first `up_to` tokens, and move its lock there.

            row     [ tree's | own, already there  | own, new       | rest of a page ]
                    0      known           prefix_length          length          up_to
                             remapped, then freed    the tree's now   stays its own

        The caller frees what is behind `cache_protected_len`.
        """
        kv, lock = req.kv, req.lock
        held = self.root_node if lock is None else lock.node
        known = held.length
        assert known == kv.cache_protected_len, (known, kv.cache_protected_len)
        # Never back: what a stop or a stripped answer leaves behind is the tree's already.
        length = max(round_down(self._keys.length(up_to), self.page_size), known)
        row = self.req_to_token_pool.req_to_token[kv.req_pool_idx, known:length]
        with self.tree_lock:
            stored = self._read(
                self._numbers.insert, req.full_untruncated_fill_ids, length,
                row, self._keys.of_request(req), held if known else None,
                req.priority or 0, not req.finished(),
            )  # fmt: skip
            self._free_duplicates(row, stored, known)
            self.tree.inc_lock_ref(stored.handle)
            if lock is not None:
                self.tree.dec_lock_ref(held)
            self._record()
            self._keep_caps()
        req.lock, req.last_node = TreeLock(stored.handle, _RECEIPT), stored.handle
        self._count(req, known, length - stored.prefix_length)
        kv.cache_inserted_len = max(kv.cache_inserted_len, length)
        kv.cache_protected_len = length

    def _free_duplicates(self, row: torch.Tensor, stored: Inserted, known: int) -> None:
        """Point the row at the tree's slots for what was there, and free its own."""
        there = stored.prefix_length - known
        if there:
            duplicates = row[:there].to(torch.int64, copy=True)
            row[:there] = self._numbers.slots(stored.slots)
            self.token_to_kv_pool_allocator.free_segment(duplicates, start_pos=known)

    def free_kv_row(self, kv: Any, ranges: list[tuple[int, int]]) -> None:
        """Free what of these parts of the row is the request's: the tree's beginning never is."""
        own = ((max(start, kv.cache_protected_len), end) for start, end in ranges)
        super().free_kv_row(kv, [(start, end) for start, end in own if start < end])

    def evict(self, params: EvictParams) -> EvictResult:
        """Free `num_tokens` tokens (rounded up to whole pages), or all that are under no lock."""
        start = time.perf_counter()
        with self.tree_lock:
            slots = self._numbers.evict(params.num_tokens)
            self._free(slots)
        self.update_eviction_metrics(len(slots), start)
        return EvictResult(num_tokens_evicted=len(slots))

    def _free(self, slots: torch.Tensor) -> None:
        self.totals.evicted_tokens += len(slots)
        if len(slots):
            self.token_to_kv_pool_allocator.free_segment(slots, start_pos=0)
            self._record()

    def reset(self) -> None:
        """Forget everything; the caller clears the allocator and the rows itself."""
        with self.tree_lock:
            self.tree.reset()
            self._numbers.clear()
            self._keys.clear()
            for follower in self._followers:
                follower.clear()
            self.root_node = self.tree.match_handle(EMPTY)

    # ---- sizes, events, words ----

    def evictable_size(self) -> int:
        """Cached tokens under no lock, those within a reserve left out: what `evict` can free."""
        return self.tree.room_for()

    def protected_size(self) -> int:
        """The other cached tokens."""
        return self.tree.total_size - self.tree.room_for()

    def total_size(self) -> int:
        """Cached tokens."""
        return self.tree.total_size

    full_evictable_size = evictable_size
    full_protected_size = protected_size

    def take_events(self) -> list[object]:
        """What SGLang publishes, since the last call."""
        return [] if self._events is None else self._events.take()

    def all_values_flatten(self) -> torch.Tensor:
        """(total_size,) int64 on the device: the slots of all cached tokens."""
        with self.tree_lock:
            return self._numbers.slots(self.tree.all_slots())

    def sanity_check(self) -> None:
        """Raises CacheCorruptedError naming each broken invariant. Walks everything."""
        with self.tree_lock:
            broken = self.tree.check_integrity()
        if broken:
            raise CacheCorruptedError("; ".join(broken), violations=broken)

    def pretty_print(self) -> None:
        """The tree on stdout."""
        with self.tree_lock:
            print(format_tree(self.tree))

    # ---- within ----

    def _read(self, use: Callable[..., R], token_ids: Any, length: int, *args: Any) -> R:
        """`use(path, ...)` of a key; ids that only images have are numbered where there are any."""
        path = self._keys.path(token_ids, length)
        try:
            return use(path, *args)
        except InvalidTokensError:
            return use(self._keys.narrow(path), *args)

    def _keep_caps(self) -> None:
        if self.tree.shares:
            self._free(self._numbers.evict_beyond_caps())

    def _record(self) -> None:
        if self._followers:
            changes = self.tree.take_changes()
            for follower in self._followers:
                follower.append(changes)

    def _count(self, req: Any, known: int, stored: int) -> None:
        """Of a request's first checkpoint on what it found; `stored` tokens are new."""
        if not req.kv.cache_inserted_len:
            self.totals.lookup_tokens += len(req.origin_input_ids)
            self.totals.hit_tokens += min(known, len(req.origin_input_ids))
        self.totals.published_tokens += stored
