"""Rows of slots: who holds one, and how they reach a device."""

import numpy as np
import pytest
import torch

from radixkv.errors import InvalidArgumentError
from radixkv.memory import ReqToTokenPool


@pytest.fixture
def pool():
    return ReqToTokenPool(4, 6)


def test_rows_are_int32_on_the_host_and_empty(pool):
    assert (pool.rows.shape, pool.rows.dtype) == ((4, 6), np.int32)
    assert not pool.rows.any()
    assert (pool.max_requests, pool.max_context_len, pool.free_size) == (4, 6, 4)


def test_each_row_is_handed_out_once(pool):
    assert sorted(pool.allocate() for _ in range(4)) == [0, 1, 2, 3]
    assert pool.free_size == 0
    assert pool.allocate() is None
    assert pool.free_size == 0


def test_a_freed_row_comes_back(pool):
    rows = [pool.allocate() for _ in range(4)]
    pool.free(rows[2])
    assert pool.free_size == 1
    assert pool.allocate() == rows[2]
    assert pool.allocate() is None


def test_rows_and_free_size_agree_over_a_long_life(pool, rng):
    held = set()
    for _ in range(500):
        if rng.random() < 0.5:
            row = pool.allocate()
            assert (row is None) == (len(held) == 4)
            assert row not in held
            held |= {row} - {None}
        elif held:
            held.remove(row := sorted(held)[int(rng.integers(len(held)))])
            pool.free(row)
        assert pool.free_size == 4 - len(held)


@pytest.mark.parametrize("row", [-1, 4, 10**30, None, "0", 0.0, 1.5, [0]])
def test_what_is_no_row_is_not_freed(pool, row):
    for _ in range(4):
        pool.allocate()
    with pytest.raises(InvalidArgumentError, match="row must be held, one of 0 to 3"):
        pool.free(row)
    assert pool.free_size == 0


def test_a_free_row_is_not_freed(pool):
    row = pool.allocate()
    pool.free(row)
    for free in (row, 3):
        with pytest.raises(InvalidArgumentError, match=f"row must be held, .* got {free}"):
            pool.free(free)
    assert pool.free_size == 4
    assert sorted(pool.allocate() for _ in range(4)) == [0, 1, 2, 3]


def test_a_numpy_row_is_a_row(pool):
    for _ in range(4):
        pool.allocate()
    pool.free(np.int32(2))
    row = pool.allocate()
    assert (row, type(row)) == (2, int)


@pytest.mark.parametrize(
    "shape", [(0, 1), (1, 0), (-1, 4), (1.0, 4), (4, "6"), (None, 4), (True, 4)]
)
def test_a_pool_that_cannot_be_is_refused(shape):
    with pytest.raises(InvalidArgumentError, match=r"max_requests|max_context_len"):
        ReqToTokenPool(*shape)


# ---- page_table ----


@pytest.fixture
def filled(pool):
    pool.rows[:] = np.arange(24).reshape(4, 6)
    return pool


@pytest.mark.parametrize("rows", [[2, 0], (2, 0), np.array([2, 0]), torch.tensor([2, 0])])
def test_the_page_table_has_a_row_each_in_order(filled, rows):
    table = filled.page_table(rows, 3)
    assert (table.dtype, table.device.type) == (torch.int32, "cpu")
    assert table.tolist() == [[12, 13, 14], [0, 1, 2]]


def test_a_row_may_come_twice(filled):
    assert filled.page_table([1, 1], 2).tolist() == [[6, 7], [6, 7]]


def test_the_page_table_of_a_whole_row_and_of_none_of_it(filled):
    assert filled.page_table([3], 6).tolist() == [[18, 19, 20, 21, 22, 23]]
    assert filled.page_table([3], 0).shape == (1, 0)


def test_the_page_table_of_an_empty_batch(filled):
    table = filled.page_table([], 3)
    assert (table.shape, table.dtype) == ((0, 3), torch.int32)


def test_a_row_may_change_after_its_table_was_taken(filled):
    table = filled.page_table([0, 1], 6)
    filled.rows[:] = -1
    assert table.tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


@pytest.mark.parametrize("row", [-1, 4, 2**40])
def test_a_row_that_is_not_there_has_no_table(filled, row):
    with pytest.raises(InvalidArgumentError, match=f"rows must be from 0 to 3; got {row}"):
        filled.page_table([0, row], 3)


@pytest.mark.parametrize("width", [-1, 7, 100])
def test_a_table_is_no_wider_than_a_row(filled, width):
    with pytest.raises(InvalidArgumentError, match=f"width must be from 0 to 6; got {width}"):
        filled.page_table([0], width)
