"""The table of layouts against the pools and backends that it describes."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from radixkv.attention import backend_status, get_backend
from radixkv.cli import app
from radixkv.memory.kv_pool import KV_DTYPES, MHATokenToKVPool, MLATokenToKVPool
from radixkv.memory.layouts import LAYOUTS, markdown

ROOT = Path(__file__).parents[2]
POOLS = {
    "MHA": lambda dtype, page_size: MHATokenToKVPool(16, 2, 3, 8, dtype, page_size=page_size),
    "MLA": lambda dtype, page_size: MLATokenToKVPool(16, 2, 12, 4, dtype, page_size=page_size),
}
OURS = [row for row in LAYOUTS if row.kernel in backend_status()]


def test_every_backend_has_a_row_for_each_kind_of_pool_that_it_takes():
    found = {(row.kernel, row.attention) for row in OURS}
    everything = {(name, kind) for name in backend_status() for kind in POOLS}
    assert found == everything - {("flashmla", "MHA")}


@pytest.mark.parametrize("kind", POOLS)
def test_pools_lie_in_memory_as_the_table_says(kind):
    """[L, B, N, H, C]: a layer's slots one after another, and the heads of each."""
    pool = POOLS[kind]("float32", 4)
    (layout,) = {row.layout for row in OURS if row.attention == kind}
    assert "[L, B, N, H" in layout
    first, second = pool.k(0), pool.k(1)
    assert first.is_contiguous()
    assert first.shape[:2] == (16 + 4, pool.kv_heads)
    assert second.data_ptr() - first.data_ptr() == first.numel() * 4
    assert ("K and V" in layout) == (pool.v(0).data_ptr() >= second.data_ptr() + first.numel() * 4)


@pytest.mark.parametrize("row", [row for row in OURS if row.kernel == "reference"])
def test_what_the_table_says_of_dtypes_and_pages_is_taken(row):
    assert row.dtypes.split(", ") == [*KV_DTYPES]
    for dtype in row.dtypes.split(", "):
        for page_size in (1, 2, 16):
            pool = POOLS[row.attention](dtype, page_size)
            assert get_backend(row.kernel, pool).pool.dtype == KV_DTYPES[dtype]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.gpu
@pytest.mark.parametrize("row", OURS)
def test_so_it_is_on_a_card(row):
    if backend_status()[row.kernel] is not None:
        pytest.skip("what it needs is not installed")
    for dtype in row.dtypes.split(", "):
        if row.attention == "MLA":
            page_size = 1 if row.page_sizes == "any" else int(row.page_sizes)
            pool = MLATokenToKVPool(128, 1, 512, 64, dtype, "cuda", page_size=page_size)
        else:
            pool = MHATokenToKVPool(16, 1, 2, 128, dtype, "cuda")
        assert get_backend(row.kernel, pool).pool.dtype == KV_DTYPES[dtype]


def test_doctor_prints_it():
    printed = CliRunner().invoke(app, ["doctor"]).stdout
    for row in LAYOUTS:
        assert row.kernel.split()[0] in printed
    assert "[L, B, N, H = 1" in printed


def test_the_documentation_has_it():
    assert markdown() in (ROOT / "docs" / "attention.md").read_text()
