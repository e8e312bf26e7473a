"""The cache in the hands of a scheduler: `scheduler.py` checks every slot at every step."""

import random

import pytest

from tests.integrations.sglang.tenants import SPACES

CORES = ["python", "native"]


def prompt(rng, roots):
    ids = rng.choice(roots)[: rng.randrange(1, 80)] + [
        rng.randrange(3) for _ in range(rng.randrange(8))
    ]
    return ids or [1]


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("is_eagle", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_every_slot_is_the_one_that_was_computed(scheduler, core, page_size, is_eagle):
    """Requests come and go in any order, in chunks, retracted and aborted, under eviction."""
    from tests.integrations.sglang.scheduler import Req

    rng = random.Random(page_size)
    host = scheduler(core, num_slots=480, page_size=page_size, is_eagle=is_eagle)
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
