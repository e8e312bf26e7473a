"""What a contender can do, and the timed loops over it."""

import ctypes
import gc
import statistics
import time
from typing import Any

import numpy as np

from bench.peers import workloads

now = time.perf_counter_ns


class Times:
    """Nanoseconds by operation, and of whole requests with and without the way from a list."""

    def __init__(self) -> None:
        self.by_op: dict[str, list[int]] = {}
        self.from_list: list[int] = []
        self.native: list[int] = []
        self._all = self._own = 0

    def add(self, op: str, took: int) -> None:
        self.by_op.setdefault(op, []).append(took)
        self._all += took
        self._own += 0 if op == "convert" else took

    def end_request(self) -> None:
        self.from_list.append(self._all)
        self.native.append(self._own)
        self._all = self._own = 0

    def medians(self) -> dict[str, float]:
        """Microseconds."""
        named = {**self.by_op, "cycle from list": self.from_list, "cycle": self.native}
        return {op: statistics.median(ns) / 1e3 for op, ns in named.items() if ns}


class Contender:
    """A prefix cache with its own allocator behind the calls of a scheduler."""

    native: str  # the input it likes best
    works: tuple[str, ...] = ("w1", "w2", "w3", "w4", "w4b", "w5", "w5b")  # what it can do
    takes_lists = False  # as they are
    page = 1

    def __init__(self, slots: int) -> None:
        raise NotImplementedError

    def key(self, ids: list[int]) -> Any:
        """Its own input made of a list; not asked of one that takes lists."""
        return ids

    def extend_key(self, key: Any, output: list[int], whole: list[int]) -> Any:
        """The input for a prompt and its output; `key` is the prompt's, and of no use after it."""
        return self.key(whole)

    def array_key(self, ids: "np.ndarray[Any, Any]") -> Any:
        """Its own input made of an array, not timed."""
        return self.key(ids.tolist())

    def match(self, key: Any) -> tuple[Any, int, Any]:
        """A place to lock, the tokens matched and their slots, flat."""
        raise NotImplementedError

    def lock(self, place: Any) -> Any:
        """What `unlock` takes."""
        raise NotImplementedError

    def unlock(self, locked: Any) -> None:
        raise NotImplementedError

    def own(self, slots: Any) -> Any:
        """Allocated slots as it can keep them at the least memory."""
        return slots

    def free_size(self) -> int:
        raise NotImplementedError

    def allocate(self, n: int) -> Any:
        raise NotImplementedError

    def join(self, matched: Any, fresh: Any) -> Any:
        """The slots of a whole request; not timed."""
        raise NotImplementedError

    def insert(self, key: Any, slots: Any, matched: int) -> None:
        """Stores, and frees the request's duplicates."""
        raise NotImplementedError

    def after_lock(self, matched: Any, fresh: Any) -> Any:
        """The slots that `insert_locked` takes; not timed."""
        return self.join(matched, fresh)

    def insert_locked(self, locked: Any, key: Any, slots: Any, matched: int) -> None:
        """`insert` of what begins with `matched` tokens that are locked."""
        self.insert(key, slots, matched)

    def evict(self, n: int) -> None:
        """`n` tokens back to the allocator."""
        raise NotImplementedError

    def cycle(self, times: Times, prompt: list[int], output: list[int]) -> int:
        """match, lock, (evict,) allocate, insert, unlock; returns the tokens matched."""
        key = prompt if self.takes_lists else converted(self, times, prompt)
        t = now()
        place, matched, slots = self.match(key)
        times.add("match", now() - t)
        t = now()
        locked = self.lock(place)
        times.add("lock", now() - t)
        whole = prompt + output if output else prompt
        fresh = take(self, times, len(whole) - matched)
        if self.takes_lists:
            key = whole
        elif output:
            t = now()
            key = self.extend_key(key, output, whole)
            times.add("convert", now() - t)
        slots = self.after_lock(slots, fresh)
        t = now()
        self.insert_locked(locked, key, slots, matched)
        times.add("insert", now() - t)
        t = now()
        self.unlock(locked)
        times.add("unlock", now() - t)
        times.end_request()
        return matched


class Fused(Contender):
    """One that does a whole request's work in two calls of its own."""

    def cycle(self, times: Times, prompt: list[int], output: list[int]) -> int:
        t = now()
        admitted, matched = self.admit(prompt, len(output))
        times.add("admit", now() - t)
        whole = prompt + output if output else prompt
        t = now()
        self.publish(admitted, whole)
        times.add("publish", now() - t)
        times.end_request()
        return matched

    def admit(self, prompt: list[int], extra: int) -> tuple[Any, int]:
        """match, lock, evict, allocate for the prompt and `extra` tokens; tokens matched."""
        raise NotImplementedError

    def publish(self, admitted: Any, whole: list[int]) -> None:
        """insert, free the duplicates, unlock."""
        raise NotImplementedError


def converted(cache: Contender, times: Times, prompt: list[int]) -> Any:
    t = now()
    key = cache.key(prompt)
    times.add("convert", now() - t)
    return key


def take(cache: Contender, times: Times, needed: int) -> Any:
    """evict where that takes it, and allocate."""
    while cache.free_size() < needed:
        t = now()
        cache.evict(needed - cache.free_size())
        times.add("evict", now() - t)
    t = now()
    fresh = cache.allocate(needed)
    times.add("allocate", now() - t)
    return fresh


def run_stream(make: type[Contender], work: str, most_s: float) -> dict[str, Any]:
    """A whole stream, or as much of it as fits in `most_s`."""
    cache, times = make(workloads.STREAMS[work].slots), Times()
    hit = total = 0
    end = time.monotonic() + most_s
    for prompt, output in workloads.turns(work):
        hit += cache.cycle(times, prompt, output)
        total += len(prompt)
        if time.monotonic() > end:
            break
    return {
        **times.medians(),
        "mean cycle from list": statistics.fmean(times.from_list) / 1e3,
        "requests": len(times.native),
        "hit rate": hit / total,
    }


def run_long(make: type[Contender], work: str, most_s: float) -> dict[str, Any]:
    """w3: a long hit, from a list and from the contender's own input."""
    cache, times = make(workloads.LONG + 64), Times()
    ids, endings = workloads.long_prompt()
    cache.insert(cache.key(ids), cache.allocate(len(ids)), 0)
    end = time.monotonic() + most_s
    for ending in endings:
        ids[-16:] = ending
        t = now()
        key = cache.key(ids)
        times.add("convert", now() - t)
        t = now()
        _, matched, slots = cache.match(key)
        times.add("match", now() - t)
        times.end_request()
        assert len(ids) - 16 <= matched < len(ids)
        assert len(slots) == matched
        if time.monotonic() > end:
            break
    own, medians = cache.array_key(np.array(ids)), times.medians()
    return {
        "from list": medians["cycle from list"],
        "native": _match_again(cache, own),
        "convert": medians["convert"],
    }


def _match_again(cache: Contender, key: Any) -> float:
    """Microseconds for the same key, over and over."""
    times = Times()
    for _ in range(400):
        t = now()
        cache.match(key)
        times.add("match", now() - t)
    return times.medians()["match"]


def run_evict_one(make: type[Contender], work: str, most_s: float) -> dict[str, Any]:
    """w4b: one call for one token, by leaves cached."""
    result = {}
    for leaves in workloads.LEAVES:
        cache, times = make(leaves * 4), Times()
        ids = np.arange(leaves * 4).reshape(leaves, 4)
        for row in ids:
            cache.insert(cache.array_key(row), cache.allocate(4), 0)
        end = time.monotonic() + most_s / 3
        for _ in range(100):
            t = now()
            cache.evict(1)
            times.add("evict", now() - t)
            if time.monotonic() > end:
                break
        result[f"{leaves} leaves"] = times.medians()["evict"]
    return result


def resident() -> int:
    """Bytes, after all that can be given back was."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def run_memory(make: type[Contender], work: str, most_s: float) -> dict[str, Any]:
    """w5: bytes a token in 10,000 sequences of 500. In a process of its own."""
    cache = make(5_000_100)
    beginning = cache.allocate(0)  # keeps a free list of before: it is not the tree's to give back
    before = resident()
    for ids in workloads.sequences(10_000, 500):
        cache.insert(cache.array_key(ids), cache.own(cache.allocate(500)), 0)
    grown = resident() - before
    del beginning
    return {"bytes per token": grown / 5_000_000}


def run_branches(make: type[Contender], work: str, most_s: float, count: int = 0) -> dict[str, Any]:
    """w5b: bytes a branch of 4 tokens under one root. In a process of its own."""
    count = count or getattr(make, "branches", 1_000_000)
    cache = make(4 * count + 100)
    shared = workloads.branch(0)[:8]
    cache.insert(cache.key(shared), cache.allocate(8), 0)
    slots = cache.match(cache.key([*shared, 7]))[2]
    before = resident()
    for i in range(count):
        cache.insert(cache.key(workloads.branch(i)), cache.join(slots, cache.allocate(4)), 8)
    return {"bytes per branch": (resident() - before) / count, "branches": count}


RUNS = {
    "w1": run_stream,
    "w2": run_stream,
    "w4": run_stream,
    "w3": run_long,
    "w4b": run_evict_one,
    "w5": run_memory,
    "w5b": run_branches,
}
