import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from radixkv import PrefixCache, RadixTree, new_tree
from tests.support.clock import Clock
from tests.support.trees import CORES, Words

# A shell starts what runs in the background without SIGINT, and all that is started from there; the
# commands that are tested end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=1_000,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
_IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IN_CI else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("RADIXKV_SLOW") != "1":
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes minutes; RADIXKV_SLOW=1 runs it"))


@pytest.fixture(params=CORES)
def core(request: pytest.FixtureRequest) -> Any:
    """Each core that is built here."""
    return request.param


@pytest.fixture(params=[1, 4, 16])
def page_size(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def grow(core: str, page_size: int) -> Iterator[Callable[..., Words]]:
    """Makes trees that speak words (see `Words`); whatever a test does to them, they stay whole."""
    grown: list[Words] = []

    def grow(policy: str = "lru") -> Words:
        grown.append(Words(new_tree(page_size, policy, core)))
        return grown[-1]

    yield grow
    for words in grown:
        assert words.tree.check_integrity() == []


@pytest.fixture
def words(grow: Callable[..., Words]) -> Words:
    return grow()


@pytest.fixture
def tree(core: str) -> Iterator[RadixTree]:
    """A tree of page size 1, whole at the end of the test."""
    tree = new_tree(core=core)
    yield tree
    assert tree.check_integrity() == []


@pytest.fixture
def fresh() -> Callable[[int], list[int]]:
    """Slots that no one had before."""
    numbers = itertools.count(1)
    return lambda n: list(itertools.islice(numbers, n))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2026)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of request traces, as benchmarks find it."""
    from bench.traces import find_traces

    folder = find_traces()
    if not folder.is_dir():
        pytest.skip(f"no traces in {folder}; RADIXKV_TRACES names another folder")
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `save_tiny_model`."""
    from tests.support.tiny_model import save_tiny_model

    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_model(folder)
    return folder


@pytest.fixture
def new_cache(core: str) -> Iterator[Callable[..., PrefixCache]]:
    """Makes caches, of 16 slots by default; whatever a test does to them, they stay whole."""
    made: list[PrefixCache] = []

    def new_cache(num_slots: int = 16, **how) -> PrefixCache:
        made.append(PrefixCache(num_slots, core=core, **how))
        return made[-1]

    yield new_cache
    for cache in made:
        assert cache.check_integrity() == []
