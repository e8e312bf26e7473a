"""What the tests of PrefixCache share."""

from dataclasses import asdict
from typing import Any

import numpy as np

from radixkv import DEFAULT, Namespace, PrefixCache, Request


class Memory:
    """One number a slot instead of K and V."""

    def __init__(self, size: int) -> None:
        self.values = np.zeros(size, np.int64)

    def copy(self, source, target) -> None:
        self.values[target] = self.values[source]


def admit(cache: PrefixCache, token_ids, namespace: Namespace = DEFAULT, **how) -> Request:
    request = cache.admit(token_ids, namespace, **how)
    assert request is not None
    return request


def store(cache: PrefixCache, token_ids, namespace: Namespace = DEFAULT, **how) -> list[int]:
    """Cache a prompt as an engine does; the slots it is in."""
    request = admit(cache, token_ids, namespace, **how)
    cache.publish(request, request.length)
    slots: list[int] = request.slots.tolist()
    cache.finish(request, up_to=request.length)
    return slots


def in_pages(symbols, page_size: int) -> list[int]:
    """A prompt in which each symbol fills a page."""
    return [symbol for symbol in symbols for _ in range(page_size)]


def resident(cache: PrefixCache) -> dict[tuple, int]:
    """The slot of every cached prefix, whatever the nodes."""
    slots: dict[tuple, int] = {}
    path_of: dict[int, tuple] = {}
    for node in cache.tree.walk():
        path = path_of.get(node.parent_id, (node.namespace,))
        for code, slot in zip(node.codes.tolist(), node.slots.tolist(), strict=True):
            path = (*path, code)
            slots[path] = slot
        path_of[node.id] = path
    return slots


def picture(cache: PrefixCache) -> dict[str, Any]:
    """All that a caller can see of a cache, except recency and where nodes are split."""
    stats = asdict(cache.stats())
    del stats["num_nodes"]
    rows = {
        request.id: (request.table[: request.capacity].tolist(), request.token_ids.tolist())
        for request in cache.live_requests
    }
    free = cache.allocator.free_slots().tolist()
    return {"stats": stats, "rows": rows, "tree": resident(cache), "free": sorted(free)}
