"""Which slots are free: none twice, none of page 0, all or nothing."""

from array import array

import numpy as np
import pytest
import torch

from radixkv.errors import InvalidArgumentError, InvalidSlotsError, SlotNotAllocatedError
from radixkv.memory import new_allocator


@pytest.fixture
def new_pool(core):
    return lambda num_slots, page_size=1: new_allocator(num_slots, page_size, core)


@pytest.fixture
def pool(new_pool, page_size):
    """Six pages."""
    return new_pool(6 * page_size, page_size)


def pages(pool, *numbers):
    """The slots of pages."""
    return [page * pool.page_size + at for page in numbers for at in range(pool.page_size)]


def free_set(pool):
    slots = pool.free_slots().tolist()
    assert len(slots) == len(set(slots)) == pool.free_size
    return set(slots)


# ---- allocate ----


def test_slots_come_in_order_and_never_of_page_zero(pool):
    slots = pool.allocate(6 * pool.page_size)
    assert slots.dtype == np.int32
    assert slots.tolist() == pages(pool, 1, 2, 3, 4, 5, 6)
    assert slots[0] == pool.page_size
    assert slots[-1] == pool.num_slots + pool.page_size - 1
    assert pool.free_size == 0


def test_at_page_size_one_ids_run_from_one_to_n(new_pool):
    assert new_pool(5).allocate(5).tolist() == [1, 2, 3, 4, 5]


def test_too_many_are_refused_whole(pool):
    pool.allocate(4 * pool.page_size)
    before = free_set(pool)
    assert pool.allocate(3 * pool.page_size) is None
    assert pool.allocate(10**12 * pool.page_size) is None
    assert free_set(pool) == before
    assert pool.allocate(2 * pool.page_size).tolist() == pages(pool, 5, 6)


def test_none_are_always_there(pool):
    for n in (0, 6 * pool.page_size, 0):
        slots = pool.allocate(n)
        assert (slots.dtype, slots.shape) == (np.int32, (n,))


@pytest.mark.parametrize("number", [np.int8(2), np.uint8(2), np.int32(2), np.int64(2)])
def test_any_int_says_how_many(new_pool, number):
    pool = new_pool(1_000)
    assert pool.allocate(number).tolist() == [1, 2]
    assert pool.free_size == 998
    assert type(pool.free_size) is int


@pytest.mark.parametrize("number", [-1, -(10**20), 1.0, 2.5, "1", None, [1], float("nan")])
def test_what_is_no_amount_takes_nothing(new_pool, number):
    pool = new_pool(6)
    with pytest.raises(InvalidArgumentError, match=r"^n must be "):
        pool.allocate(number)
    assert free_set(pool) == {1, 2, 3, 4, 5, 6}


def test_a_part_of_a_page_is_refused(new_pool):
    pool = new_pool(16, 4)
    for n in (1, 3, 5, 15):
        with pytest.raises(InvalidArgumentError, match=f"n must be .* page size 4; got {n}"):
            pool.allocate(n)
    assert pool.free_size == 16


def test_slots_handed_out_are_the_callers(pool):
    slots = pool.allocate(2 * pool.page_size)
    slots[:] = 0
    assert pool.allocate(2 * pool.page_size).tolist() == pages(pool, 3, 4)
    pool.free(pages(pool, 1, 2))
    assert free_set(pool) == set(pages(pool, 1, 2, 5, 6))
    pool.free_slots()[:] = 0
    assert free_set(pool) == set(pages(pool, 1, 2, 5, 6))


# ---- free ----


def test_what_was_freed_last_is_handed_out_first(pool):
    pool.allocate(6 * pool.page_size)
    pool.free(pages(pool, 5))
    pool.free(pages(pool, 4, 2))
    assert pool.allocate(2 * pool.page_size).tolist() == pages(pool, 4, 2)
    assert pool.allocate(pool.page_size).tolist() == pages(pool, 5)
    assert pool.allocate(pool.page_size) is None


def test_free_of_nothing(pool):
    for nothing in ([], (), np.empty(0, np.int32), np.empty(0)):
        pool.free(nothing)
    assert pool.free_size == 6 * pool.page_size


FORMS = {
    "list": list,
    "tuple": tuple,
    "int32": lambda ids: np.array(ids, np.int32),
    "int64": lambda ids: np.array(ids, np.int64),
    "uint8": lambda ids: np.array(ids, np.uint8),
    "uint64": lambda ids: np.array(ids, np.uint64),
    "array": lambda ids: array("i", ids),
    "tensor": torch.tensor,
    "backwards": lambda ids: np.array(ids[::-1], np.int32)[::-1],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_is_freed(pool, form):
    pool.allocate(6 * pool.page_size)
    pool.free(form(pages(pool, 3, 1)))
    assert free_set(pool) == set(pages(pool, 1, 3))


def test_the_order_of_slots_within_one_free_does_not_matter(pool, rng):
    for _ in range(50):
        held = pool.allocate(6 * pool.page_size)
        pool.free(rng.permutation(held[: 4 * pool.page_size]))
        pool.free(rng.permutation(held[4 * pool.page_size :]))
        assert free_set(pool) == set(pages(pool, 1, 2, 3, 4, 5, 6))


def test_pages_that_interleave_are_freed_once_each(new_pool):
    pool = new_pool(8, 4)
    pool.allocate(8)
    pool.free([4, 8, 5, 9, 6, 10, 7, 11])
    assert sorted(pool.allocate(8).tolist()) == list(range(4, 12))


@pytest.mark.parametrize("page", [0, 7, 8, -1, 2**20])
def test_a_page_out_of_range_is_named_and_nothing_freed(pool, page):
    pool.allocate(6 * pool.page_size)
    with pytest.raises(InvalidSlotsError, match="slots must be from") as caught:
        pool.free(pages(pool, 1, page))
    assert caught.value.details["slot"] in pages(pool, page)
    low, high = pool.page_size, pool.num_slots + pool.page_size - 1
    assert f"from {low} to {high}" in str(caught.value)
    assert pool.free_size == 0


def test_a_huge_slot_is_out_of_range_too(pool):
    pool.allocate(6 * pool.page_size)
    for slot in (2**31, 2**32 + 1, 2**63, -(2**63), 2**64 - 1):
        with pytest.raises(InvalidSlotsError, match=str(slot)):
            pool.free([slot])
    with pytest.raises(InvalidSlotsError):
        pool.free([10**30])
    assert pool.free_size == 0


@pytest.mark.parametrize("already", [1, 3, 6])
def test_a_slot_that_is_free_already_is_named_and_nothing_freed(pool, already):
    pool.allocate(6 * pool.page_size)
    pool.free(pages(pool, already))
    before = free_set(pool)
    others = [page for page in range(1, 7) if page != already]
    with pytest.raises(SlotNotAllocatedError, match="which is free") as caught:
        pool.free(pages(pool, *others, already))
    assert caught.value.details["slot"] in pages(pool, already)
    assert free_set(pool) == before


def test_a_slot_never_handed_out_is_free_already(pool):
    with pytest.raises(SlotNotAllocatedError, match=f"got {pool.page_size}, which is free"):
        pool.free(pages(pool, 1))
    assert pool.free_size == 6 * pool.page_size


def test_a_slot_that_comes_twice_is_named_and_nothing_freed(pool):
    pool.allocate(6 * pool.page_size)
    twice = pages(pool, 4)[-1]
    with pytest.raises(SlotNotAllocatedError, match=f"slots must be distinct; got {twice} twice"):
        pool.free([*pages(pool, 2, 4), twice])
    assert pool.free_size == 0
    pool.free(pages(pool, 2, 4))


@pytest.mark.parametrize("given", [[4, 5, 6], [4], [5, 6, 7, 8], [4, 5, 6, 8], [4, 5, 6, 7, 11]])
def test_a_part_of_a_page_is_not_freed(new_pool, given):
    pool = new_pool(16, 4)
    pool.allocate(16)
    with pytest.raises(InvalidSlotsError, match="whole pages of 4") as caught:
        pool.free(given)
    assert caught.value.details["slot"] in given
    assert pool.free_size == 0


BAD = {
    "a float": [1.0],
    "a float that would be cut": [1.9],
    "not a number": [float("nan")],
    "a bool": [True],
    "text": ["1"],
    "None in it": [1, None],
    "None": None,
    "a slot by itself": 1,
    "a 0-d array": np.array(1),
    "two dimensions": [[1], [2]],
    "ragged": [[1], [2, 3]],
    "a set": {1, 2},
    "a generator": (slot for slot in (1, 2)),
    "an object array": np.array([1, 2], object),
    "a float array": np.array([1.0, 2.0]),
    "bytes": b"\1\0\0\0",
    "a float tensor": torch.tensor([1.0]),
}


@pytest.mark.parametrize("slots", BAD.values(), ids=BAD)
def test_what_are_no_slots_is_refused(new_pool, slots):
    pool = new_pool(6)
    pool.allocate(6)
    with pytest.raises(InvalidSlotsError):
        pool.free(slots)
    assert pool.free_size == 0


# ---- the pool ----


@pytest.mark.parametrize(
    "shape",
    [(0, 1), (-4, 1), (5, 4), (2, 4), (4, 0), (4, -1), (4.0, 1), (4, 1.0), ("4", 1), (True, 1),
     (4, True), (None, 1), (4, None), (2**31, 1), (2**31 - 1, 1), (2**40, 2**20)],
)  # fmt: skip
def test_a_pool_that_cannot_be_is_refused(new_pool, shape):
    with pytest.raises(InvalidArgumentError, match=r"num_slots|page_size"):
        new_pool(*shape)


def test_one_page_is_a_pool(new_pool):
    pool = new_pool(16, 16)
    assert pool.allocate(16).tolist() == list(range(16, 32))
    assert pool.allocate(16) is None


def test_a_million_slots_go_round(new_pool, rng):
    pool = new_pool(1_000_000)
    slots = pool.allocate(1_000_000)
    pool.free(rng.permutation(slots))
    assert sorted(pool.allocate(1_000_000).tolist()) == list(range(1, 1_000_001))
