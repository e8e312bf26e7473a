"""An engine's own tree, checked in slices next to the engine."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from radixkv import new_tree
from radixkv.cache.stats import Totals
from radixkv.integrations.sglang import service
from radixkv.integrations.sglang.service import EngineCache
from tests.support.trees import CORES


@pytest.fixture(params=CORES)
def cache(request, monkeypatch) -> EngineCache:
    """Twenty nodes, checked two at a time."""
    monkeypatch.setattr(service, "_NODES", 2)
    tree = new_tree(core=request.param)
    for at in range(20):
        tree.insert([at, 1], np.arange(2 * at, 2 * at + 2, dtype=np.int32))
    pool = SimpleNamespace(size=64, available_size=lambda: 64 - tree.total_size)
    return EngineCache(tree, threading.RLock(), pool, Totals())


def test_the_engine_goes_on_between_the_slices(cache):
    slices = 0
    for lines in cache.check_in_steps():
        assert lines == []
        cache.tree.evict(1)
        slices += 1
    assert slices > 5


def test_what_is_broken_is_found(cache):
    cache.tree.insert([99], [0])
    assert any("I1" in line for lines in cache.check_in_steps() for line in lines)


def test_a_flush_in_the_middle_is_not_reported(cache):
    slices = cache.check_in_steps()
    assert next(slices) == []
    cache.tree.reset()
    cache.tree.insert([1, 2], [0, 1])
    assert [line for lines in slices for line in lines] == []
