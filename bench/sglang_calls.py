"""The calls that SGLang's scheduler makes on its prefix cache in the life of a request.

    python -m bench.sglang_calls        in SGLang's environment: make bench-sglang

Three caches take the same requests in turn, each with pools of its own: ours, SGLang's Rust core
and its Python core. A request is: match, lock, slots of the prefix, evict for what is missing,
checkpoint after prefill, checkpoint at its end, unlock. What is not the cache (taking slots,
writing rows, freeing the last of them) is not timed. "radixkv" is ours as it runs on this CPU;
"radixkv tickets" as on a device, where slots are never read. Each of the two races alone, so that
neither finds its code and memory warm from the other. A figure is the median over all requests, in
microseconds.
"""

import argparse
import gc
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from rich.console import Console
from rich.table import Table

from bench.report import WIDTH, Claim, judge, kept_at, save

Samples: TypeAlias = dict[str, list[float]]

STEPS = ("match", "lock", "slots", "evict", "checkpoint", "final", "unlock")
OURS = ("radixkv", "radixkv tickets")
THEIRS = ("sglang rust", "sglang python")
MOST_OF_THEIRS = 0.33
SLOTS = {"chat": 2_000_000, "full": 60_000, "long": 120_000}
VOCABULARY = 50_000
ROW = 1


class Request(SimpleNamespace):
    """What a cache reads of SGLang's `Req`."""

    def finished(self) -> bool:
        return bool(self.done)


def new_request(ids: list[int]) -> Request:
    from sglang.srt.managers.schedule_batch import ReqKvInfo

    return Request(
        rid="r",
        origin_input_ids=array("q", ids),
        full_untruncated_fill_ids=array("q", ids),
        kv=ReqKvInfo(req_pool_idx=ROW),
        priority=0,
        prefix_len=0,
        done=False,
        lock=None,
        lora_id=None,
        extra_key=None,
        cache_salt=None,
        session=None,
        session_id=None,
        kv_rotation_base=None,
        skip_radix_cache_insert=False,
    )


def new_cache(kind: str, num_slots: int) -> Any:
    """A cache of that kind with pools of its own."""
    from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixCache
    from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
    from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

    from radixkv.integrations.sglang.cache import RadixKVCache
    from radixkv.integrations.sglang.numbers import HostSlots, TicketTable

    params = CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(8, 40_000, "cpu", False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(
            num_slots, torch.int64, "cpu", None, False
        ),
        page_size=1,
    )
    if kind in OURS:
        return RadixKVCache(params, HostSlots if kind == "radixkv" else TicketTable)
    if kind == "sglang python":
        return RadixCache(params)
    params.tree_components = (ComponentType.FULL,)
    return UnifiedRadixCache(params)


def serve(cache: Any, ids: list[int], answer: list[int], samples: Samples) -> int:
    """One request's life; how much of it was cached."""
    from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
    from sglang.srt.mem_cache.radix_cache import RadixKey

    req, allocator = new_request(ids), cache.token_to_kv_pool_allocator
    row = cache.req_to_token_pool.req_to_token[ROW]

    def timed(step: str, call: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = call()
        samples[step].append(time.perf_counter() - begun)
        return result

    key = RadixKey(req.origin_input_ids, None, limit=len(ids) - 1)
    found = timed("match", lambda: cache.match_prefix(MatchPrefixParams(key=key, req=req)))
    cached = req.prefix_len = req.kv.cache_protected_len = found.device_prefix_len
    req.last_node = found.last_device_node
    req.lock = timed("lock", lambda: cache.lock(req.last_node))
    path = timed("slots", lambda: cache.prefix_device_indices(req) if cached else None)
    missing = len(ids) - cached
    timed("evict", lambda: allocator.evict_to_free_tokens(cache, missing + len(answer)))
    if cached:
        row[:cached] = path
    row[cached : len(ids)] = allocator.alloc(missing)
    req.kv.kv_committed_len = req.kv.kv_allocated_len = req.extend_end = len(ids)
    timed("checkpoint", lambda: cache.checkpoint(req, up_to=len(ids)))
    row[len(ids) : len(ids) + len(answer)] = allocator.alloc(len(answer))
    req.full_untruncated_fill_ids.extend(answer)
    req.done = True
    # The K/V of the last token is never computed.
    end = len(ids) + len(answer)
    req.kv.kv_committed_len, req.kv.kv_allocated_len = end - 1, end
    timed("final", lambda: cache.checkpoint(req, up_to=end - 1))
    cache.free_kv_row(req.kv, [(req.kv.cache_protected_len, end)])
    timed("unlock", lambda: cache.unlock(req.lock))
    samples["whole"].append(sum(samples[step][-1] for step in STEPS))
    return int(cached)


def work(name: str) -> Iterator[tuple[list[int], list[int]]]:
    """(prompt, answer) of each request."""
    rng = random.Random(3)

    def tokens(n: int) -> list[int]:
        return rng.choices(range(VOCABULARY), k=n)

    if name == "chat":  # 480 turns of 1.7k to 5.5k tokens; nothing is evicted
        chats = [list(rng.choice([tokens(1500) for _ in range(4)])) for _ in range(60)]
        for _ in range(8):
            for chat in chats:
                chat += tokens(200)
                answer = tokens(300)
                yield list(chat), answer
                chat += answer
    elif name == "full":  # a pool that is full: each request evicts
        prefixes = [tokens(rng.randrange(200, 1500)) for _ in range(300)]
        weights = [1 / (i + 1) for i in range(300)]
        for _ in range(900):
            yield rng.choices(prefixes, weights)[0] + tokens(rng.randrange(200, 600)), tokens(40)
    else:  # a hit of 32,768 tokens
        document = tokens(32_768)
        for _ in range(120):
            yield document + tokens(16), tokens(8)


def race(name: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    """All kinds on the same requests, in turn; who is first changes from request to request."""
    caches = {kind: new_cache(kind, SLOTS[name]) for kind in kinds}
    samples: dict[str, Samples] = {kind: {step: [] for step in (*STEPS, "whole")} for kind in kinds}
    hits = dict.fromkeys(kinds, 0)
    gc.collect()
    for at, (ids, answer) in enumerate(work(name)):
        first = at % len(kinds)
        for kind in (*kinds[first:], *kinds[:first]):
            hits[kind] += serve(caches[kind], ids, answer, samples[kind])
    lost = {kind: lost_slots(cache, SLOTS[name]) for kind, cache in caches.items()}
    assert not any(lost.values()), lost
    figures = {
        kind: {step: statistics.median(times) * 1e6 for step, times in samples[kind].items()}
        for kind in kinds
    }
    return {"median us": figures, "hits": hits, "lost slots": lost}


def lost_slots(cache: Any, num_slots: int) -> int:
    """Slots that are neither free nor cached, now that no request runs."""
    free = cache.token_to_kv_pool_allocator.available_size()
    return int(num_slots - free - cache.evictable_size() - cache.protected_size())


def table(name: str, figures: dict[str, dict[str, float]]) -> Table:
    shown = Table("cache", title=f"{name}, us", title_justify="left")
    for step in (*STEPS, "whole"):
        shown.add_column(step, justify="right")
    for kind, steps in figures.items():
        shown.add_row(kind, *(f"{steps[step]:.1f}" for step in (*STEPS, "whole")))
    return shown


def claims(name: str, ours: str, found: dict[str, Any]) -> Iterator[Claim]:
    """At most a third of the time of either of their cores."""
    for theirs in THEIRS:
        times, other = (found["median us"][kind]["whole"] for kind in (ours, theirs))
        yield Claim(f"{name}: {ours} / {theirs}", times / other, "at most", MOST_OF_THEIRS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", default=",".join(SLOTS), help="which work, of chat,full,long")
    parser.add_argument("--out", help="where to write the figures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    console = Console(width=WIDTH)
    found: dict[str, dict[str, Any]] = {}
    for name in args.work.split(","):
        found[name] = {ours: race(name, (ours, *THEIRS)) for ours in OURS}
        for result in found[name].values():
            console.print(table(name, result["median us"]))
    save("sglang_calls", found, kept_at("sglang_calls", parser, args, "work"))
    judge(
        claim
        for name, results in found.items()
        for ours, result in results.items()
        for claim in claims(name, ours, result)
    )


if __name__ == "__main__":
    main()
