"""Concurrent matches of single prompts go together, and no caller notices but by the time."""

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from radixkv import Namespace, PrefixCache, errors
from radixkv.service import AsyncClient, CacheServer, Client
from radixkv.service.client import calls, coalesce
from tests.support.service import SlowCache, hold
from tests.support.waiting import run_threads


class CountingServer(CacheServer):
    """How many MatchPrefix calls there were."""

    @property
    def calls(self) -> int:
        method = "/radixkv.v1.PrefixCacheService/MatchPrefix"
        return int(self._metrics._begun.labels(method)._value.get())


@pytest.fixture
def slow():
    cache = SlowCache(64)
    with CountingServer(cache, "127.0.0.1:0") as server:
        yield cache, server
        cache.go.set()


def num_waiting(client):
    return sum(map(len, client._coalescer._queue._waiting.values()))


def test_those_that_come_meanwhile_go_together(slow):
    cache, server = slow
    with (
        Client(server.address, timeout_s=60) as client,
        ThreadPoolExecutor(20) as pool,
    ):
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)
        others = [pool.submit(client.match, [n]) for n in range(2, 12)]
        apart = pool.submit(client.match, [1], Namespace(salt="a"))
        while num_waiting(client) < 10:
            pass
        cache.go.set()
        assert [call.result().lengths for call in (first, *others, apart)] == [[0]] * 12
        assert server.calls == 3


def test_answers_are_each_callers_own():
    cache = PrefixCache(64)
    for n in range(1, 9):
        hold(cache, [n] * n)
    with (
        CacheServer(cache, "127.0.0.1:0") as server,
        Client(server.address, timeout_s=60) as client,
    ):
        wrong = []

        def ask(n):
            for _ in range(30):
                reply = client.match([n] * 9, want_slots=True)
                if reply.lengths != [n] or len(reply.matches[0].slots) != n:
                    wrong.append((n, reply))

        run_threads(*(partial(ask, n) for n in range(1, 9)))
        assert wrong == []


async def test_async_callers_go_together_too(slow):
    cache, server = slow
    hold_prompt = [5, 6]
    async with AsyncClient(server.address, timeout_s=60) as client:
        first = asyncio.create_task(client.match([1]))
        while not cache.is_inside.is_set():
            await asyncio.sleep(0.01)
        others = [asyncio.create_task(client.match([*hold_prompt, n])) for n in range(50)]
        late = asyncio.create_task(client.match([1], timeout_s=0.01))
        with pytest.raises(errors.DeadlineExceededError):
            await late
        others[3].cancel()
        cache.go.set()
        replies = await asyncio.gather(first, *others, return_exceptions=True)
        assert isinstance(replies[4], asyncio.CancelledError)
        assert [r.lengths for r in replies if not isinstance(r, BaseException)] == [[0]] * 50
        assert server.calls == 2


async def test_async_callers_of_a_client_that_is_closed_get_an_error_at_once(slow):
    _, server = slow
    client = AsyncClient(server.address, timeout_s=1000)
    callers = [asyncio.create_task(client.match([n])) for n in range(3)]
    while num_waiting(client) < 2:
        await asyncio.sleep(0.001)
    await client.close()
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(error) for error in outcomes] == [errors.ServiceError] * 3


def test_a_caller_that_waited_too_long_gets_an_error_and_the_others_go_on(slow):
    cache, server = slow
    with Client(server.address, timeout_s=60) as client, ThreadPoolExecutor(4) as pool:
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)
        with pytest.raises(errors.DeadlineExceededError, match=r"0\.05 s"):
            client.match([2], timeout_s=0.05)
        other = pool.submit(client.match, [3])
        cache.go.set()
        assert (first.result().lengths, other.result().lengths) == ([0], [0])


def test_a_caller_that_is_interrupted_while_it_waits_leads_no_batch(slow):
    cache, server = slow
    with Client(server.address, timeout_s=60) as client, ThreadPoolExecutor(4) as pool:
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)

        def interrupt():
            while not num_waiting(client):
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        interrupting = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.match([2])
        interrupting.result()
        other = pool.submit(client.match, [3])
        while num_waiting(client) < 2:
            time.sleep(0.001)
        cache.go.set()
        assert (first.result().lengths, other.result().lengths) == ([0], [0])
        assert not client._coalescer._queue._waiting


def test_who_is_interrupted_as_it_is_woken_hands_its_batch_on():
    made = []

    def make(call):
        made.append(len(call.prompts))
        return calls.MatchReply((calls.Match(0),) * len(call.prompts), 1, 1)

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            super().wait(timeout)
            raise KeyboardInterrupt

    coalescer = coalesce.Coalescer(make)
    call = calls.match([1], timeout_s=60.0)
    me, other = coalesce._Waiting(call), coalesce._Waiting(call)
    me.woken, me.batch = Interrupted(), [me, other]
    coalescer._queue.add(me)
    me.woken.set()
    with pytest.raises(KeyboardInterrupt):
        coalescer._wait(me)
    assert other.woken.is_set()
    assert other.batch == [other]
    coalescer._lead(other)
    assert made == [1]
    assert not coalescer._queue._waiting


def test_no_caller_waits_longer_than_it_said_because_of_others(slow):
    """Whoever makes the call for others is one who has as much time as any of them."""
    cache, server = slow
    with Client(server.address, timeout_s=60) as client, ThreadPoolExecutor(4) as pool:
        first = pool.submit(client.match, [1], timeout_s=0.2)
        assert cache.is_inside.wait(timeout=60)
        hasty = pool.submit(client.match, [2], timeout_s=1.0)
        while num_waiting(client) < 1:
            time.sleep(0.001)
        patient = pool.submit(client.match, [3])
        for call in (first, hasty):
            assert isinstance(call.exception(), errors.DeadlineExceededError)
        assert not patient.done()
        cache.go.set()
        assert patient.result().lengths == [0]


def test_an_error_of_the_call_is_everyones(slow):
    cache, server = slow
    with Client(server.address, timeout_s=60) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)
        waiting = [pool.submit(client.match, [n], expected_epoch=1) for n in range(3)]
        cache.go.set()
        first.result()
        raised = [call.exception() for call in waiting]
        assert [type(error) for error in raised] == [errors.EpochMismatchError] * 3
        assert len(set(map(id, raised))) == 3


class PickyCache(SlowCache):  # type: ignore[misc]
    """Finds a prompt wrong that no client finds wrong."""

    def match_lengths(self, prompts, *args, **how):
        found = super().match_lengths(prompts, *args, **how)
        if any(prompt.tolist() == [666] for prompt in prompts):
            raise errors.InvalidTokensError("666 is no token")
        return found


def test_one_bad_prompt_is_its_callers_alone():
    """What only the server finds wrong is asked again one by one."""
    cache = PickyCache(64)
    with (
        CacheServer(cache, "127.0.0.1:0") as server,
        Client(server.address, timeout_s=60) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)
        good = pool.submit(client.match, [2])
        bad = pool.submit(client.match, [666])
        while num_waiting(client) < 2:
            pass
        cache.go.set()
        assert (first.result().lengths, good.result().lengths) == ([0], [0])
        with pytest.raises(errors.InvalidTokensError, match="666"):
            bad.result()


def test_batches_are_bounded(slow, monkeypatch):
    monkeypatch.setattr(coalesce, "MAX_BATCH_SEQUENCES", 4)
    cache, server = slow
    with Client(server.address, timeout_s=60) as client, ThreadPoolExecutor(16) as pool:
        first = pool.submit(client.match, [1])
        assert cache.is_inside.wait(timeout=60)
        others = [pool.submit(client.match, [n]) for n in range(10)]
        while num_waiting(client) < 10:
            pass
        cache.go.set()
        assert [call.result().lengths for call in (first, *others)] == [[0]] * 11
        assert server.calls == 1 + 3


def test_it_can_be_turned_off(slow):
    cache, server = slow
    cache.go.set()
    with Client(server.address, timeout_s=60, coalesce=False) as client:
        assert client._coalescer is None
        assert client.match([1]).lengths == [0]
