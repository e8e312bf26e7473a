"""Which core runs, and what one walk over the union answers in small, readable cases."""

import sys
from itertools import permutations

import pytest

from radixkv.errors import CoreUnavailableError, InvalidArgumentError
from radixkv.router import PrefixIndex
from radixkv.router.factory import new_holdings
from tests.support.holders import codes
from tests.support.trees import CORES


def test_the_core_may_be_named(core, monkeypatch):
    assert new_holdings(core).core == core
    assert PrefixIndex(core).core == core
    monkeypatch.setenv("RADIXKV_CORE", core)
    assert new_holdings().core == core
    with pytest.raises(InvalidArgumentError, match="got 'rust'") as caught:
        new_holdings("rust")
    assert caught.value.details == {"core": "rust"}


def test_the_best_core_is_the_default(monkeypatch):
    monkeypatch.delenv("RADIXKV_CORE", raising=False)
    assert new_holdings().core == CORES[-1]


def test_without_a_native_core_the_python_one_serves(monkeypatch):
    monkeypatch.delenv("RADIXKV_CORE", raising=False)
    monkeypatch.setitem(sys.modules, "radixkv.router.native_holdings", None)
    assert new_holdings().core == "python"
    with pytest.raises(CoreUnavailableError, match="not built"):
        new_holdings("native")


def test_what_is_held_alike_is_one_node(holdings):
    root = holdings.add_root()
    one, other = holdings.add_holder(), holdings.add_holder()
    for holder in (one, other):
        assert holdings.store(holder, 1, 0, 0, codes(1, 2, 3, 4), root)
    assert (holdings.num_nodes, holdings.total_size) == (1, 4)
    assert holdings.store(one, 2, 1, 2, codes(8, 9), root)
    assert (holdings.num_nodes, holdings.total_size) == (3, 6)
    assert holdings.trim(one, 2, 0)
    assert (holdings.num_nodes, holdings.total_size) == (1, 4), "and one node again"


def test_a_partial_holder_costs_no_node(holdings):
    root = holdings.add_root()
    one, other = holdings.add_holder(), holdings.add_holder()
    assert holdings.store(one, 1, 0, 0, codes(1, 2, 3, 4), root)
    assert holdings.store(other, 1, 0, 0, codes(1, 2), root)
    assert holdings.num_nodes == 1
    assert holdings.lengths([1, 2, 3, 4], root).tolist() == [4, 2]
    assert holdings.trim(one, 1, 1)
    assert holdings.lengths([1, 2, 3, 4], root).tolist() == [1, 2]
    assert holdings.total_size == 2, "what is held no more is gone"


def test_a_run_goes_on_where_another_ended(holdings):
    root = holdings.add_root()
    one, other = holdings.add_holder(), holdings.add_holder()
    assert holdings.store(one, 1, 0, 0, codes(1, 2, 3, 4, 5), root)
    assert holdings.store(other, 1, 0, 0, codes(1, 2), root)
    assert holdings.store(other, 2, 1, 2, codes(3, 4), root)
    assert not holdings.trim(other, 1, 1), "the second run continues there"
    assert holdings.trim(other, 2, 0)
    assert holdings.lengths([1, 2, 3, 4, 5], root).tolist() == [5, 2]
    assert [run[:3] for run in holdings.runs(other)] == [(1, 0, 0)]


def test_roots_share_nothing_and_go_when_they_are_empty(holdings):
    first, second = holdings.add_root(), holdings.add_root()
    holder = holdings.add_holder()
    assert holdings.store(holder, 1, 0, 0, codes(1, 2), first)
    assert holdings.lengths([1, 2], second).tolist() == [0]
    assert [holdings.is_empty_root(root) for root in (first, second)] == [False, True]
    holdings.remove_root(second)
    holdings.clear(holder)
    holdings.remove_root(first)


def test_pages_that_begin_alike_are_held_side_by_side(holdings):
    """What they share stays until the last of them goes, in whatever order they go."""
    root, other = holdings.add_root(), holdings.add_holder()
    for gone in permutations((1, 2, 3)):
        paged = holdings.add_holder(4)
        for run, page in ((1, (1, 2, 3, 4)), (2, (1, 2, 3, 5)), (3, (1, 2, 6, 7))):
            assert holdings.store(paged, run, 0, 0, codes(*page), root)
        assert holdings.store(other, 1, 0, 0, codes(1, 2, 3, 4, 5), root)
        assert (holdings.num_tokens(paged), holdings.total_size) == (12, 8)
        held = {run.run: run.codes.tolist() for run in holdings.runs(paged)}
        assert held == {1: [1, 2, 3, 4], 2: [1, 2, 3, 5], 3: [1, 2, 6, 7]}
        for run in gone:
            assert holdings.trim(paged, run, 0)
            assert holdings.check_integrity() == []
            del held[run]
            length = holdings.lengths([1, 2, 3, 4], root)[paged]
            assert length == max((_common(page, [1, 2, 3, 4]) for page in held.values()), default=0)
        holdings.remove_holder(paged)
        assert holdings.trim(other, 1, 0)
        assert (holdings.num_nodes, holdings.total_size) == (0, 0)


def _common(one, other):
    return next((at for at, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1), 4)


def test_a_page_below_may_begin_as_its_run_goes_on(holdings):
    root, paged = holdings.add_root(), holdings.add_holder(4)
    assert holdings.store(paged, 1, 0, 0, codes(1, 2, 3, 4, 5, 6, 7, 8), root)
    assert holdings.store(paged, 2, 1, 4, codes(5, 6, 9, 9), root)
    assert not holdings.trim(paged, 1, 0), "the second run continues there"
    assert holdings.trim(paged, 1, 4)
    assert [run.codes.tolist() for run in holdings.runs(paged)] == [[1, 2, 3, 4], [5, 6, 9, 9]]
    assert holdings.lengths([1, 2, 3, 4, 5, 6, 7, 8], root)[paged] == 6
    assert holdings.trim(paged, 2, 0)
    assert holdings.lengths([1, 2, 3, 4, 5, 6, 7, 8], root)[paged] == 4


def test_part_of_a_page_and_a_page_twice_are_refused(holdings):
    root, paged = holdings.add_root(), holdings.add_holder(4)
    assert holdings.store(paged, 1, 0, 0, codes(1, 2, 3, 4, 5, 6, 7, 8), root)
    assert not holdings.store(paged, 2, 0, 0, codes(1, 2, 3), root)
    assert not holdings.store(paged, 2, 1, 3, codes(9, 9, 9, 9), root)
    assert not holdings.store(paged, 2, 0, 0, codes(1, 2, 3, 4, 9, 9, 9, 9), root)
    assert not holdings.trim(paged, 1, 6)
    assert holdings.num_tokens(paged) == 8
