"""The cache in the hands of a scheduler: `scheduler.py` checks every slot at every step."""

import random
from array import array

import pytest
import torch

from radixkv.tree import POLICIES
from tests.integrations.sglang.tenants import SPACES

CORES = ["python", "native"]


def prompt(rng, roots):
    ids = rng.choice(roots)[: rng.randrange(1, 80)] + [
        rng.randrange(3) for _ in range(rng.randrange(8))
    ]
    return ids or [1]


@pytest.fixture
def scatter(monkeypatch):
    """Makes tickets come in no row, so that lists of them go to the device."""

    def scatter():
        from radixkv.integrations.sglang import numbers

        half = numbers.new_tickets
        monkeypatch.setattr(numbers, "MOST_ROWS", 1)
        monkeypatch.setattr(numbers, "new_tickets", lambda n, core: half(n // 2, core))

    return scatter


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("numbers", ["HostSlots", "TicketTable", "TicketTable, scattered"])
@pytest.mark.parametrize("is_eagle", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_every_slot_is_the_one_that_was_computed(
    scheduler, scatter, core, numbers, page_size, is_eagle
):
    """Requests come and go in any order, in chunks, retracted and aborted, under eviction."""
    from tests.integrations.sglang.scheduler import Req

    kind, _, is_scattered = numbers.partition(", ")
    if is_scattered:
        scatter()
    rng = random.Random(page_size)
    host = scheduler(core, kind, num_slots=480, page_size=page_size, is_eagle=is_eagle)
    roots = [[rng.randrange(3) for _ in range(80)] for _ in range(2)]
    hits = 0
    for _ in range(900):
        if len(host.running) < 3:
            req = Req(prompt(rng, roots), chunk=rng.choice([3, 17, 400]), **rng.choice(SPACES))
            hits += host.admit(req)
        req = rng.choice(host.running)
        if rng.random() < 0.05:
            host.abort(req)
        elif req.computed < len(req.origin_input_ids):
            host.prefill(req, min(req.computed + req.chunk, len(req.origin_input_ids)))
        elif rng.random() < 0.5:
            host.decode(req, rng.randrange(3))
        else:
            host.finish(req)
    for req in [*host.running]:
        host.abort(req)
    assert hits > 1000
    assert host.evicted > 1000
    assert host.cache.protected_size() == 0
    host.cache.sanity_check()


@pytest.mark.parametrize("is_scattered", [False, True])
def test_tickets_come_in_rows_unless_they_are_scattered(scheduler, scatter, is_scattered):
    """So the test above goes both ways of each call."""
    if is_scattered:
        scatter()
    host = scheduler(numbers="TicketTable", num_slots=160)
    live(host)
    nodes = [node.slots.tolist() for node in host.cache.tree.walk()]
    in_rows = sum(slots[-1] - slots[0] == len(slots) - 1 for slots in nodes)
    assert (in_rows < len(nodes)) == is_scattered


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("core", ["python", "native"])
def test_ranks_that_are_fed_alike_evict_alike(scheduler, core, policy):
    """As the ranks of tensor parallelism are: each has a tree of its own."""
    ranks = [scheduler(core, num_slots=120, eviction_policy=policy) for _ in range(2)]
    rng = random.Random(7)
    roots = [[rng.randrange(50) for _ in range(30)] for _ in range(6)]
    for _ in range(120):
        ids = rng.choice(roots)[: rng.randrange(1, 31)] + [rng.randrange(50) for _ in range(10)]
        how = {"priority": rng.randrange(3), **rng.choice(SPACES)}
        answer = [rng.randrange(50) for _ in range(rng.randrange(5))]
        assert len({rank.run(ids, answer, chunk=16, **how) for rank in ranks}) == 1
        held = [sorted(rank.cache.all_values_flatten().tolist()) for rank in ranks]
        assert held[0] == held[1]
    assert ranks[0].evicted == ranks[1].evicted > 500


def test_a_higher_priority_stays_longer(scheduler):
    host = scheduler(num_slots=100, eviction_policy="priority")
    host.run(range(30), priority=5)
    host.run(range(100, 130), priority=1)
    host.run(range(200, 230), priority=None)
    host.run(range(300, 340), priority=1)
    assert [host.match(req_of(ids)) for ids in (range(31), range(100, 131), range(200, 231))] == [
        30,
        30,
        0,
    ]


def test_what_two_requests_compute_at_once_is_kept_once(scheduler):
    host = scheduler()
    one, other = req_of(range(50)), req_of(range(50))
    for req in (one, other):
        assert host.admit(req) == 0
    for req in (one, other):
        host.prefill(req)
    assert host.cache.total_size() == 50
    assert host.allocator.available_size() == host.num_slots - 50
    for req in (one, other):
        host.finish(req)


def test_what_a_stop_leaves_behind_stays_the_trees(scheduler):
    """An answer that is stripped ends before what was stored of a request that was retracted."""
    host = scheduler(page_size=4)
    req = req_of(range(10))
    host.admit(req)
    host.prefill(req)
    for token in range(10):
        host.decode(req, token)
    host.prefill(req, 16)  # as after a retraction: of the answer, too
    req.is_finished = True
    host.release(req, owned=10)
    assert host.cache.total_size() == 16
    assert host.match(req_of([*range(10), *range(10)])) == 16


def test_a_waiting_prefix_that_is_touched_outlives_one_that_is_not(scheduler):
    from sglang.srt.mem_cache.radix_cache import RadixKey

    host = scheduler(num_slots=60)
    host.run(range(20), cache_salt="tenant")
    host.run(range(100, 120))
    host.cache.touch_prefix(RadixKey(array("q", range(20)), cache_salt="tenant"))
    host.run(range(200, 230))
    assert host.match(req_of(range(21), cache_salt="tenant")) == 20
    assert host.match(req_of(range(100, 121))) < 20


def test_a_flush_forgets_everything(scheduler):
    host = scheduler(page_size=4, enable_kv_cache_events=True)
    host.run(range(40))
    host.cache.take_events()
    host.cache.reset()
    host.allocator.clear()
    assert host.cache.total_size() == 0
    assert [type(event).__name__ for event in host.cache.take_events()] == ["AllBlocksCleared"]
    assert host.run(range(40)) == 0
    assert host.run(range(40)) == 36


@pytest.mark.parametrize("is_eagle", [False, True])
@pytest.mark.parametrize("page_size", [1, 4])
def test_events_say_what_is_cached(scheduler, page_size, is_eagle):
    from sglang.srt.disaggregation.kv_events import BlockRemoved, BlockStored

    rng = random.Random(3)
    host = scheduler(
        num_slots=160, page_size=page_size, is_eagle=is_eagle, enable_kv_cache_events=True
    )
    known, parents = {}, {None: ()}
    for _ in range(60):
        ids = [rng.randrange(2) for _ in range(rng.randrange(2, 50))]
        host.run(ids, chunk=rng.choice([None, 16]))
        for event in host.cache.take_events():
            if isinstance(event, BlockStored):
                assert event.block_size == page_size
                assert event.parent_block_hash in parents
                above = parents[event.parent_block_hash]
                for at, name in enumerate(event.block_hashes):
                    ids_of = event.token_ids[at * page_size : (at + 1) * page_size]
                    above = (*above, *map(as_unit, ids_of))
                    known[name] = parents[name] = above
            elif isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    del known[name]
        assert sorted(known.values()) == sorted(resident(host, page_size))
    assert host.evicted > 500


def as_unit(ids):
    return tuple(ids) if isinstance(ids, list | tuple) else ids


def resident(host, page_size):
    """What is cached, as a path of tokens, or pairs, up to the end of each page."""
    paths = {}
    for node in host.cache.tree.walk():
        first, above = paths.get(node.parent_id, (None, ()))
        if host.cache.is_eagle and first is None:
            first = int(node.namespace.extra_key)
        path = above
        for code in node.codes.tolist():
            path = (*path, (first, code) if host.cache.is_eagle else code)
            first = code
            if len(path) % page_size == 0:
                yield path
        paths[node.id] = first, path


def live(host):
    """Requests that share, meet duplicates and evict."""
    hits = 0
    for step in range(30):
        base = 7 * (step // 3 % 4)
        two = [req_of([*range(base, base + 40), step]) for _ in range(2)]
        hits += sum(host.admit(req) for req in two)
        for req in two:  # the second one's are duplicates
            host.prefill(req)
            host.decode(req, 1)
            host.finish(req)
    assert hits > 500
    assert host.evicted > 100


def test_nothing_is_read_from_the_device(scheduler, monkeypatch):
    """Tensors on the device `meta` have no contents: to read one on the host is an error."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    host = scheduler(num_slots=160, device="meta")
    live(host)
    with pytest.raises(NotImplementedError):
        host.rows.req_to_token.tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_nothing_waits_for_a_card(scheduler):
    """As torch sees it, which makes each synchronisation of a stream an error here."""
    host = scheduler(num_slots=160, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        live(host)
        with pytest.raises(RuntimeError, match="synchronizing"):
            host.rows.req_to_token[1, 1].item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def req_of(ids, **how):
    from tests.integrations.sglang.scheduler import Req

    return Req(ids, **how)
