"""Each Triton kernel against a torch reference, on a card or interpreted."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from radixkv.kernels.gpu.attend import merge_states
from radixkv.kernels.gpu.store import copy_slots, move_rows, write_kv, write_rows

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn]


def pool_of(dtype, device, slots=40, heads=3, dim=24):
    return torch.randn(slots, heads, dim, device=device).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_write_kv_stores_each_row_at_its_slot_and_nothing_else(device, dtype, n, index):
    k_pool, v_pool = pool_of(dtype, device), pool_of(dtype, device)
    expected = [k_pool.clone(), v_pool.clone()]
    slots = torch.randperm(39, device=device)[:n].to(index) + 1
    # What the pool can hold: to round alike is no promise of the interpreter.
    k, v = (torch.randn(n, 3, 24, device=device).to(dtype) for _ in range(2))
    write_kv(k_pool, v_pool, slots, *(x.float() if dtype.itemsize == 1 else x for x in (k, v)))
    for pool, right, rows in zip((k_pool, v_pool), expected, (k, v), strict=True):
        right = right.float()
        right[slots.long()] = rows.float()
        assert torch.equal(pool.float(), right)


def test_write_kv_takes_heads_that_lie_before_tokens(device):
    k_pool, v_pool = pool_of(torch.float32, device), pool_of(torch.float32, device)
    k, v = (torch.randn(3, 5, 24, device=device).transpose(0, 1) for _ in range(2))
    slots = torch.tensor([9, 3, 4, 1, 30], device=device)
    write_kv(k_pool, v_pool, slots, k, v)
    assert torch.equal(k_pool[slots], k)
    assert torch.equal(v_pool[slots], v)


def test_fp8_is_scaled_and_saturates(device):
    k_pool, v_pool = (pool_of(torch.float8_e4m3fn, device) for _ in range(2))
    k = torch.full((1, 3, 24), 1e6, device=device)
    write_kv(k_pool, v_pool, torch.tensor([5], device=device), k, -k, k_scale=2.0, v_scale=1e6)
    assert k_pool[5].float().unique().tolist() == [448.0]
    assert v_pool[5].float().unique().tolist() == [-1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_slots_copies_all_layers_bit_by_bit(device, dtype):
    pool = torch.randn(2, 3, 20, 2, 24, device=device).to(dtype)
    expected = pool.float()
    source, target = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([1, 2], [9, 17]))
    expected[:, :, [9, 17]] = expected[:, :, [1, 2]]
    copy_slots(pool, source, target)
    assert torch.equal(pool.float(), expected)


def test_write_rows_writes_every_piece_in_its_place(device):
    rng = np.random.default_rng(0)
    table = torch.zeros(6, 5000, dtype=torch.int32, device=device)
    expected = table.clone()
    pieces, entries = [], []
    for row, column, count in ((0, 5, 1), (2, 0, 3000), (3, 4990, 10), (5, 100, 33)):
        pieces.append((row, column, count, len(entries)))
        new = rng.integers(1, 1000, count).tolist()
        entries += new
        expected[row, column : column + count] = torch.tensor(new, dtype=torch.int32)
    on_device = [torch.tensor(x, dtype=torch.int32, device=device) for x in (pieces, entries)]
    write_rows(table, *on_device, longest=3000)
    assert torch.equal(table, expected)


@pytest.mark.parametrize(
    "moves", [[(1, 0)], [(at + 1, at) for at in range(40)], [(0, 5), (5, 9), (9, 0), (3, 1)]]
)
@pytest.mark.parametrize("width", [1, 700])
def test_rows_that_move_are_all_read_before_any_is_written(device, moves, width):
    table = torch.randint(0, 99, (41, 1024), dtype=torch.int32, device=device)
    expected = table.clone()
    for source, target in moves:
        expected[target, :width] = table[source, :width]
    move_rows(table, torch.tensor(moves, dtype=torch.int32, device=device), width)
    assert torch.equal(table[:, :width], expected[:, :width])


@pytest.mark.parametrize("with_sinks", [False, True])
def test_merge_joins_what_a_softmax_over_all_would_give(device, with_sinks):
    merge_indptr = torch.tensor([0, 1, 12, 12, 14], dtype=torch.int32, device=device)
    parts, lse = torch.randn(14, 2, 24, device=device), torch.randn(14, 2, device=device) * 3
    lse[3] = float("-inf")  # a part that saw nothing
    sinks = torch.randn(2, device=device) if with_sinks else None
    out = torch.full((4, 2, 24), float("nan"), device=device)
    merge_states(parts, lse, merge_indptr, out, sinks)
    for token, (start, end) in enumerate([(0, 1), (1, 12), (12, 12), (12, 14)]):
        weights = torch.exp2(lse[start:end])
        total = weights.sum(0) + (0 if sinks is None else sinks.exp())
        expected = (parts[start:end] * weights[:, :, None]).sum(0) / total[:, None]
        if start == end:
            expected = torch.zeros(2, 24, device=device)  # padding, which must be a number
        assert (out[token] - expected).abs().max() < 1e-5
