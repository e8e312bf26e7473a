"""Deep, wide and long: everything works, nothing recurses, no sums of squares where it matters."""

import sys

import numpy as np
import pytest

from radixkv.tree import format_tree
from tests.support.caches import admit, store

DEPTH = 6_000
LEAVES = 100_000
LONG = 1_000_000


def whole_life(cache, prompt) -> None:
    """Every call once, on top of what is cached of `prompt`."""
    length = len(prompt)
    request = admit(cache, prompt)
    assert request.cached_len == length - 1
    assert len(cache.extend(request, [1, 2])) == 2
    cache.publish(request, length + 1)
    fork = cache.fork(request, 1).requests[0]
    assert fork.slots.tolist() == request.slots.tolist()
    assert cache.rollback(fork, length // 2) is not None
    cache.retract(fork)
    assert admit(cache, prompt, resume=fork).cached_len == length - 1
    cache.abort(fork)
    cache.finish(request, up_to=request.length)
    assert cache.probe(prompt) == cache.match_prefix(prompt).length == length
    assert cache.probe_batch([prompt, prompt[: length // 2]]) == [length, length // 2]


@pytest.fixture
def deep(new_cache):
    """One path of 6,000 nodes: each admission locks, and so cuts, one token earlier."""
    cache = new_cache(2 * DEPTH)
    store(cache, range(DEPTH))
    for length in range(DEPTH - 1, 0, -1):
        cache.abort(admit(cache, range(length + 1)))
    assert cache.tree.num_nodes == DEPTH
    return cache


def test_a_path_of_6000_nodes(deep):
    assert sys.getrecursionlimit() < DEPTH
    whole_life(deep, range(DEPTH))
    assert deep.check_integrity() == []
    assert len(format_tree(deep.tree).splitlines()) > 200
    assert deep.evict(2 * DEPTH) == DEPTH + 2
    assert deep.free_size == 2 * DEPTH


def test_a_forced_reset_under_a_path_of_6000_nodes(deep):
    request = admit(deep, range(DEPTH))
    deep.reset(force=True)
    assert deep.check_integrity() == []
    deep.finish(request, up_to=request.length)
    assert deep.free_size == 2 * DEPTH


def test_chunks_of_one_token(new_cache, core):
    """Each chunk walks the path down, so n chunks cost n squared: fewer in the readable core."""
    depth = DEPTH if core == "native" else DEPTH // 3
    cache = new_cache(depth)
    request = admit(cache, range(depth))
    for up_to in range(1, depth + 1):
        cache.publish(request, up_to)
    assert cache.tree.num_nodes == depth
    assert cache.tree.protected_size == depth
    cache.finish(request, up_to=request.length)
    assert cache.evict(depth) == depth


def test_100_000_leaves(new_cache):
    cache = new_cache(2 * LEAVES, max_requests=4, max_context_len=100)
    for leaf in range(LEAVES):
        cache.finish(done := cache.admit([leaf % 1_000, leaf]), up_to=done.length)
    assert cache.tree.num_nodes == LEAVES + 1_000
    whole_life(cache, [77, 99_077])
    assert cache.check_integrity() == []
    assert cache.evict(10) == 10
    assert cache.probe_batch([[0, 0], [999, 99_999]]) == [1, 2], "the oldest leaves go first"
    assert cache.evict(LEAVES) == LEAVES
    cache.reset()
    assert cache.free_size == 2 * LEAVES


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_prompt_of_a_million_tokens(new_cache, page_size):
    cache = new_cache(LONG + 64, page_size=page_size, max_requests=4, max_context_len=LONG + 64)
    prompt = np.arange(LONG, dtype=np.int32)
    request = admit(cache, prompt)
    for up_to in range(0, LONG + 1, 100_000):
        cache.publish(request, up_to)
    cache.finish(request, up_to=request.length)
    assert cache.probe(prompt) == LONG
    request = admit(cache, prompt)
    assert request.cached_len == LONG - page_size
    assert cache.fork(request, 1) is not None
    assert cache.rollback(request, LONG // 2 + 3) is not None
    assert cache.check_integrity() == []
    cache.reset(force=True)
    assert cache.stats().waiting == LONG
    for each in cache.live_requests:
        cache.finish(each, up_to=each.length)
    assert cache.free_size == LONG + 64


def test_a_fork_of_a_long_prompt_that_may_not_publish(new_cache):
    cache = new_cache(LONG // 10, max_requests=4)
    request = admit(cache, range(LONG // 10), store=False)
    fork = cache.fork(request, 1).requests[0]
    assert cache.check_integrity() == []
    cache.finish(request, up_to=request.length)
    cache.finish(fork, up_to=fork.length)
    assert cache.free_size == LONG // 10
