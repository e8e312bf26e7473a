"""SGLang's trees, with its own allocator. Runs in the peers' environment."""

import sys
from array import array
from typing import Any, ClassVar

import numpy as np
import torch
import torch._dynamo  # before a stand-in for triton is there

from bench.peers import setup, stand_ins
from bench.peers.contender import Contender

torch.set_num_threads(1)

MISSING = ["triton", "transformers", "sgl_kernel", "flashinfer", "huggingface_hub", "IPython"]
UNUSED = [
    "layers", "configs", "model_executor", "distributed", "server_args", "arg_groups",
    "disaggregation.base", "disaggregation.utils", "managers",
]  # fmt: skip


def load() -> None:
    """Makes `sglang` importable without what it does not need here. Once."""
    if "sglang" not in sys.modules:
        stand_ins.where_missing(MISSING)
        stand_ins.instead_of(["sglang.kernels", *(f"sglang.srt.{name}" for name in UNUSED)])
        stand_ins.bare_package("sglang", setup.FOLDER / "sglang")


class SGLang(Contender):
    """What its trees share."""

    native = "array('q')"

    def __init__(self, slots: int) -> None:
        load()
        from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator

        self.pool = TokenToKVPoolAllocator(slots, torch.float16, "cpu", None, False)

    def key(self, ids: list[int]) -> Any:
        return array("q", ids)

    def extend_key(self, key: Any, output: list[int], whole: list[int]) -> Any:
        """As its scheduler keeps a request's ids: in one array, not made again at the end."""
        key.extend(output)
        return key

    def array_key(self, ids: Any) -> Any:
        return array("q", ids.astype(np.int64).tobytes())

    def free_size(self) -> int:
        size: int = self.pool.available_size()
        return size

    def allocate(self, n: int) -> Any:
        return self.pool.alloc(n)

    def join(self, matched: Any, fresh: Any) -> Any:
        return torch.cat((matched, fresh)) if len(matched) else fresh


class RadixCache(SGLang):
    """Its tree in Python."""

    branches = 100_000

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        from sglang.srt.mem_cache import base_prefix_cache
        from sglang.srt.mem_cache.radix_cache import RadixKey

        self.params, self.radix_key = base_prefix_cache, RadixKey
        self.cache = self.make()

    def make(self) -> Any:
        from sglang.srt.mem_cache.radix_cache import RadixCache

        return RadixCache(self.init_params())

    def init_params(self, **more: Any) -> Any:
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams

        return CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=self.pool,
            page_size=1,
            **more,
        )

    def match(self, key: Any) -> tuple[Any, int, Any]:
        found = self.cache.match_prefix(self.params.MatchPrefixParams(key=self.radix_key(key)))
        node = found.last_device_node
        return node, found.device_prefix_len, self.cache.path_device_indices(node)

    def lock(self, place: Any) -> Any:
        return self.cache.lock(place)

    def unlock(self, locked: Any) -> None:
        self.cache.unlock(locked)

    def insert(self, key: Any, slots: Any, matched: int) -> None:
        params = self.params.InsertParams(key=self.radix_key(key), value=slots)
        there = self.cache.insert(params).prefix_len
        if there > matched:
            self.pool.free(slots[matched:there])

    def evict(self, n: int) -> None:
        self.cache.evict(self.params.EvictParams(num_tokens=n))


class UnifiedRust(RadixCache):
    """Its default: the unified cache over a core in Rust, which frees duplicates by itself."""

    branches = 1_000_000
    core: ClassVar[tuple[str, str]] = ("rust", "RustUnifiedTreeCore")

    def make(self) -> Any:
        from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
        from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

        name, expected = self.core
        params = self.init_params(tree_components=(ComponentType.FULL,), tree_core_backend=name)
        cache = UnifiedRadixCache(params)
        assert type(cache.tree_core).__name__ == expected
        return cache

    def insert(self, key: Any, slots: Any, matched: int) -> None:
        params = self.params.InsertParams(
            key=self.radix_key(key), value=slots, prev_prefix_len=matched
        )
        self.cache.insert(params)


class RustFromLists(UnifiedRust):
    """The same with a new array for every call, for engines that have only lists."""

    def extend_key(self, key: Any, output: list[int], whole: list[int]) -> Any:
        return self.key(whole)


class UnifiedPython(UnifiedRust):
    """The unified cache over its core in Python."""

    branches = 100_000
    core = ("python", "UnifiedTreeCore")


class Cpp(SGLang):
    """The tree in C++ of 0.5.16, compiled here, driven as its RadixCacheCpp did."""

    native = "list"
    takes_lists = True

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        sys.path.insert(0, str(setup.FOLDER / "cpp_radix_tree"))
        from radix_tree import RadixTreeCpp

        self.tree = RadixTreeCpp(False, None, 1, 256)
        self.none = torch.empty((0,), dtype=torch.int64)

    def key(self, ids: list[int]) -> Any:
        return ids

    def array_key(self, ids: Any) -> Any:
        return ids.tolist()

    def own(self, slots: Any) -> Any:
        """Slots as the allocator gives them would keep its free list of that moment alive."""
        return slots.clone()

    def match(self, key: Any) -> tuple[Any, int, Any]:
        parts, _, node, _ = self.tree.match_prefix(key)
        slots = torch.cat(parts) if len(parts) > 1 else (parts[0] if parts else self.none)
        return node, len(slots), slots

    def lock(self, place: Any) -> Any:
        self.tree.lock_ref(place, True)
        return place

    def unlock(self, locked: Any) -> None:
        self.tree.lock_ref(locked, False)

    def insert(self, key: Any, slots: Any, matched: int) -> None:
        _, there = self.tree.writing_through(key, slots)
        if there > matched:
            self.pool.free(slots[matched:there])

    def evict(self, n: int) -> None:
        parts = self.tree.evict(n)
        if parts:
            self.pool.free(torch.cat(parts))
