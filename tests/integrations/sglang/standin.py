"""The part of SGLang's interface that the plug-in uses, for machines without SGLang.

`install` puts it where `import sglang` finds it. The same tests run against SGLang itself in
`make host-sglang`, so that this cannot say something else than SGLang does.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from tests.support import sglang_attention
from tests.support.sglang_attention import put


@dataclass
class MatchPrefixParams:
    key: Any
    cow_mamba: bool = False
    req: Any = None


@dataclass
class EvictParams:
    num_tokens: int = 0


@dataclass
class EvictResult:
    num_tokens_evicted: int = 0


@dataclass
class DecLockRefParams:
    node_id: int | None = None


@dataclass
class IncLockRefResult:
    delta: int | None = None


@dataclass
class DecLockRefResult:
    delta: int | None = None


@dataclass
class TreeLock:
    node: Any
    receipt: DecLockRefParams


class MatchResult(NamedTuple):
    device_prefix_len: int
    last_device_node: Any
    last_host_node: Any
    best_match_node: Any
    host_hit_length: int = 0
    cache_protected_len: int | None = None
    full_kv_hit_length: int = 0


class BasePrefixCache(ABC):
    metrics_collector = None
    cache_controller = None

    def init_metrics_collector(self):
        self.metrics_collector = []

    def update_eviction_metrics(self, num_evicted, start_time):
        if self.metrics_collector is not None and num_evicted > 0:
            self.metrics_collector.append(num_evicted)

    @abstractmethod
    def reset(self): ...
    @abstractmethod
    def match_prefix(self, params): ...
    @abstractmethod
    def checkpoint(self, req, *, up_to, **kwargs): ...
    @abstractmethod
    def evict(self, params): ...
    @abstractmethod
    def inc_lock_ref(self, node): ...
    @abstractmethod
    def dec_lock_ref(self, node, params=None): ...

    # What the cache has all of its own; SGLang's defaults for it are never asked.
    touch_prefix = lock = unlock = path_device_indices = dfs_weight_order = take_events = None
    evictable_size = full_evictable_size = protected_size = full_protected_size = None
    total_size = None

    def evict_for_alloc(self, params):
        return self.evict(params)

    def root_node_handle(self, extra_key=None):
        return self.root_node

    def prefix_device_indices(self, req):
        return self.path_device_indices(req.last_node)[: req.prefix_len]

    def free_kv_row(self, kv, ranges):
        row = self.req_to_token_pool.req_to_token[kv.req_pool_idx]
        for start, end in ranges:
            self.token_to_kv_pool_allocator.free_segment(row[start:end], start_pos=start)

    def supports_prefix_sharing(self):
        return True

    def available_and_evictable_str(self):
        return f"{self.token_to_kv_pool_allocator.available_size()} + {self.evictable_size()}"


class RadixKey:
    __slots__ = ("cache_salt", "extra_key", "is_bigram", "limit", "token_ids")

    def __init__(self, token_ids, extra_key=None, is_bigram=False, limit=None, cache_salt=None):
        self.token_ids, self.extra_key, self.is_bigram = token_ids, extra_key, is_bigram
        self.limit, self.cache_salt = limit, cache_salt or None

    def __len__(self):
        return max(len(self.token_ids) - self.is_bigram, 0)

    def __getitem__(self, part):
        start, stop, _ = part.indices(len(self))
        ids = self.token_ids[start : stop + self.is_bigram] if stop > start else array("q")
        return RadixKey(ids, self.extra_key, self.is_bigram, cache_salt=self.cache_salt)


@dataclass
class CacheInitParams:
    disable: bool
    req_to_token_pool: Any
    token_to_kv_pool_allocator: Any
    page_size: int
    is_eagle: bool = False
    eviction_policy: str = "lru"
    eviction_policy_config: dict[str, Any] | None = None
    enable_metrics: bool = False
    enable_kv_cache_events: bool = False
    dynamo_kv_event_format: bool = False
    kv_event_lora_names: Any = field(default_factory=dict)
    pp_rank: int = 0
    attn_cp_rank: int = 0


class BlockStored:
    def __init__(self, block_hashes, parent_block_hash, token_ids, block_size, cache_salt):
        self.block_hashes, self.parent_block_hash = block_hashes, parent_block_hash
        self.token_ids, self.block_size, self.cache_salt = token_ids, block_size, cache_salt


class BlockRemoved:
    def __init__(self, block_hashes):
        self.block_hashes = block_hashes


class AllBlocksCleared: ...


class KVCacheEventRecorder:
    """Names a page by all tokens up to its end, where SGLang has a hash."""

    def __init__(self, *, enabled, page_size, dynamo_format=False, lora_names=None):
        self.page_size, self.queue = page_size, []

    def record_store(self, node):
        size, ids = self.page_size, list(node.key.token_ids)
        if node.key.is_bigram:
            ids = list(pairwise(ids))
        above = node.parent.hash_value[-1] if node.parent.hash_value else ()
        before = len(above)
        named = (*above, *ids)
        ends = range(before + size, len(named) + 1, size)
        node.hash_value = [named[:end] for end in ends]
        self.queue.append(
            BlockStored(node.hash_value, above or None, ids, size, node.key.cache_salt)
        )

    def record_remove(self, node):
        self.queue.append(BlockRemoved(node.hash_value))

    def record_all_cleared(self):
        self.queue.append(AllBlocksCleared())

    def take(self):
        taken, self.queue = self.queue, []
        return taken


class BaseTokenToKVPoolAllocator:
    def free_segment(self, free_index, *, start_pos): ...


class PagedTokenToKVPoolAllocator(BaseTokenToKVPoolAllocator):
    """Pages from 1 on, as page 0 is for what is padded."""

    def __init__(self, size, page_size, dtype, device, kvcache=None, need_sort=False):
        self.size, self.page_size, self.device = size, page_size, device
        self.clear()

    def clear(self):
        self.free_pages = list(range(1, self.size // self.page_size + 1))

    def available_size(self):
        return len(self.free_pages) * self.page_size

    def alloc(self, need_size):
        pages = [self.free_pages.pop(0) for _ in range(need_size // self.page_size)]
        return (
            torch.tensor(pages, dtype=torch.int64).reshape(-1, 1) * self.page_size
            + torch.arange(self.page_size)
        ).reshape(-1)

    def free_segment(self, free_index, *, start_pos):
        assert start_pos % self.page_size == 0
        pages = (free_index[:: self.page_size] // self.page_size).tolist()
        assert not set(pages) & set(self.free_pages), "freed twice"
        self.free_pages += pages


class ReqToTokenPool:
    def __init__(self, size, max_context_len, device, enable_memory_saver=False):
        self.req_to_token = torch.zeros(
            (size + 1, max_context_len), dtype=torch.int32, device=device
        )


@dataclass
class ReqKvInfo:
    req_pool_idx: int | None = None
    cache_protected_len: int = 0
    cache_inserted_len: int = 0


class Req:
    def finished(self): ...


@dataclass
class TreeCacheBuildContext:
    server_args: Any
    params: CacheInitParams
    is_hybrid_swa: bool
    is_hybrid_ssm: bool
    enable_hierarchical_cache: bool
    disable_radix_cache: bool
    tp_rank: int


def default_radix_cache_factory(ctx):
    return "SGLang's own"


def install() -> None:
    """Make it what `import sglang` finds, with nothing registered."""
    factories: dict[str, Callable[[Any], Any]] = {}
    choices = ["lru", "lfu", "slru", "priority", "tlru"]

    def register_radix_cache_backend(name, factory):
        assert name not in factories
        factories[name] = factory

    base = (
        MatchPrefixParams, MatchResult, EvictParams, EvictResult, IncLockRefResult,
        DecLockRefResult, DecLockRefParams, TreeLock, BasePrefixCache,
    )  # fmt: skip
    put("sglang.srt.mem_cache.base_prefix_cache", **{kind.__name__: kind for kind in base})
    put("sglang.srt.mem_cache.radix_cache", RadixKey=RadixKey)
    put("sglang.srt.mem_cache.cache_init_params", CacheInitParams=CacheInitParams)
    put("sglang.srt.mem_cache.events", KVCacheEventRecorder=KVCacheEventRecorder)
    put("sglang.srt.mem_cache.memory_pool", ReqToTokenPool=ReqToTokenPool)
    put(
        "sglang.srt.mem_cache.allocator",
        BaseTokenToKVPoolAllocator=BaseTokenToKVPoolAllocator,
        PagedTokenToKVPoolAllocator=PagedTokenToKVPoolAllocator,
    )
    put("sglang.srt.managers.schedule_batch", Req=Req, ReqKvInfo=ReqKvInfo)
    put(
        "sglang.srt.disaggregation.kv_events",
        BlockStored=BlockStored, BlockRemoved=BlockRemoved, AllBlocksCleared=AllBlocksCleared,
    )  # fmt: skip
    put(
        "sglang.srt.arg_groups.choices",
        RADIX_EVICTION_POLICY_CHOICES=choices,
        add_radix_eviction_policy_choices=choices.extend,
    )
    put(
        "sglang.srt.mem_cache.registry",
        TreeCacheBuildContext=TreeCacheBuildContext,
        default_radix_cache_factory=default_radix_cache_factory,
        get_radix_cache_factory=factories.get,
        register_radix_cache_backend=register_radix_cache_backend,
        registered_radix_cache_backends=lambda: list(factories),
    )
    sglang_attention.install()
