"""The Triton backends against the float32 reference, on the card or interpreted."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from radixkv.attention import AttentionBatch, get_backend
from radixkv.errors import InvalidArgumentError, InvalidSlotsError
from radixkv.memory.kv_pool import MHATokenToKVPool
from tests.support.attention_batches import RAGGED, Batch, decode, difference, shared

HEADS = [(2, 2), (8, 2), (3, 1)]
FEATURES = [{"scale": 0.3}, {"softcap": 2.0}, {"window": 4}, {"window": 64}]


def batch_of(paths, heads=(8, 2), dim=16, **how):
    return Batch(*paths, heads=heads[0], kv_heads=heads[1], dim=dim, **how)


@pytest.mark.parametrize("name", ["triton", "tree"])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("heads", HEADS)
def test_a_ragged_mix_of_prompts_and_decodes(device, name, page_size, heads):
    batch = batch_of(RAGGED, heads, page_size=page_size, device=device)
    backend = get_backend(name, batch.pool)
    assert difference(batch.run(backend), batch.expected()) < 1e-5


@pytest.mark.parametrize("name", ["triton", "tree"])
@pytest.mark.parametrize("paths", [RAGGED, shared((8, 300), own=5)])
def test_queries_may_lie_in_memory_head_by_head(device, name, paths):
    """As they do where a model puts them together, of a rotated part and another for one."""
    batch = batch_of(paths, device=device)
    expected = batch.expected()
    batch.q = batch.q.transpose(0, 1).contiguous().transpose(0, 1)
    options = {"mode": "tree", "q_heads": 8} if name == "tree" else {}
    assert difference(batch.run(get_backend(name, batch.pool, **options)), expected) < 1e-5


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("paths", [RAGGED, decode([1, 40, 2100])])
def test_features_of_models(device, features, paths):
    batch = batch_of(paths, device=device)
    assert difference(batch.run(get_backend("triton", batch.pool), **features),
                      batch.expected(**features)) < 1e-5  # fmt: skip


@pytest.mark.parametrize("paths", [RAGGED, decode([1, 40, 2100])])
def test_sinks_take_part_in_the_softmax(device, paths):
    batch = batch_of(paths, device=device)
    sinks = torch.randn(8, device=device)
    found = batch.run(get_backend("triton", batch.pool), sinks=sinks)
    assert difference(found, batch.expected(sinks=sinks)) < 1e-5
    assert difference(found, batch.expected()) > 1e-2


TREES = {
    "one prefix": shared((8, 132)),
    "two levels": shared((8, 72), (4, 92)),
    "deep": shared((8, 40), (4, 40), (2, 200)),
    "a short shared run is not worth it": shared((8, 12), (2, 140)),
    "nothing is a request's own": shared((8, 132), own=0),
    "many": shared((36, 132), own=3, requests=36),
}


@pytest.mark.parametrize(("heads", "page_size"), [((4, 2), 1), ((7, 1), 4)])
@pytest.mark.parametrize("name", TREES)
def test_a_tree_gives_what_flat_gives(device, name, heads, page_size):
    batch = batch_of(TREES[name], heads, page_size=page_size, device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=heads[0])
    result = batch.run(backend)
    assert backend.explain().choice == "tree"
    assert difference(result, batch.expected()) < 1e-5


@pytest.mark.parametrize(("heads", "page_size"), [((4, 2), 1), ((8, 2), 1), ((7, 1), 4)])
@pytest.mark.parametrize("name", ["two levels", "nothing is a request's own"])
@pytest.mark.parametrize("query_lens", [(4,), (1, 3, 16)])
def test_a_tree_of_several_new_tokens_a_request(device, name, heads, page_size, query_lens):
    """Also where they are in slots that requests share; with NaN in the slots of others."""
    paths, ones = TREES[name]
    query_lens = [query_lens[at % len(query_lens)] for at in range(len(ones))]
    batch = batch_of((paths, query_lens), heads, page_size=page_size, device=device, spare=5)
    batch.spoil_the_rest()
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=heads[0])
    result = batch.run(backend)
    assert backend.explain().choice == "tree"
    assert difference(result, batch.expected()) < 1e-5


def test_drafts_that_are_verified_step_by_step(device):
    """Four tokens a request; as many as are accepted stay, and rows grow by different lengths."""
    batch = batch_of((shared((8, 132), own=60)[0], [4] * 8), device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=8)
    whole, ends = batch.rows, np.full(8, 150)
    for step in range(4):
        batch.rows = [row[:end] for row, end in zip(whole, ends, strict=True)]
        backend.plan(AttentionBatch(batch.rows, [4] * 8, [*range(8)]))
        assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5
        ends += 1 + (np.arange(8) + step) % 4
    # One token each again, by the same plan no longer.
    batch.rows, batch.query_lens, batch.q = [row[:-9] for row in whole], [1] * 8, batch.q[:8]
    for _ in range(3):
        backend.plan(AttentionBatch(batch.rows, [1] * 8, [*range(8)]))
        assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5
        batch.rows = [row[: len(now) + 1] for row, now in zip(whole, batch.rows, strict=True)]


@pytest.mark.parametrize("name", ["reference", "triton", "tree"])
@pytest.mark.parametrize(
    ("features", "error"),
    [
        ({"window": 0}, "window"),
        ({"window": -3}, "window.* -3"),
        ({"window": 2.5}, "window.*2.5"),
        ({"softcap": -2.0}, "softcap must .*; got -2.0"),
        ({"softcap": float("nan")}, "softcap must .*; got nan"),
        ({"sinks": torch.zeros(4)}, r"sinks must have shape \(8,\).*; got \(4,\)"),
    ],
)
def test_features_that_no_model_has_are_refused(device, name, features, error):
    batch = batch_of(TREES["two levels"], device=device)
    options = {"mode": "tree", "q_heads": 8} if name == "tree" else {}
    with pytest.raises(InvalidArgumentError, match=error):
        batch.run(get_backend(name, batch.pool, **options), **features)


@pytest.mark.parametrize("name", ["triton", "tree"])
@pytest.mark.parametrize(
    ("dtype", "scale", "error"),
    [
        (torch.float32, 2.0, "must be 1 over a pool of torch.float32.*; got 2.0"),
        (torch.float8_e4m3fn, 0.0, "k_scale must be a positive number; got 0.0"),
        (torch.float8_e4m3fn, float("nan"), "k_scale must be a positive number; got nan"),
    ],
)
def test_scales_that_no_pool_takes_are_refused(device, name, dtype, scale, error):
    pool = MHATokenToKVPool(16, 1, 2, 16, dtype, device)
    with pytest.raises(InvalidArgumentError, match=error):
        get_backend(name, pool, k_scale=scale)


@pytest.mark.parametrize("planned", [2, 16])
def test_queries_of_other_heads_than_a_tree_was_planned_for(device, planned):
    # So many under one run that a tile for 2 heads would have no room for 8.
    batch = batch_of(TREES["one prefix"], (8, 2), device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=planned)
    for _ in range(2):
        assert difference(batch.run(backend), batch.expected()) < 1e-5
    assert backend.explain().choice == "tree"


@pytest.mark.parametrize("q_heads", [0, -2, 1, 3])
def test_heads_that_no_query_can_have_are_refused(device, q_heads):
    batch = batch_of(TREES["two levels"], (8, 2), device=device)
    with pytest.raises(InvalidArgumentError, match=f"q_heads.*{q_heads}"):
        get_backend("tree", batch.pool, q_heads=q_heads)


def test_a_graph_of_a_tree_is_not_taken_for_one_with_other_flat_items(device):
    """Its layers with a window are flat."""
    batch = batch_of(decode([1500, 1040, 620]), device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=8)
    batch.run(backend, window=9)
    keys = []
    for length in (1040, 1010):
        batch.rows[1] = batch.rows[1][:length]
        backend.plan(batch.asked)
        keys.append(backend.graph_key)
    assert backend.explain().choice == "tree"
    assert keys[0] != keys[1]


def test_a_tree_under_more_heads_of_a_kv_head_than_a_tile_has_rows(device):
    batch = batch_of(TREES["two levels"], (71, 1), device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=71)
    assert difference(batch.run(backend), batch.expected()) < 1e-5


@pytest.mark.parametrize("features", [{"softcap": 2.0}, {"window": 9}, {"scale": 0.1}])
def test_a_tree_with_features_of_models(device, features):
    batch = batch_of(TREES["two levels"], device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=8)
    assert difference(batch.run(backend, **features), batch.expected(**features)) < 1e-5


def test_a_tree_with_sinks(device):
    batch = batch_of(TREES["two levels"], device=device)
    backend = get_backend("tree", batch.pool, mode="tree", q_heads=8)
    sinks = torch.randn(8, device=device)
    assert difference(batch.run(backend, sinks=sinks), batch.expected(sinks=sinks)) < 1e-5


@pytest.mark.parametrize("name", ["triton", "tree"])
def test_rows_that_grow_are_followed_from_step_to_step(device, name):
    batch = batch_of(TREES["one prefix"], (4, 1), device=device)
    options = {"mode": "tree", "q_heads": 4} if name == "tree" else {}
    backend = get_backend(name, batch.pool, **options)
    whole, names = batch.rows, [*range(8)]
    for length in (134, 135, 137):
        batch.rows = [row[:length] for row in whole]
        if length == 137:  # one leaves, one comes
            batch.rows, names = [*batch.rows[1:], whole[0]], [*names[1:], "new"]
        backend.plan(AttentionBatch(batch.rows, batch.query_lens, names))
        assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5


@pytest.mark.parametrize("name", ["triton", "tree"])
@pytest.mark.parametrize(
    ("page_size", "row", "error"),
    [
        (1, [4, 5, 99], "slots 1 to 16 of this pool; got 99"),
        (4, [4, 5, 99], "slots 4 to 19 of this pool; got 99"),
        (4, [4, 5, 6, -1], "slots 4 to 19 of this pool; got -1"),
        (1, [1.5, 2.5], "int32 arrays of one dimension; got float64 in 1"),
        (4, [[4, 5], [6, 7]], "of one dimension; got .* in 2"),
    ],
)
def test_rows_that_no_pool_has_are_refused(device, name, page_size, row, error):
    pool = MHATokenToKVPool(16, 1, 2, 16, torch.float32, device, page_size=page_size)
    backend = get_backend(name, pool)
    good = np.arange(4, 7, dtype=np.int32)
    row = np.array(row)
    for _ in range(2):
        backend.plan(AttentionBatch([good[:2]], [1], ["a"]))
        with pytest.raises(InvalidSlotsError, match=error):
            backend.plan(AttentionBatch([row], [1], ["a"]))


def test_padding_changes_nothing_and_is_a_number(device):
    batch = batch_of(TREES["two levels"], device=device)
    for backend in (
        get_backend("tree", batch.pool, mode="tree", q_heads=8),
        get_backend("triton", batch.pool),
    ):
        backend.plan(batch.asked, pad_to=12)
        q = torch.cat([batch.q, torch.randn(4, 8, 16, device=device)])
        result = backend.run(q, 0)
        assert difference(result[:8], batch.expected()) < 1e-5
        assert result.isfinite().all()
        k = torch.randn(12, 2, 16, device=device)
        backend.write(0, k, k)
        last = [int(row[-1]) for row in batch.rows]
        assert torch.equal(batch.pool.k(0)[last], k[:8])


def chosen(device, paths, heads=(4, 2), dim=128):
    batch = batch_of(paths, heads, dim=dim, device=device)
    backend = get_backend("tree", batch.pool, q_heads=heads[0])
    backend.plan(batch.asked)
    return backend.explain()


def test_a_tree_is_taken_where_it_pays(device):
    found = chosen(device, shared((64, 3000), own=8, requests=64))
    assert (found.choice, found.distinct_slots, found.slots) == ("tree", 3512, 192512)
    assert found.tree_us < found.flat_us
    assert str(found).startswith("tree by triton: it is estimated to be faster (tree ")
    little = shared((64, 150), own=9000, requests=64)
    assert chosen(device, little, (64, 1)).reason == "flat is estimated to be as fast"
    assert chosen(device, decode([300, 200, 9])).reason == "no shared run is long enough"
    assert chosen(device, RAGGED).reason == "a request has more than 16 new tokens"
