"""AsyncClient: the same calls and errors, awaited."""

import asyncio
import inspect

import numpy as np
import pytest

from radixkv import Namespace, errors
from radixkv.service import AsyncClient, Client
from radixkv.service.client import calls
from tests.support.service import hold


async def test_the_same_answers_as_the_blocking_client(cache, server, client):
    slots = hold(cache, [1, 2, 3], Namespace(salt="a"))
    async with AsyncClient(server.address, timeout_s=60) as other:
        reply = await other.match(np.array([1, 2, 3]), Namespace(salt="a"), want_slots=True)
        assert reply.lengths == [3]
        assert reply.matches[0].slots.tolist() == slots
        assert await other.stats() == client.stats()
        assert await other.server_info() == client.server_info()


async def test_the_same_errors(cache, server):
    async with AsyncClient(server.address, timeout_s=60) as client:
        with pytest.raises(errors.EpochMismatchError) as caught:
            await client.match([1], expected_epoch=1)
        assert caught.value.details["epoch"] == cache.events.epoch
        with pytest.raises(errors.InvalidTokensError):
            await client.match([-1])
    async with AsyncClient("127.0.0.1:1", timeout_s=60) as client:
        with pytest.raises(errors.ServiceUnavailableError):
            await client.stats()


async def test_many_at_once(cache, server, caplog):
    hold(cache, range(10))
    async with AsyncClient(server.address, timeout_s=60) as client:
        replies = await asyncio.gather(*(client.match(range(n)) for n in range(1, 40)))
    assert [reply.lengths for reply in replies] == [[min(n, 10)] for n in range(1, 40)]
    assert caplog.text == ""


@pytest.mark.parametrize("name", ["match", "server_info", "stats"])
def test_both_clients_show_the_parameters_of_the_call(name):
    build = getattr(calls, name)
    with Client("127.0.0.1:1") as client:
        bound = inspect.signature(getattr(client, name))
    assert bound.parameters == inspect.signature(build).parameters
    assert getattr(Client, name).__doc__ == getattr(AsyncClient, name).__doc__ == build.__doc__
    assert inspect.iscoroutinefunction(getattr(AsyncClient, name))
