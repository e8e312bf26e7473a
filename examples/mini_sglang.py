"""mini-sglang with our tree as its prefix cache: how an engine embeds one, in a page.

    import mini_sglang                       # registers "radixkv"
    python -m minisgl --model MODEL --cache-type radixkv

mini-sglang calls match_prefix, lock_handle and insert_prefix for each request, and evict where a
pool is full. A handle of ours goes with the slots of its tokens, which the engine reads back.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from minisgl.core import get_global_ctx
from minisgl.kvcache import (
    SUPPORTED_CACHE_MANAGER,
    BaseCacheHandle,
    BasePrefixCache,
    MatchResult,
    SizeInfo,
)
from minisgl.kvcache.base import InsertResult

from radixkv.tree import Handle, new_tree


@dataclass(frozen=True)
class PathHandle(BaseCacheHandle):
    """The first `cached_len` tokens of a prompt: their place in the tree, and their slots."""

    place: Handle
    slots: torch.Tensor

    def get_matched_indices(self) -> torch.Tensor:
        return self.slots


class RadixKVPrefixCache(BasePrefixCache):
    def __init__(self, device: torch.device) -> None:
        self.device, self.page_size = device, get_global_ctx().page_size
        self.tree = new_tree(self.page_size)

    def match_prefix(self, input_ids: torch.Tensor) -> MatchResult:
        found = self.tree.match_prefix(input_ids.numpy())
        return MatchResult(PathHandle(found.length, found.handle, self._on_device(found.slots)))

    def lock_handle(self, handle: PathHandle, unlock: bool = False) -> None:
        if handle.cached_len:
            (self.tree.dec_lock_ref if unlock else self.tree.inc_lock_ref)(handle.place)

    def insert_prefix(self, input_ids: torch.Tensor, indices: torch.Tensor) -> InsertResult:
        length = len(input_ids) // self.page_size * self.page_size
        slots = indices[:length].cpu().numpy()
        done = self.tree.insert(input_ids[:length].numpy(), slots)
        path = np.concatenate([done.slots, slots[done.prefix_length :]])
        handle = PathHandle(length, done.handle, self._on_device(path))
        return InsertResult(done.prefix_length, handle)

    def evict(self, size: int) -> torch.Tensor:
        if size > self.tree.evictable_size:
            raise RuntimeError(f"{size} tokens must be evictable; {self.tree.evictable_size} are")
        return self._on_device(self.tree.evict(size))

    def reset(self) -> None:
        self.tree.reset()

    @property
    def size_info(self) -> SizeInfo:
        return SizeInfo(self.tree.evictable_size, self.tree.protected_size)

    def check_integrity(self) -> None:
        broken = self.tree.check_integrity()
        if broken:
            raise RuntimeError("; ".join(broken))

    def _on_device(self, slots: Any) -> torch.Tensor:
        return torch.from_numpy(slots.astype(np.int32)).to(self.device)


SUPPORTED_CACHE_MANAGER.register("radixkv")(RadixKVPrefixCache)
