"""Attention over latents (MLA) against float64, on the card or interpreted."""

import pytest
import torch

pytest.importorskip("triton")

from radixkv.attention import AttentionBatch, ScoreOptions, get_backend
from radixkv.attention.shared_prefix.device_plan import Kind
from radixkv.errors import InvalidArgumentError
from radixkv.memory.kv_pool import MLATokenToKVPool
from tests.support.attention_batches import RAGGED, Batch, decode, difference, random_tree, shared

SCALE = 0.2
OPTIONS = ScoreOptions(SCALE)
DECODE = shared((8, 72), (4, 92))


def batch_of(paths, device, heads=4, dim=16, rope=8, **how):
    return Batch(*paths, heads=heads, kv_heads=1, dim=dim, rope=rope, device=device, **how)


def backend_of(name, batch, **options):
    if name == "tree":
        options = {"mode": "tree", "q_heads": batch.q.shape[1]} | options
    return get_backend(name, batch.pool, **options)


def apart(name, batch, **options):
    """From float64, with NaN in every slot that no row has."""
    batch.spoil_the_rest()
    backend = backend_of(name, batch, **options)
    return difference(batch.run(backend, scale=SCALE), batch.exact(SCALE))


@pytest.mark.parametrize(("heads", "page_size"), [(1, 1), (6, 4)])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["triton", "tree"])
def test_random_trees(device, name, seed, heads, page_size):
    paths = random_tree(seed)
    batch = batch_of(paths, device, heads, page_size=page_size, spare=7, seed=seed)
    assert apart(name, batch) < 1e-5


@pytest.mark.parametrize("name", ["triton", "tree"])
@pytest.mark.parametrize("paths", [RAGGED, DECODE, decode([1, 40, 1100])])
def test_prompts_and_decodes(device, name, paths):
    batch = batch_of(paths, device, spare=7)
    assert apart(name, batch) < 1e-5


@pytest.mark.parametrize(("dim", "rope"), [(32, 16), (24, 4), (128, 64)])
def test_latents_of_other_sizes(device, dim, rope):
    batch = batch_of(DECODE, device, dim=dim, rope=rope, spare=7)
    assert apart("tree", batch) < 1e-5


@pytest.mark.parametrize("heads", [32, 24])
@pytest.mark.parametrize("name", ["triton", "tree"])
def test_more_heads_than_a_tile_has_rows_are_computed_in_parts(device, name, heads):
    """A tile of 16 rows, as small cards have."""
    batch = batch_of(shared((4, 72), own=9, requests=4), device, heads, spare=7)
    assert apart(name, batch) < 1e-5


@pytest.mark.parametrize("name", ["triton", "tree"])
def test_fp8_latents_are_scaled_once(device, name):
    """What is written is divided by the scale of keys, values being part of them."""
    batch = batch_of(DECODE, device, dtype=torch.float8_e4m3fn)
    batch.q = batch.q.float()
    expected = batch.exact(2 * SCALE) * 2
    backend = backend_of(name, batch, k_scale=2.0, v_scale=2.0)
    assert difference(batch.run(backend, scale=SCALE), expected) < 1e-5
    with pytest.raises(InvalidArgumentError, match="must be equal over latents"):
        backend_of(name, batch, k_scale=2.0)


def test_a_tree_reads_what_is_shared_once(device):
    batch = batch_of(DECODE, device)
    backend = backend_of("tree", batch)
    batch.run(backend, scale=SCALE)
    found = backend.explain()
    assert found.choice == "tree"
    assert found.shared_runs
    assert found.distinct_slots < found.slots


def test_rows_that_grow_are_followed_from_step_to_step(device):
    """The items of both kinds are in one list, whose growing ones are found again."""
    batch = batch_of(shared((8, 132), own=60), device)
    backend = backend_of("tree", batch)
    whole = batch.rows
    for length in (140, 141, 170):
        batch.rows = [row[:length] for row in whole]
        backend.plan(AttentionBatch(batch.rows, batch.query_lens, [*range(8)]))
        assert len(backend.kernels._kept.plan.narrow) > 8
        found = difference(backend.run(batch.q, 0, OPTIONS), batch.exact(SCALE))
        assert found < 1e-5


def test_one_graph_serves_every_plan_of_as_many_tokens(device):
    """One kernel computes all items, whatever is shared."""
    pool = MLATokenToKVPool(1200, 1, 16, 8, torch.float32, device)
    backend = get_backend("tree", pool, mode="tree", q_heads=4)
    backend.reserve(8, 1024)
    keys = []
    for paths in (DECODE, shared((8, 300), own=2), decode([600, 3, 40, 1, 1, 90, 200, 77])):
        batch = batch_of(paths, device)
        backend.plan(AttentionBatch(batch.rows, batch.query_lens))
        assert backend.kernels._on_device.kind == Kind()
        keys.append((backend.graph_key, len(backend.graph_keys())))
    assert keys == [keys[0]] * 3
    assert keys[0][1] == 2  # flat, and the tree


def test_padding_is_a_number(device):
    batch = batch_of(DECODE, device)
    backend = backend_of("tree", batch)
    backend.plan(batch.asked, pad_to=12)
    q = torch.cat([batch.q, torch.randn(4, *batch.q.shape[1:], device=device)])
    result = backend.run(q, 0, OPTIONS)
    assert result.shape == (12, 4, 16)
    assert difference(result[:8], batch.exact(SCALE)) < 1e-5
    assert result.isfinite().all()
    latent, rope = torch.randn(12, 1, 16, device=device), torch.randn(12, 1, 8, device=device)
    backend.write(0, latent, rope)
    last = [int(row[-1]) for row in batch.rows]
    assert torch.equal(batch.pool.k(0)[last], torch.cat([latent, rope], -1)[:8])


@pytest.mark.parametrize("name", ["triton", "tree", "reference"])
def test_what_latents_do_not_have_is_refused(device, name):
    batch = batch_of(DECODE, device)
    backend = backend_of(name, batch)
    with pytest.raises(InvalidArgumentError, match="scale must be given over latents"):
        batch.run(backend)
    with pytest.raises(InvalidArgumentError, match=r"rope must have shape \(8, 1, 8\)"):
        backend.write(0, torch.zeros(8, 1, 16), torch.zeros(8, 1, 16))
    batch.q = batch.q[..., :16]
    with pytest.raises(InvalidArgumentError, match=r"q must have shape \(8, a multiple of 1, 24\)"):
        batch.run(backend, scale=SCALE)


def test_a_tree_is_not_taken_where_the_heads_of_a_token_fill_a_tile(device):
    batch = batch_of(DECODE, device, heads=64)
    backend = get_backend("tree", batch.pool, q_heads=64)
    backend.plan(batch.asked)
    assert "the heads of one token fill a tile" in str(backend.explain())
