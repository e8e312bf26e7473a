"""What is short when there is no room for a request."""

import pytest

from radixkv import Namespace
from radixkv.errors import InvalidArgumentError, InvalidNamespaceError
from radixkv.tree.shares import Share
from tests.support.caches import admit


def test_nothing_is_short_while_admit_has_room(new_cache):
    cache = new_cache(8)
    assert cache.why_full(8) is None
    assert cache.why_full(9) is not None


def test_rows_are_named(new_cache):
    cache = new_cache(1_000, max_requests=2)
    held = [admit(cache, [n]) for n in range(2)]
    assert cache.admit([9]) is None
    assert "max_requests must be above the live requests; got 2" in cache.why_full(1)
    cache.finish(held[0])
    assert cache.why_full(1) is None


def test_what_holds_the_slots_is_named(new_cache):
    cache = new_cache(10)
    first = admit(cache, [1, 2, 3])
    cache.publish(first, 3)
    cache.loans.allocate(cache.loans.new_borrower(), 2)
    assert cache.admit([5] * 6) is None
    why = cache.why_full(6)
    assert why.startswith("6 slots are needed, 5 are free and 0 can be evicted; of 10 there are ")
    assert "2 of live requests and on loan" in why
    assert "3 cached and locked" in why


def test_what_is_reserved_for_others_is_named(new_cache):
    cache = new_cache(8, shares={"a": Share(reserve=6)})
    mine = Namespace(salt="a")
    cache.finish(admit(cache, [1, 2, 3, 4, 5, 6], mine), up_to=6)
    assert "6 reserved for other namespaces" in cache.why_full(3)
    assert cache.why_full(3, mine) is None


@pytest.mark.parametrize("number", [-1, 1.5, None, True])
def test_a_number_of_tokens_is_an_int(new_cache, number):
    with pytest.raises(InvalidArgumentError, match="num_tokens must be"):
        new_cache(8).why_full(number)


def test_a_namespace_is_one(new_cache):
    with pytest.raises(InvalidNamespaceError):
        new_cache(8).why_full(1, "a")
