"""Decode of requests that share a system prompt: their K/V of it is read once for all of them.

    python examples/gpu_decode.py          # needs a CUDA device

Rows of slots come from a `PrefixCache`, the K/V pool lies on the card, queries are random.
"""

import torch

from radixkv import PrefixCache
from radixkv.attention import AttentionBatch, get_backend
from radixkv.memory.kv_pool import MHATokenToKVPool

LAYERS, HEADS, KV_HEADS, DIM = 2, 32, 8, 128


def main(backend: str = "tree", device: str = "cuda", shared: int = 4096) -> None:
    dtype = torch.bfloat16
    cache = PrefixCache(num_slots=2 * shared)
    pool = MHATokenToKVPool(cache.num_slots, LAYERS, KV_HEADS, DIM, dtype, device)
    first = cache.admit(range(shared))
    assert first is not None
    cache.finish(first, up_to=shared)  # the system prompt
    running = [cache.admit([*range(shared), shared + at]) for at in range(16)]
    requests = [request for request in running if request is not None]

    attention = get_backend(backend, pool, q_heads=HEADS)
    rows = [request.slots for request in requests]
    versions = [request.row_version for request in requests]
    attention.plan(AttentionBatch(rows, [1] * len(rows), versions))
    q = torch.randn(len(rows), HEADS, DIM, dtype=dtype, device=device)
    k, v = (torch.randn(len(rows), KV_HEADS, DIM, dtype=dtype, device=device) for _ in "kv")
    for layer in range(LAYERS):
        attention.write(layer, k, v)
        output = attention.run(q, layer)
    explain = getattr(attention, "explain", lambda: f"{backend} on {device}")
    print(f"{tuple(output.shape)} of {len(rows)} rows over {shared} shared tokens: {explain()}")


if __name__ == "__main__":
    main()
