"""The torch reference backend against plain attention over contiguous keys and values."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from radixkv.attention import AttentionBatch, ScoreOptions, get_backend
from radixkv.attention import reference as reference_module
from radixkv.errors import InvalidArgumentError, InvalidSlotsError
from radixkv.memory.kv_pool import MHATokenToKVPool

CONTEXTS, NEW_TOKENS = (37, 5, 20), (1, 5, 8)
Q_HEADS, KV_HEADS, HEAD_DIM, LAYERS = 8, 2, 64, 2


def pages_in_turn(contexts, page_size):
    """Rows of slots with pages dealt out to the requests in turn, from page 1 on."""
    rows, page = [[] for _ in contexts], 1
    while any(len(row) < n for row, n in zip(rows, contexts, strict=True)):
        for row, n in zip(rows, contexts, strict=True):
            if len(row) < n:
                row.extend(range(page * page_size, (page + 1) * page_size))
                page += 1
    return [np.array(row[:n], np.int32) for row, n in zip(rows, contexts, strict=True)]


def contiguous_attention(q, k, v, scale=None):
    """q: (n, heads, dim), k, v: (m, kv_heads, dim), the queries being the last n of m tokens."""
    n, m = len(q), len(k)
    mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    out = scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), mask, scale=scale, enable_gqa=True
    )
    return out.transpose(0, 1)


class Case:
    """Three requests whose contexts lie scattered in a pool of `dtype`, and the same contiguous."""

    def __init__(self, page_size=1, dtype=torch.float32, seed=0):
        torch.manual_seed(seed)
        self.rows = pages_in_turn(CONTEXTS, page_size)
        self.pool = MHATokenToKVPool(128, LAYERS, KV_HEADS, HEAD_DIM, dtype, page_size=page_size)
        self.backend = get_backend("reference", self.pool)
        self.kv = [
            [torch.randn(2, n, KV_HEADS, HEAD_DIM).to(dtype) for n in CONTEXTS]
            for _ in range(LAYERS)
        ]
        self.q = torch.randn(sum(NEW_TOKENS), Q_HEADS, HEAD_DIM)

    def attention(self, layer, scale=None):
        """Old tokens written beforehand, new ones through the plan, then the packed queries."""
        for row, n, (k, v) in zip(self.rows, NEW_TOKENS, self.kv[layer], strict=True):
            self.pool.write(layer, row[:-n], k[:-n], v[:-n])
        self.backend.plan(AttentionBatch(self.rows, NEW_TOKENS))
        new = [kv[:, -n:] for kv, n in zip(self.kv[layer], NEW_TOKENS, strict=True)]
        self.backend.write(layer, *torch.cat(new, 1))
        return self.backend.run(self.q, layer, ScoreOptions(scale))

    def expected(self, layer, scale=None):
        queries = self.q.split(NEW_TOKENS)
        return torch.cat(
            [
                contiguous_attention(q, *kv.float(), scale)
                for q, kv in zip(queries, self.kv[layer], strict=True)
            ]
        )


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_paged_attention_equals_contiguous_attention(page_size, scale):
    case = Case(page_size)
    for layer in range(LAYERS):
        difference = case.attention(layer, scale) - case.expected(layer, scale)
        assert difference.abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_what_is_stored_in_fewer_bits_is_attended_in_float32(dtype):
    case = Case(4, dtype)
    assert (case.attention(1) - case.expected(1)).abs().max() < 1e-5


def test_the_result_has_the_dtype_of_the_query():
    case = Case()
    case.q = case.q.bfloat16()
    assert case.attention(0).dtype == torch.bfloat16


def test_other_requests_and_padding_are_never_read():
    case = Case(4)
    expected = case.attention(0)
    unused = np.setdiff1d(np.arange(case.pool.num_slots + 4), np.concatenate(case.rows))
    case.pool.k(0)[unused] = float("nan")
    case.pool.v(0)[unused] = float("nan")
    assert torch.equal(case.backend.run(case.q, 0), expected)
    case.pool.k(0)[case.rows[0]] = float("nan")
    assert torch.equal(case.backend.run(case.q, 0)[1:], expected[1:])


def test_a_long_prompt_is_attended_in_pieces(monkeypatch):
    case = Case()
    expected = case.attention(0)
    monkeypatch.setattr(reference_module, "MAX_SCORES", Q_HEADS * 20 * 3)
    assert (case.backend.run(case.q, 0) - expected).abs().max() < 1e-6


def test_the_batch_says_where_new_tokens_go():
    batch = AttentionBatch([np.array([4, 5, 9], np.int32), np.array([7, 2], np.int32)], [2, 1])
    assert batch.num_tokens == 3
    assert batch.out_cache_loc.tolist() == [5, 9, 2]
    assert batch.positions.tolist() == [1, 2, 1]
    assert batch.last_tokens.tolist() == [1, 2]


ROW = np.array([1, 2], np.int32)


@pytest.mark.parametrize(
    ("rows", "query_lens", "named"),
    [
        ([], [], "got 0 rows"),
        ([ROW], [1, 1], "got 1 rows and 2 query lengths"),
        ([ROW], [0], r"query_lens\[0\] must be 1 to 2.*got 0"),
        ([ROW, ROW], [1, 3], r"query_lens\[1\] must be 1 to 2.*got 3"),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(rows, query_lens, named):
    with pytest.raises(InvalidArgumentError, match=named):
        AttentionBatch(rows, query_lens)


@pytest.mark.parametrize("versions", [[], ["a"], ["a", "b", "c"], ["a", "a"]])
def test_a_batch_has_a_version_for_each_of_its_rows_or_none(versions):
    with pytest.raises(InvalidArgumentError, match=f"for 2 rows; got {len(versions)}, "):
        AttentionBatch([ROW, ROW], [1, 1], versions)


@pytest.mark.parametrize("slot", [0, 3, 132, -1])
def test_a_plan_refuses_slots_the_pool_does_not_have(slot):
    case = Case(4)
    with pytest.raises(InvalidSlotsError, match="4 to 131") as raised:
        case.backend.plan(AttentionBatch([np.array([4, slot, 5], np.int32)], [1]))
    assert raised.value.details["slot"] == slot
    with pytest.raises(InvalidArgumentError, match="a batch must be planned; got none"):
        case.backend.run(case.q, 0)


@pytest.mark.parametrize("shape", [(13, 8, 64), (14, 7, 64), (14, 0, 64), (14, 8, 32), (14, 512)])
def test_a_query_of_another_shape_is_refused(shape):
    case = Case()
    case.backend.plan(AttentionBatch(case.rows, NEW_TOKENS))
    with pytest.raises(InvalidArgumentError, match="q must have shape"):
        case.backend.run(torch.zeros(shape), 0)
