"""vLLM's KVCacheManager, one full-attention group, blocks of 16 hashed by sha256."""

import sys
import time
import types
from typing import Any

import torch
import torch._dynamo  # before a stand-in for triton is there

from bench.peers import setup, stand_ins, workloads
from bench.peers.contender import Times, now

torch.set_num_threads(1)
BLOCK = 16
MISSING = [
    "triton", "transformers", "huggingface_hub", "zmq", "cpuinfo", "openai", "fastapi",
]  # fmt: skip
UNUSED = [
    "config", "multimodal", "sampling_params", "pooling_params", "v1.structured_output",
    "v1.engine", "model_executor", "platforms", "distributed.parallel_state", "compilation",
    "forward_context", "usage",
]  # fmt: skip


def load() -> None:
    if "vllm" not in sys.modules:
        stand_ins.where_missing(MISSING)
        for name in ("vllm", "vllm.distributed"):
            stand_ins.bare_package(name, setup.FOLDER / "vllm")
        sys.path.insert(0, str(setup.FOLDER / "vllm"))
        stand_ins.instead_of([f"vllm.{name}" for name in UNUSED])


class Vllm:
    """Its cycle is its own: eviction is part of the allocation, and the only unlock is `free`."""

    native = "Request, hashed"

    def __init__(self, slots: int) -> None:
        load()
        from vllm.utils import hashing
        from vllm.v1.core import kv_cache_manager, kv_cache_utils
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

        kv_cache_utils.init_none_hash(hashing.sha256)
        self.hasher = kv_cache_utils.get_request_block_hasher(BLOCK, hashing.sha256)
        nothing = types.SimpleNamespace(from_sampling_params=lambda _: None)
        sys.modules["vllm.v1.request"].StructuredOutputRequest = nothing  # type: ignore[attr-defined]
        self.request_type, self.count = Request, 0
        self.sampling = types.SimpleNamespace(
            max_tokens=1, extra_args=None, skip_reading_prefix_cache=None, prompt_logprobs=None
        )
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float16)
        config = KVCacheConfig(
            num_blocks=slots // BLOCK + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        )
        self.manager = kv_cache_manager.KVCacheManager(
            config, max_model_len=1 << 20, scheduler_block_size=BLOCK, hash_block_size=BLOCK
        )

    def key(self, ids: list[int]) -> Any:
        """A request; its constructor hashes every full block."""
        self.count += 1
        return self.request_type(
            str(self.count), ids, self.sampling, None, arrival_time=0.0, block_hasher=self.hasher
        )

    def allocate(self, request: Any, n: int, *found: Any) -> None:
        assert self.manager.allocate_slots(request, n, *found) is not None

    def cycle(self, times: Times, prompt: list[int], output: list[int]) -> Any:
        t = now()
        request = self.key(list(prompt))
        times.add("convert", now() - t)
        t = now()
        blocks, matched, _ = self.manager.get_computed_blocks(request)
        times.add("match", now() - t)
        t = now()
        self.allocate(request, len(prompt) - matched, matched, blocks)
        times.add("insert", now() - t)
        request.num_computed_tokens = len(prompt)
        if output:
            t = now()
            request.append_output_token_ids(output)
            times.add("convert", now() - t)
            t = now()
            self.allocate(request, len(output))
            times.add("insert", now() - t)
            request.num_computed_tokens += len(output)
        t = now()
        self.manager.free(request)
        times.add("unlock", now() - t)
        times.end_request()
        return matched


def run(work: str, most_s: float) -> dict[str, Any]:
    """A workload; nothing for branches, which are smaller than its blocks."""
    if work in workloads.STREAMS:
        return _stream(work, most_s)
    runs = {"w3": _long, "w4b": _evict_one}
    return runs[work](most_s) if work in runs else {}


def _stream(work: str, most_s: float) -> dict[str, Any]:
    cache, times = Vllm(workloads.STREAMS[work].slots), Times()
    hit = total = 0
    end = time.monotonic() + most_s
    for prompt, output in workloads.turns(work):
        hit += cache.cycle(times, prompt, output)
        total += len(prompt)
        if time.monotonic() > end:
            break
    return {**times.medians(), "requests": len(times.native), "hit rate": hit / total}


def _long(most_s: float) -> dict[str, Any]:
    cache, times = Vllm(100_000), Times()
    ids, endings = workloads.long_prompt()
    cache.cycle(Times(), ids, [])
    end = time.monotonic() + most_s
    for ending in endings:
        ids[-16:] = ending
        t = now()
        request = cache.key(list(ids))
        times.add("convert", now() - t)
        t = now()
        found = cache.manager.get_computed_blocks(request)[1]
        times.add("match", now() - t)
        times.end_request()
        assert found == workloads.LONG - 16
        if time.monotonic() > end:
            break
    medians = times.medians()
    return {"from list": medians["cycle from list"], "native": medians["match"]}


def _evict_one(most_s: float) -> dict[str, Any]:
    """One block of a pool that is full of cached ones."""
    result = {}
    for blocks in workloads.LEAVES:
        cache, times = Vllm(blocks * BLOCK), Times()
        pool = cache.manager.block_pool
        for i in range(pool.get_num_free_blocks()):
            request = cache.key(list(range(i * BLOCK, i * BLOCK + BLOCK + 1)))
            cache.allocate(request, BLOCK)
            cache.manager.free(request)
        for _ in range(100):
            t = now()
            taken = pool.get_new_blocks(1)
            times.add("evict", now() - t)
            pool.free_blocks(taken)
        result[f"{blocks} leaves"] = times.medians()["evict"]
    return result
