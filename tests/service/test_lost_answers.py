"""Calls whose answer is late or lost: nothing stays held that the caller does not know of."""

import asyncio
import random
import uuid

import pytest

from radixkv import PrefixCache, errors
from radixkv.service import AsyncClient, CacheServer, Client, InsertCall
from tests.support.proxy import Proxy, take_at_random
from tests.support.service import hold
from tests.support.waiting import wait_until


@pytest.fixture
def cache():
    return PrefixCache(1_000)


@pytest.fixture
def server(cache):
    with CacheServer(cache, "127.0.0.1:0", alone=True) as server:
        yield server


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.address)
    yield proxy
    proxy.close()


@pytest.fixture
def direct(server):
    with Client(server.address, timeout_s=60) as client:
        yield client


def held(direct, lease):
    info = direct.lease_info(lease.id)
    return info.num_slots, info.num_pins


CALLS = {
    "allocate": lambda lease: lease.allocate(100, timeout_s=0.2),
    "pin": lambda lease: lease.pin([[1, 2, 3]] * 4, timeout_s=0.2),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("how", ["late", "cut"])
def test_what_a_lost_answer_took_comes_back(proxy, direct, cache, call, how):
    with Client(proxy.address) as client, client.lease(120, pool_id="p") as lease:
        hold(cache, [1, 2, 3])
        for _ in range(3):
            proxy.delay_s, proxy.cut = (0.6, False) if how == "late" else (0.0, True)
            with pytest.raises((errors.DeadlineExceededError, errors.ServiceUnavailableError)):
                call(lease)
            proxy.delay_s, proxy.cut = 0.0, False
        # The last call may reach the server after its client has asked for it to be undone.
        wait_until(lambda: (held(direct, lease), cache.free_size) == ((0, 0), 997))


def test_a_request_id_of_ones_own_gives_the_answer_again(proxy, direct):
    with Client(proxy.address) as client, client.lease(120, pool_id="p") as lease:
        request_id = str(uuid.uuid4())
        proxy.delay_s = 0.6
        with pytest.raises(errors.DeadlineExceededError):
            lease.allocate(100, timeout_s=0.2, request_id=request_id)
        proxy.delay_s = 0.0
        found = lease.allocate(100, timeout_s=60, request_id=request_id)
        assert held(direct, lease) == (100, 0)
        assert sorted(found.slots) == lease.holdings(timeout_s=60).slots.tolist()


def test_pins_of_a_lost_insert_are_dropped_and_its_tokens_stay(proxy, direct, cache):
    with Client(proxy.address) as client, client.lease(120, pool_id="p") as lease:
        slots = lease.allocate(4, timeout_s=60).slots
        proxy.delay_s = 0.6
        with pytest.raises(errors.DeadlineExceededError):
            lease.insert(InsertCall([1, 2, 3], slots[:3], keep=True), timeout_s=0.2)
        proxy.delay_s = 0.0
        wait_until(lambda: held(direct, lease) == (1, 0))
        assert lease.holdings(timeout_s=60).slots.tolist() == slots[3:].tolist()
        assert cache.probe([1, 2, 3]) == 3


def test_holdings_name_slots_and_pins(direct, cache):
    with direct.lease(120, pool_id="p") as lease:
        hold(cache, [1, 2, 3])
        slots = lease.allocate(5).slots
        pin = lease.pin([1, 2, 3]).matches[0]
        found = lease.holdings()
        assert (found.slots.tolist(), found.pin_ids) == (sorted(slots.tolist()), (pin.pin_id,))
        assert found.lease.num_slots == 5


def test_a_call_that_was_refused_is_not_sent_again(direct, cache):
    with direct.lease(120, pool_id="p") as lease:
        with pytest.raises(errors.OutOfSlotsError):
            lease.allocate(2_000)
        assert held(direct, lease) == (0, 0)


def test_a_cancelled_task_leaves_nothing_held(proxy, direct):
    async def run():
        async with AsyncClient(proxy.address) as client:
            lease = await client.lease(120, pool_id="p")
            proxy.delay_s = 0.4
            asking = asyncio.create_task(lease.allocate(100, timeout_s=60))
            await asyncio.sleep(0.2)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            proxy.delay_s = 0.0
            for _ in range(600):
                await asyncio.sleep(0.05)
                if (await asyncio.to_thread(held, direct, lease)) == (0, 0):
                    break
            assert (await asyncio.to_thread(held, direct, lease)) == (0, 0)
            await lease.close()

    asyncio.run(run())


def test_delays_and_cuts_at_random_leave_nothing_that_the_caller_does_not_know(
    proxy, direct, cache
):
    hold(cache, [1, 2, 3])
    with Client(proxy.address) as client, client.lease(120, pool_id="p") as lease:
        known = take_at_random(proxy, lease, [1, 2, 3], num_calls=60, rng=random.Random(5))
        wait_until(lambda: held(direct, lease) == (len(known.slots), len(known.pin_ids)))
        assert known.num_lost > 0
        assert known.holds_exactly(lease.holdings(timeout_s=60))
    assert cache.check_integrity() == []


def test_a_caller_that_repeats_its_request_ids_gets_every_answer(proxy, direct, cache):
    """Under ids of its own the caller asks again: nothing happens twice, nothing is lost."""
    hold(cache, [1, 2, 3])
    with Client(proxy.address) as client, client.lease(120, pool_id="p") as lease:
        known = take_at_random(
            proxy, lease, [1, 2, 3], num_calls=60, rng=random.Random(6), repeats=True
        )
        assert known.num_lost > 0
        assert len(known.slots) // 2 + len(known.pin_ids) == 60
        assert known.holds_exactly(lease.holdings(timeout_s=60))
    assert cache.check_integrity() == []
