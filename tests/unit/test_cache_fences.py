"""What was freed behind a fence is handed out when the fence is done, and not before.

A kernel of another stream may still read what its request gave up: its own slots, and what it
shared with the tree or with other requests, no matter which of them frees it last.
"""

import pytest

from radixkv import PrefixCache
from radixkv.cache.factory import new_ledger
from radixkv.errors import InvalidArgumentError
from radixkv.memory import new_allocator
from tests.support.caches import admit, resident, store
from tests.support.oracle import Fence
from tests.support.trees import CORES

ENDINGS = ("finish", "abort", "retract")


@pytest.mark.parametrize("ending", ENDINGS)
def test_own_slots_wait_for_the_fence(new_cache, ending):
    cache = new_cache(4)
    request, fence = admit(cache, [1, 2, 3, 4], store=False), Fence()
    getattr(cache, ending)(request, fence=fence)
    assert (cache.free_size, cache.stats().waiting) == (0, 4)
    assert cache.admit([7]) is None
    fence.done = True
    assert (cache.free_size, cache.stats().waiting) == (4, 0)
    assert admit(cache, [7, 8, 9, 9])


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_cached_waits_too_once_it_is_evicted(new_cache, ending):
    """All of the row is in the tree: nothing is freed at the end, yet all of it is still read."""
    cache = new_cache(4)
    request, fence = admit(cache, [1, 2, 3, 4]), Fence()
    cache.publish(request, 4)
    getattr(cache, ending)(request, fence=fence)
    assert cache.admit([7, 8, 9, 9]) is None
    assert cache.stats().waiting == 4
    fence.done = True
    assert admit(cache, [7, 8, 9, 9])


def test_what_is_cached_may_be_matched_before_the_fence_is_done(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3, 4])
    cache.finish(request, up_to=request.length, fence=Fence())
    assert admit(cache, [1, 2, 3, 4, 5]).cached_len == 4


def test_duplicates_wait(new_cache):
    cache = new_cache(8)
    late, fence = admit(cache, [1, 2, 3, 4]), Fence()
    early = store(cache, [1, 2, 3, 4])
    duplicates = set(late.slots.tolist())
    cache.publish(late, 4, fence=fence)
    assert late.slots.tolist() == early
    assert cache.admit([9]) is None
    fence.done = True
    assert set(admit(cache, [9, 8, 7, 6]).slots.tolist()) == duplicates


def test_what_is_rolled_back_waits(new_cache):
    cache = new_cache(8)
    request, fence = admit(cache, [1, 2, 3, 4, 5, 6]), Fence()
    cache.publish(request, 4)
    cache.rollback(request, 2, fence=fence)
    assert (cache.free_size, cache.stats().waiting) == (2, 2)
    assert cache.extend(request, [7, 8, 9]) is None
    fence.done = True
    assert len(cache.extend(request, [7, 8, 9])) == 3


def test_a_page_given_up_for_a_copy_waits(new_cache):
    cache = new_cache(16, page_size=4)
    request = admit(cache, list(range(6)), store=False)
    fork = cache.fork(request, 1).requests[0]
    fence = Fence()
    cache.rollback(fork, 3, fence=fence)
    cache.abort(request)
    free = set(cache.allocator.free_slots().tolist())
    assert free.isdisjoint(range(4, 8)), "the fork may still read the page it gave up"
    fence.done = True
    assert cache.free_size == 12


def test_what_a_fork_read_waits_even_if_another_frees_it(new_cache):
    cache = new_cache()
    request = admit(cache, [1, 2, 3], store=False)
    fork = cache.fork(request, 1).requests[0]
    fence = Fence()
    cache.finish(fork, up_to=fork.length, fence=fence)
    cache.finish(request, up_to=request.length)
    assert (cache.free_size, cache.stats().waiting) == (13, 3)
    fence.done = True
    assert cache.free_size == 16


def test_what_the_bound_pushes_out_waits(new_cache):
    cache = new_cache(max_cached_tokens=2)
    request, fence = admit(cache, [1, 2, 3, 4]), Fence()
    cache.finish(request, up_to=request.length, fence=fence)
    assert (cache.free_size, cache.stats().waiting) == (12, 2)
    fence.done = True
    assert cache.free_size == 14


def test_what_a_reset_forgets_waits(new_cache):
    cache = new_cache()
    request, fence = admit(cache, [1, 2, 3]), Fence()
    cache.finish(request, up_to=request.length, fence=fence)
    cache.reset()
    assert (cache.free_size, cache.stats().waiting) == (13, 3)
    fence.done = True
    assert cache.free_size == 16


def test_retired_slots_wait_for_the_last_readers_fence(new_cache):
    cache = new_cache()
    store(cache, [1, 2, 3])
    one, two = admit(cache, [1, 2, 3, 4]), admit(cache, [1, 2, 3, 5])
    cache.reset(force=True)
    first, last = Fence(), Fence()
    cache.finish(one, up_to=one.length, fence=first)
    cache.finish(two, up_to=two.length, fence=last)
    first.done = True
    assert cache.free_size == 12
    last.done = True
    assert cache.free_size == 16


def test_fences_are_done_in_the_order_they_were_given(new_cache):
    cache = new_cache()
    first, last = Fence(), Fence()
    for fence in (first, last):
        cache.abort(admit(cache, [1, 2]), fence=fence)
    last.done = True
    assert cache.free_size == 12
    first.done = True
    assert cache.free_size == 16


def test_a_refusal_for_now_evicts_once_and_not_at_each_retry(new_cache):
    cache = new_cache(8)
    store(cache, [1, 2, 3, 4, 5])
    fence = Fence()
    cache.abort(admit(cache, [9]), fence=fence)
    for _ in range(5):
        assert cache.admit([7, 8, 9]) is None
        assert cache.tree.total_size == 5
    for _ in range(5):
        assert cache.admit([7, 8, 9, 6]) is None
        assert cache.tree.total_size == 4
    fence.done = True
    assert len(admit(cache, [7, 8, 9, 6]).slots) == 4


def test_a_prompt_that_cannot_fit_yet_evicts_nothing(new_cache):
    cache = new_cache(8)
    admit(cache, [1, 2, 3, 4])
    store(cache, [7, 8])
    cache.abort(admit(cache, [9]), fence=Fence())
    before = resident(cache)
    assert cache.admit([5, 5, 5, 5, 5]) is None
    assert resident(cache) == before


def test_without_fences_nothing_waits(new_cache):
    cache = new_cache(4)
    cache.abort(admit(cache, [1, 2, 3, 4]))
    store(cache, [5, 6, 7, 8])
    assert admit(cache, [1, 2, 3, 4])
    assert cache.stats().waiting == 0


def test_a_fence_that_raises_at_an_admission_leaves_nothing_taken(new_cache):
    cache = new_cache(8)
    cache.finish(done := admit(cache, [1, 2, 3]), up_to=done.length, fence=BrokenFence())
    before = cache.req_to_token.free_size
    with pytest.raises(RuntimeError, match="device"):
        cache.admit([1, 2, 3, 4])
    assert cache.req_to_token.free_size == before
    assert cache.tree.protected_size == 0
    assert cache.live_requests == []


class BrokenFence:
    def query(self):
        raise RuntimeError("the device is gone")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_no_fence_is_refused(new_cache, ending):
    cache = new_cache()
    request = admit(cache, [1, 2, 3])
    with pytest.raises(InvalidArgumentError, match=r"fence must have .*; got True"):
        getattr(cache, ending)(request, fence=True)
    assert request.state == "running"


class CallingFence:
    """Calls the cache each time before it says that it is done."""

    def __init__(self, call):
        self.call, self.num_asked = call, 0

    def query(self):
        self.num_asked += 1
        assert self.num_asked < 100, "each call of the cache asks again"
        self.call()
        return True


def test_a_fence_that_calls_the_cache_frees_nothing_behind_another(new_cache):
    cache, waiting = new_cache(10), Fence()
    first, second = admit(cache, range(1, 6), store=False), admit(cache, range(6, 11), store=False)
    cache.abort(first, fence=CallingFence(lambda: cache.free_size))
    cache.abort(second, fence=waiting)
    assert (cache.free_size, cache.stats().waiting) == (5, 5)
    assert cache.admit(range(20, 26)) is None
    waiting.done = True
    assert admit(cache, range(20, 30))


@pytest.mark.parametrize("look", [lambda cache: cache.free_size, PrefixCache.stats])
def test_a_fence_that_looks_at_the_cache_is_asked_once_a_call(new_cache, look):
    cache = new_cache()
    fence = CallingFence(lambda: look(cache))
    cache.abort(admit(cache, [6, 7, 8]), fence=fence)
    assert (fence.num_asked, cache.free_size) == (0, 16)
    assert fence.num_asked == 1


@pytest.mark.parametrize("core", CORES)
def test_what_a_fence_frees_itself_waits_for_the_next_time_that_it_is_asked(core):
    ledger = new_ledger(new_allocator(8, core=core))

    def free_another():
        ledger.free(ledger.take(1), fence)

    fence, slots = CallingFence(free_another), ledger.take(3)
    ledger.free(slots[:2], fence)
    ledger.free(slots[2:], fence)
    for _ in range(3):  # two entries wait, and each time that one is asked it makes another
        assert (ledger.free_size, ledger.deferred_size) == (6, 2)
    assert fence.num_asked == 6
    fence.call = lambda: None
    assert ledger.free_size == 8


@pytest.mark.skipif("native" not in CORES, reason="the native core is not built")
def test_a_fence_that_evicts_ends():
    cache = PrefixCache(24, core="native")
    store(cache, [1, 2, 3, 4, 5])
    fence = CallingFence(lambda: cache.evict(1))
    cache.abort(admit(cache, [6, 7, 8]), fence=fence)
    assert cache.free_size == 19
    assert admit(cache, [9] * 8)
    assert fence.num_asked <= 4
    assert not cache.check_integrity()
    # What it frees waits behind it: without this, it and the cache would keep each other.
    fence.call = lambda: None
    assert cache.free_size == 24 - 8 - cache.tree.total_size
