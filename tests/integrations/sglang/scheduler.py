"""What SGLang's scheduler does with its prefix cache, and a memory that shows wrong slots.

Each slot of the pool remembers for which tokens it was computed. What a request matches must have
been computed for just its tokens; and at any time every slot is free, cached, or one request's.
"""

from array import array

import torch
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey

MAX_REQUESTS, MAX_TOKENS = 8, 4096


class Req:
    """What the cache reads of a request of SGLang's."""

    def __init__(
        self, ids, *, extra_key=None, lora_id=None, cache_salt=None, priority=None, chunk=None
    ):
        self.origin_input_ids = array("q", ids)
        self.full_untruncated_fill_ids = array("q", ids)
        self.lora_id, self.cache_salt, self.priority = lora_id, cache_salt, priority
        self.extra_key = extra_key if lora_id is None else (extra_key or "") + lora_id
        self.kv, self.lock, self.last_node, self.prefix_len = ReqKvInfo(), None, None, 0
        self.is_finished, self.chunk = False, chunk
        self.session_id = self.session = None
        self.skip_radix_cache_insert = False

    def finished(self):
        return self.is_finished

    @property
    def space(self):
        return self.cache_salt, self.extra_key, self.lora_id


class CountingAllocator:
    """On a device it only counts slots."""

    def __init__(self, size, device):
        self.size, self.device, self.page_size, self.free = size, device, 1, size

    def available_size(self):
        return self.free

    def alloc(self, need_size):
        self.free -= need_size
        return torch.empty(need_size, dtype=torch.int64, device=self.device)

    def free_segment(self, free_index, *, start_pos):
        self.free += len(free_index)

    def free_segments(self, segments):
        for free_index, start_pos in segments:
            self.free_segment(free_index, start_pos=start_pos)


class Scheduler:
    """One cache, its pools, and the calls in the order in which SGLang makes them."""

    def __init__(self, num_slots=512, page_size=1, make=None, device="cpu", **params):
        self.page_size, self.num_slots = page_size, num_slots
        self.reads = device == "cpu"
        if self.reads:
            self.allocator = PagedTokenToKVPoolAllocator(
                num_slots, page_size, torch.int64, device, None, False
            )
        else:
            self.allocator = CountingAllocator(num_slots, device)
        self.rows = ReqToTokenPool(MAX_REQUESTS, MAX_TOKENS, device, False)
        self.free_rows = list(range(1, MAX_REQUESTS + 1))
        self.memory = [None] * (num_slots + page_size)
        self.running = []
        self.evicted = 0
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            page_size=page_size,
            **params,
        )
        self.cache = (make or _radixkv)(params)

    # ---- a request's life ----

    def match(self, req):
        ids = req.full_untruncated_fill_ids
        key = RadixKey(ids, req.extra_key, limit=len(ids) - 1, cache_salt=req.cache_salt)
        found = self.cache.match_prefix(MatchPrefixParams(key=key, req=req))
        req.prefix_len, req.last_node = found.device_prefix_len, found.last_device_node
        req.kv.cache_protected_len = req.prefix_len
        return req.prefix_len

    def admit(self, req):
        """Match, lock, take slots for all of the prompt, write the row; what was cached."""
        cached = self.match(req)
        req.lock = self.cache.lock(req.last_node)
        req.kv.req_pool_idx = self.free_rows.pop()
        row = self.rows.req_to_token[req.kv.req_pool_idx]
        if cached:
            slots = self.cache.prefix_device_indices(req)
            assert (slots.dtype, len(slots)) == (torch.int64, cached)
            row[:cached] = slots
        req.computed = cached
        req.allocated = cached
        self.running.append(req)
        self._check_computed(req, cached)
        return cached

    def prefill(self, req, up_to=None):
        """Compute the prompt up to there, and store it."""
        up_to = len(req.full_untruncated_fill_ids) if up_to is None else up_to
        self._compute(req, up_to)
        self.cache.checkpoint(req, up_to=up_to)
        self._check_computed(req, up_to)
        self.check()

    def decode(self, req, token):
        """A token is made and added; the K/V of the one before it is computed."""
        req.full_untruncated_fill_ids.append(token)
        if self.cache.is_eagle:
            req.computed -= 1  # the draft's K/V there is made of this token, too
        self._compute(req, len(req.full_untruncated_fill_ids) - 1)

    def finish(self, req):
        req.is_finished = True
        self.release(req)

    def abort(self, req):
        """Or retract it: its K/V is not stored."""
        self.release(req, checkpoint=False)

    def run(self, ids, answer=(), chunk=None, **how):
        """A whole life; what was cached."""
        req = Req(ids, **how)
        cached = self.admit(req)
        for end in range(cached + chunk, len(ids), chunk) if chunk else ():
            self.prefill(req, end)
        self.prefill(req)
        for token in answer:
            self.decode(req, token)
        self.finish(req)
        return cached

    def release(self, req, owned=None, checkpoint=True):
        """Free its row; owned: how much of it may be stored, as a stop or a stripped answer say."""
        owned = req.computed if owned is None else owned
        if checkpoint:
            self.cache.checkpoint(req, up_to=owned)
        cache = self.cache
        cache.free_kv_row(req.kv, [(req.kv.cache_protected_len, owned)])
        cache.unlock(req.lock)
        req.lock = None
        after = -(-owned // self.page_size) * self.page_size
        if after < req.allocated:
            cache.free_kv_row(req.kv, [(after, req.allocated)])
        self.free_rows.append(req.kv.req_pool_idx)
        self.running.remove(req)
        req.kv = ReqKvInfo()
        self.check()

    # ---- the pool ----

    def make_room(self, n):
        missing = n - self.allocator.available_size()
        if missing > 0:
            from sglang.srt.mem_cache.base_prefix_cache import EvictParams

            done = self.cache.evict_for_alloc(EvictParams(num_tokens=missing))
            self.evicted += done.num_tokens_evicted

    def _compute(self, req, up_to):
        more = -(-up_to // self.page_size) * self.page_size - req.allocated
        row = self.rows.req_to_token[req.kv.req_pool_idx]
        if more > 0:
            self.make_room(more)
            slots = self.allocator.alloc(more)
            row[req.allocated : req.allocated + more] = slots
            req.allocated += more
        for at in range(req.computed, up_to) if self.reads else ():
            self.memory[row[at]] = self._content(req, at)
        req.computed = up_to

    def _content(self, req, at):
        # With EAGLE the draft's K/V at a place is made of the token behind it, too.
        ids = req.full_untruncated_fill_ids[: at + 1 + self.cache.is_eagle]
        return req.space, ids.tobytes()

    def _check_computed(self, req, up_to):
        if not self.reads:
            return
        row = self.rows.req_to_token[req.kv.req_pool_idx, :up_to].tolist()
        for at, slot in enumerate(row[: up_to - self.cache.is_eagle]):
            assert self.memory[slot] == self._content(req, at), (at, slot)

    def check(self):
        """Nothing is lost and nothing is held twice."""
        if not self.reads:
            return
        cached = self.cache.all_values_flatten().tolist()
        own = []
        for req in self.running:
            row = self.rows.req_to_token[req.kv.req_pool_idx]
            own += row[req.kv.cache_protected_len : req.allocated].tolist()
        held = cached + own
        assert len(held) == len(set(held))
        assert self.allocator.available_size() + len(held) == self.num_slots
        assert len(cached) == self.cache.evictable_size() + self.cache.protected_size()


def _radixkv(params):
    from radixkv.integrations.sglang.cache import RadixKVCache

    return RadixKVCache(params)
