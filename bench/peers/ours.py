"""radixkv's own contenders."""

from typing import Any, ClassVar

import numpy as np

from bench.peers import workloads
from bench.peers.contender import Contender, Fused, Times, now
from radixkv import PrefixCache, new_tree
from radixkv.cache.factory import new_ledger
from radixkv.memory import new_allocator


class Native(Contender):
    """The native core and its allocator, by the calls of `RadixTree`."""

    native = "list, or int32 array"
    takes_lists = True
    core: ClassVar[str] = "native"

    def __init__(self, slots: int) -> None:
        self.tree = new_tree(core=self.core)
        self.slots = new_allocator(slots, core=self.core)

    def array_key(self, ids: Any) -> Any:
        return ids.astype(np.int32)

    def match(self, key: Any) -> tuple[Any, int, Any]:
        match = self.tree.match_prefix(key)
        return match.handle, match.length, match.slots

    def lock(self, place: Any) -> Any:
        self.tree.inc_lock_ref(place)
        return place

    def unlock(self, locked: Any) -> None:
        self.tree.dec_lock_ref(locked)

    def free_size(self) -> Any:
        return self.slots.free_size

    def allocate(self, n: int) -> Any:
        return self.slots.allocate(n)

    def join(self, matched: Any, fresh: Any) -> Any:
        return np.concatenate((matched, fresh))

    def insert(self, key: Any, slots: Any, matched: int) -> None:
        there = self.tree.insert(key, slots).prefix_length
        if there > matched:
            self.slots.free(slots[matched:there])

    def after_lock(self, matched: Any, fresh: Any) -> Any:
        return fresh

    def insert_locked(self, locked: Any, key: Any, slots: Any, matched: int) -> None:
        there = self.tree.insert(key, slots, after=locked).prefix_length
        if there > matched:
            self.slots.free(slots[: there - matched])

    def evict(self, n: int) -> None:
        self.slots.free(self.tree.evict(n))


class FusedNative(Native, Fused):
    """The native core by two calls that do a request's work: one to admit, one to publish."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.ledger = new_ledger(self.slots)
        self.row = np.zeros(workloads.LONG, np.int32)

    def admit(self, prompt: list[int], extra: int) -> tuple[Any, int]:
        key: Any = prompt  # which the native core reads as it is
        length, handle, _ = self.tree.admit(key, self.ledger, self.row, extra=extra)
        return handle, length

    def publish(self, admitted: Any, whole: list[int]) -> None:
        key: Any = whole
        self.tree.publish(key, self.ledger, self.row, held=admitted, unlock=True)


class Cache(Contender):
    """What an engine embeds: `PrefixCache`, which also keeps requests, rows, events and counts."""

    native = "list, or int32 array"
    works = ("w1", "w2", "w4")

    def __init__(self, slots: int) -> None:
        self.cache = PrefixCache(slots, max_context_len=workloads.LONG)

    def cycle(self, times: Times, prompt: list[int], output: list[int]) -> int:
        t = now()
        request = self.cache.admit(prompt)
        times.add("admit", now() - t)
        assert request is not None
        if output:
            t = now()
            self.cache.extend(request, output)
            times.add("extend", now() - t)
        t = now()
        self.cache.finish(request, up_to=request.length)
        times.add("finish", now() - t)
        times.end_request()
        return request.cached_len


class Python(Native):
    """The readable core."""

    core = "python"
    branches = 100_000
