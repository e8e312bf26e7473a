"""Latents (MLA) on a card, in bf16: the kernels there, FA3's `qv`, and graphs."""

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
pytestmark = pytest.mark.gpu

from radixkv.attention import ScoreOptions, backend_status, get_backend  # noqa: E402
from radixkv.errors import InvalidArgumentError  # noqa: E402
from tests.support.attention_batches import Batch, decode, difference, random_tree, shared  # noqa: E402

BACKENDS = [name for name in ("triton", "tree", "fa3") if backend_status()[name] is None]
HAS_FLASHMLA = backend_status()["flashmla"] is None
SCALE = 192**-0.5
ROUNDING = 6e-3


def batch_of(paths, heads, page_size=1, dtype=torch.bfloat16, seed=0):
    """DeepSeek's latents."""
    return Batch(
        *paths, heads=heads, kv_heads=1, dim=512, rope=64, dtype=dtype, page_size=page_size,
        device="cuda", seed=seed, spare=5,
    )  # fmt: skip


def backend_of(name, batch):
    options = {"mode": "tree", "q_heads": batch.q.shape[1]} if name == "tree" else {}
    return get_backend(name, batch.pool, **options)


def check(name, batch, **features):
    expected = batch.expected(scale=SCALE, **features) if features else batch.exact(SCALE)
    if name in ("triton", "tree"):
        batch.spoil_the_rest()
    backend = backend_of(name, batch)
    result = batch.run(backend, scale=SCALE, **features)
    assert difference(result, expected) < ROUNDING
    # Not only on the average: each head of each token.
    apart = (result.to(expected) - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert apart.max() < 5 * ROUNDING
    return backend


@pytest.mark.parametrize(("heads", "page_size"), [(16, 1), (128, 1), (16, 64), (20, 4)])
@pytest.mark.parametrize("name", BACKENDS)
def test_random_trees(name, heads, page_size):
    for seed in range(3):
        paths, query_lens = random_tree(seed, requests=40)
        if page_size == 64:
            paths = [[(run, -(-n // 64) * 64) for run, n in path] for path in paths]
        check(name, batch_of((paths, query_lens), heads, page_size, seed=seed))


@pytest.mark.skipif(not HAS_FLASHMLA, reason="FlashMLA is not installed")
@pytest.mark.parametrize("heads", [16, 128])
def test_flashmla_decodes_in_pages_of_64(heads):
    paths = shared((8, 640), own=70)
    check("flashmla", batch_of(paths, heads, 64))
    check("flashmla", batch_of((paths[0], [1, 2, 3, 4, 5, 6, 7, 8]), heads, 64))
    with pytest.raises(InvalidArgumentError, match=r"in pages of 64 for flashmla; got .* of 1"):
        get_backend("flashmla", batch_of(paths, heads).pool)


@pytest.mark.parametrize("paths", [shared((64, 3000), own=77, requests=64), decode([3000, 1, 70])])
@pytest.mark.parametrize("name", BACKENDS)
def test_decodes(name, paths):
    check(name, batch_of(paths, 16))


@pytest.mark.parametrize("name", ["triton", "tree"])
def test_what_is_left_to_triton(name):
    backend = check(name, batch_of(shared((8, 600), own=30), 16), softcap=2.0)
    if name == "tree":
        assert backend.explain().kernels in ("cuda", "triton")
    check(name, batch_of(shared((8, 600), own=30), 16, dtype=torch.float16))


def test_scores_that_rise_along_the_rows():
    """So that every tile has a new top and what was summed before it shrinks."""
    batch = batch_of(shared((8, 1024), own=200), 16)
    along = torch.randn(576, device="cuda")
    along /= along.norm()
    for row in batch.rows:
        rising = torch.linspace(0, 20, len(row), device="cuda")[:, None, None]
        batch.pool.k(0)[torch.from_numpy(row).cuda()] += (rising * along).bfloat16()
    batch.q = (batch.q / 20 + along).bfloat16()
    found = batch.run(backend_of("tree", batch), scale=1.0)
    assert difference(found, batch.expected(scale=1.0)) < ROUNDING


def test_the_same_twice():
    batch = batch_of(shared((64, 3000), own=77, requests=64), 16)
    backend = backend_of("tree", batch)
    assert torch.equal(batch.run(backend, scale=SCALE), batch.run(backend, scale=SCALE))


def test_a_captured_step_serves_later_plans():
    options = ScoreOptions(SCALE)
    trees = [shared((16, 512), own=40, requests=16), shared((4, 300), own=9, requests=16),
             decode([*range(1, 321, 20)])]  # fmt: skip
    batches = [batch_of(paths, 16) for paths in trees]
    pool = max((batch.pool for batch in batches), key=lambda pool: pool.num_slots)
    backend = get_backend("tree", pool, mode="tree", q_heads=16)
    backend.reserve(16, 1024)
    q = batches[0].q.clone()
    backend.plan(batches[0].asked)
    backend.run(q, 0, options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = backend.run(q, 0, options)
    for batch in batches:
        key = backend.graph_key
        backend.plan(batch.asked)
        assert backend.graph_key == key
        pool.k(0)[: len(batch.pool.k(0))] = batch.pool.k(0)
        q.copy_(batch.q)
        graph.replay()
        assert difference(out, batch.expected(scale=SCALE)) < ROUNDING
