"""SGLang's own unit tests of its radix cache, retold: what they insert, a request stores here.

After `test/registered/unit/mem_cache/test_radix_cache_unit.py` of SGLang, class TestRadixCache. A
cache that is switched off is SGLang's own (`test_plugin.py`), and its tests of RadixKey and
TreeNode are about its own parts.
"""

from array import array
from types import SimpleNamespace

import pytest
import torch


class Held:
    """A cache without an engine: `put` stores slots that the test names."""

    def __init__(self, make, page_size=1, events=False):
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams

        self.freed = []
        allocator = SimpleNamespace(
            size=1000,
            device="cpu",
            page_size=page_size,
            available_size=lambda: 10,
            free_segment=lambda slots, start_pos: self.freed.extend(slots.tolist()),
        )
        self.row = torch.zeros((2, 64), dtype=torch.int32)
        self.cache = make(
            CacheInitParams(
                disable=False,
                req_to_token_pool=SimpleNamespace(
                    req_to_token=self.row, write=lambda at, slots: self.row.__setitem__(at, slots)
                ),
                token_to_kv_pool_allocator=allocator,
                page_size=page_size,
                enable_kv_cache_events=events,
            )
        )

    def put(self, ids, slots=None, extra_key=None):
        """A request computes and stores `ids`."""
        from tests.integrations.sglang.scheduler import Req

        req = Req(ids, extra_key=extra_key)
        req.kv.req_pool_idx, req.is_finished = 1, True
        self.row[1, : len(ids)] = torch.tensor(list(ids) if slots is None else slots)
        self.cache.checkpoint(req, up_to=len(ids))
        self.cache.unlock(req.lock)

    def match(self, ids, extra_key=None):
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        found = self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", ids), extra_key)))
        slots = self.cache.path_device_indices(found.last_device_node)
        assert len(slots) == found.device_prefix_len
        return slots.tolist()

    def node(self, ids):
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        key = RadixKey(array("q", ids))
        return self.cache.match_prefix(MatchPrefixParams(key=key)).last_device_node


def radixkv(params):
    from radixkv.integrations.sglang.cache import RadixKVCache

    return RadixKVCache(params)


def sizes(cache):
    return cache.total_size(), cache.evictable_size(), cache.protected_size()


@pytest.mark.parametrize(("page_size", "events"), [(1, False), (4, True)])
def test_init_variations(page_size, events):
    cache = Held(radixkv, page_size, events).cache
    assert (cache.page_size, cache.disable) == (page_size, False)
    assert cache.root_node is cache.root_node_handle() is not None


def test_reset():
    held = Held(radixkv)
    held.put([1, 2, 3], [10, 20, 30])
    assert held.cache.total_size() > 0
    held.cache.reset()
    assert sizes(held.cache) == (0, 0, 0)


def test_insert_and_match_basic():
    held = Held(radixkv)
    held.put([1, 2, 3], [10, 20, 30])
    assert sizes(held.cache) == (3, 3, 0)
    assert held.match([1, 2, 3]) == [10, 20, 30]
    assert held.match([1, 2]) == [10, 20]
    assert held.match([]) == []


def test_total_size():
    held = Held(radixkv)
    assert held.cache.total_size() == 0
    held.put([1, 2, 3], [10, 20, 30])
    assert held.cache.total_size() == 3
    held.put([4, 5], [40, 50])
    assert held.cache.total_size() == 5


@pytest.mark.parametrize(("page_size", "on"), [(1, True), (2, True), (1, False)])
def test_kv_cache_events(page_size, on):
    from sglang.srt.disaggregation.kv_events import BlockStored

    held = Held(radixkv, page_size, on)
    held.put([1, 2, 3, 4, 5])
    events = held.cache.take_events()
    stored = [event for event in events if isinstance(event, BlockStored)]
    assert bool(stored) == on
    assert on or events == []
    for event in stored:
        assert event.block_size == page_size
        assert len(event.token_ids) == page_size * len(event.block_hashes)


def test_kv_cache_events_with_eviction():
    from sglang.srt.disaggregation.kv_events import BlockRemoved, BlockStored
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams, EvictResult

    held = Held(radixkv, events=True)
    held.put([1, 2, 3], [10, 20, 30])
    result = held.cache.evict(EvictParams(num_tokens=3))
    assert isinstance(result, EvictResult)
    assert result.num_tokens_evicted == 3
    events = held.cache.take_events()
    stored = [h for e in events if isinstance(e, BlockStored) for h in e.block_hashes]
    removed = [h for e in events if isinstance(e, BlockRemoved) for h in e.block_hashes]
    assert sorted(stored) == sorted(removed) != []


def test_extra_key_isolation():
    held = Held(radixkv)
    held.put([1, 2, 3], [10, 20, 30], "key1")
    held.put([1, 2, 3], [40, 50, 60], "key2")
    held.put([1, 2, 3], [70, 80, 90])
    assert held.match([1, 2, 3], "key1") == [10, 20, 30]
    assert held.match([1, 2, 3], "key2") == [40, 50, 60]
    assert held.match([1, 2, 3]) == [70, 80, 90]
    assert held.match([1, 2, 3], "nonexistent") == []


def test_lock_ref_operations():
    held = Held(radixkv)
    held.put([1, 2, 3], [10, 20, 30])
    node = held.node([1, 2, 3])
    assert held.cache.inc_lock_ref(node).delta == -3
    assert sizes(held.cache) == (3, 0, 3)
    assert held.cache.dec_lock_ref(node).delta == 3
    assert sizes(held.cache) == (3, 3, 0)


def test_lock_and_unlock_of_a_part_and_of_the_root():
    held = Held(radixkv)
    held.put([1, 2, 3], [10, 20, 30])
    part, root = held.cache.lock(held.node([1, 2])), held.cache.lock(held.cache.root_node)
    assert sizes(held.cache) == (3, 1, 2)
    for lock in (part, root, None):
        held.cache.unlock(lock)
    assert sizes(held.cache) == (3, 3, 0)


def test_evict_functionality():
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    held = Held(radixkv)
    held.put([1, 2], [10, 20])
    held.put([3, 4], [30, 40])
    assert held.cache.evict(EvictParams(num_tokens=2)).num_tokens_evicted == 2
    assert held.freed == [10, 20]
    assert held.cache.total_size() == 2


@pytest.mark.parametrize(("page_size", "n"), [(1, 5), (2, 5), (4, 6)])
def test_page_alignment_boundary(page_size, n):
    held = Held(radixkv, page_size)
    held.put(range(n))
    assert held.match(range(n)) == list(range(n // page_size * page_size))


def test_pretty_print_basic(capsys):
    held = Held(radixkv)
    held.put([1, 2, 3], [10, 20, 30])
    held.cache.pretty_print()
    assert "[1 2 3] x3" in capsys.readouterr().out


def test_all_values_flatten():
    held = Held(radixkv)
    held.put([1, 2], [10, 20])
    held.put([3, 4], [30, 40])
    assert sorted(held.cache.all_values_flatten().tolist()) == [10, 20, 30, 40]


@pytest.mark.parametrize("page_size", [1, 2])
def test_advanced_prefix_match_with_node_splits(page_size):
    held = Held(radixkv, page_size)
    one, other = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 10]
    held.put(one, [10 * x for x in one])
    held.put(other, [10 * x for x in other])
    assert held.cache.total_size() == 10
    assert held.match([1, 2, 3, 4, 999, 1000]) == [10, 20, 30, 40]
    assert held.match(one) == [10 * x for x in one]
    assert held.match([1, 2, 3, 4, 5, 6, 777, 888]) == [10 * x for x in one[:6]]
    assert held.match(other) == [10, 20, 90, 100]
    assert held.cache.total_size() == 10
    held.cache.sanity_check()


def test_hash_value_repeating_tokens():
    from sglang.srt.disaggregation.kv_events import BlockStored

    held = Held(radixkv, 4, events=True)
    held.put([1, 2, 3, 4, 1, 2, 3, 4])
    stored = [event for event in held.cache.take_events() if isinstance(event, BlockStored)]
    first, second = (name for event in stored for name in event.block_hashes)
    assert first != second
    assert stored[0].parent_block_hash is None


def test_available_and_evictable_str():
    assert "10" in Held(radixkv).cache.available_and_evictable_str()


@pytest.mark.parametrize("dynamo_format", [False, True])
@pytest.mark.parametrize("is_eagle", [False, True])
@pytest.mark.parametrize("page_size", [1, 2])
def test_blocks_have_the_names_that_sglang_gives_them(
    real_sglang, scheduler, page_size, is_eagle, dynamo_format
):
    """The same requests to SGLang's cache and to ours: the same blocks, parents and tokens."""
    if not real_sglang:
        pytest.skip("needs SGLang: make host-sglang")
    from sglang.srt.disaggregation.kv_events import BlockStored
    from sglang.srt.mem_cache.radix_cache import RadixCache

    from tests.integrations.sglang.tenants import SPACES

    def stored(make):
        host = scheduler(
            make=make,
            page_size=page_size,
            is_eagle=is_eagle,
            enable_kv_cache_events=True,
            dynamo_kv_event_format=dynamo_format,
        )
        for space in SPACES:
            for ids in ([1, 2, 3, 4, 5, 6], [1, 2, 9, 10], [1, 2, 3, 4, 7, 8, 9, 9]):
                host.run(ids, **space)
        events = host.cache.take_events()
        return [
            (e.block_hashes, e.parent_block_hash, list(e.token_ids), e.block_size, e.medium,
             e.cache_salt, e.lora_name)
            for e in events
            if isinstance(e, BlockStored)
        ]  # fmt: skip

    assert stored(None) == stored(RadixCache)
    assert len(stored(None)) > 10
