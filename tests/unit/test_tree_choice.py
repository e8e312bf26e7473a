"""Which tree one gets: core, policy and page size."""

import pytest

from radixkv import new_tree
from radixkv.errors import (
    CoreUnavailableError,
    InvalidArgumentError,
)
from radixkv.tree.policies import POLICIES
from tests.support.trees import CORES


def test_the_core_can_be_named(core):
    assert new_tree(core=core).core == core


def test_the_environment_names_the_core_where_the_caller_does_not(monkeypatch):
    monkeypatch.setenv("RADIXKV_CORE", "python")
    assert new_tree().core == "python"
    assert new_tree(core=CORES[-1]).core == CORES[-1]
    monkeypatch.setenv("RADIXKV_CORE", "quantum")
    with pytest.raises(InvalidArgumentError, match="'quantum'"):
        new_tree()
    monkeypatch.setenv("RADIXKV_CORE", "")
    assert new_tree().core == CORES[-1]


def test_the_best_core_is_taken_by_default(monkeypatch):
    monkeypatch.delenv("RADIXKV_CORE", raising=False)
    assert new_tree().core == CORES[-1]


def test_a_native_core_that_is_not_built_is_an_error(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "radixkv.tree.native_tree", None)
    monkeypatch.delenv("RADIXKV_CORE", raising=False)
    with pytest.raises(CoreUnavailableError, match=r'core="python"'):
        new_tree(core="native")
    assert new_tree().core == "python"


@pytest.mark.parametrize(
    "bad",
    [{"core": "quantum"}, {"core": "Python"}, {"policy": "random"}, {"policy": "LRU"},
     {"policy": None}, {"policy": ["lru"]}, {"page_size": 0}, {"page_size": -4},
     {"page_size": 1.0}, {"page_size": True}, {"page_size": "1"}, {"page_size": None}],
)  # fmt: skip
def test_what_a_tree_cannot_be_is_named(core, bad):
    with pytest.raises(InvalidArgumentError, match=repr(next(iter(bad.values()))).strip("[]")):
        new_tree(**{"core": core} | bad)


def test_an_unknown_policy_lists_those_there_are(core):
    with pytest.raises(InvalidArgumentError, match="lru, lfu, fifo, mru, filo, slru, priority"):
        new_tree(policy="arc", core=core)


@pytest.mark.skipif("native" not in CORES, reason="the native core is not built")
def test_a_policy_of_the_python_core_alone_is_refused_with_the_way_to_have_it(monkeypatch):
    monkeypatch.setitem(POLICIES, "newest", POLICIES["mru"])
    assert new_tree(policy="newest", core="python").policy == "newest"
    names = "policy must be one of lru, .*, or core=.python. for those of Python alone; got .newest"
    with pytest.raises(InvalidArgumentError, match=names):
        new_tree(policy="newest", core="native")


@pytest.mark.parametrize("page_size", [2, 3, 5, 64, 1000])
def test_any_page_size_works(core, page_size):
    tree = new_tree(page_size, core=core)
    key = list(range(3 * page_size + 1))
    tree.insert(key, range(page_size, page_size + len(key)))
    assert tree.total_size == 3 * page_size
    tree.insert(key[: -page_size - 1], range(5 * page_size, 7 * page_size))
    assert tree.total_size == 3 * page_size
    assert len(tree.evict(1)) == page_size
    assert tree.check_integrity() == []
