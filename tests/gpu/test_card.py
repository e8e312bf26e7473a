"""What only a card can show: bf16, FA3, the CUDA kernel, graphs, and slots beyond 32-bit math."""

import itertools

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
pytestmark = pytest.mark.gpu

from radixkv.attention import AttentionBatch, backend_status, get_backend  # noqa: E402
from radixkv.errors import InvalidArgumentError  # noqa: E402
from radixkv.memory.kv_pool import MHATokenToKVPool  # noqa: E402
from tests.support.attention_batches import RAGGED, Batch, decode, difference, shared  # noqa: E402

HAS_FA3 = backend_status()["fa3"] is None
BACKENDS = ["triton", "tree", *(["fa3"] if HAS_FA3 else [])]
# Rounding of the result, of the weights, and of the products within a block.
ROUNDING = {torch.bfloat16: 6e-3, torch.float16: 8e-4, torch.float8_e4m3fn: 6e-2}
HEADS = [(32, 8, 128), (28, 4, 128), (9, 3, 64), (8, 8, 64)]


def batch_of(paths, heads, dtype, page_size, seed=0):
    return Batch(
        *paths, heads=heads[0], kv_heads=heads[1], dim=heads[2], dtype=dtype, page_size=page_size,
        device="cuda", seed=seed,
    )  # fmt: skip


def backend_of(name, batch, **options):
    if name == "tree":
        options |= {"mode": "tree", "q_heads": batch.q.shape[1]}
    return get_backend(name, batch.pool, **options)


def random_paths(seed):
    """A tree of random depth and branching, whole pages of 256 being shared."""
    rng = np.random.default_rng(seed)
    paths, requests = [], int(rng.integers(1, 90))
    depth = int(rng.integers(0, 4))
    for request in range(requests):
        groups = [(level, request // 4 ** (depth - level)) for level in range(depth)]
        path = [(group, 256 * (1 + hash(group) % 5)) for group in groups]
        paths.append([*path, (request, int(rng.integers(1, 900)))])
    return paths, [1] * requests


# Each page size with each head shape and dtype at least once: a full product compiles for minutes.
MATRIX = [
    *((heads, 1, torch.bfloat16) for heads in HEADS),
    (HEADS[0], 16, torch.float16),
    (HEADS[1], 64, torch.bfloat16),
    (HEADS[2], 128, torch.float16),
    (HEADS[3], 256, torch.bfloat16),
    (HEADS[2], 16, torch.bfloat16),
    # More heads a KV head than a narrow CUDA tile has rows.
    ((71, 1, 64), 1, torch.bfloat16),
]


@pytest.mark.parametrize(("heads", "page_size", "dtype"), MATRIX)
@pytest.mark.parametrize("name", BACKENDS)
def test_random_trees(name, heads, page_size, dtype):
    for seed in range(4):
        batch = batch_of(random_paths(seed), heads, dtype, page_size, seed)
        result = batch.run(backend_of(name, batch))
        expected = batch.expected()
        assert difference(result, expected) < ROUNDING[dtype]
        # Not only on the average: each head of each request.
        apart = (result.float() - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert apart.max() < 5 * ROUNDING[dtype]


# Of all that the CUDA kernels serve: heads, page size, dtype of K and V, of the queries.
ON_CUDA = [
    ((32, 8, 128), 1, torch.bfloat16, torch.bfloat16),
    ((9, 3, 64), 16, torch.float16, torch.float16),
    ((16, 8, 256), 1, torch.bfloat16, torch.bfloat16),
    ((8, 1, 256), 16, torch.float16, torch.float16),
    ((16, 8, 192), 1, torch.bfloat16, torch.bfloat16),
    ((12, 1, 192), 64, torch.bfloat16, torch.bfloat16),
    ((32, 8, 128), 1, torch.float8_e4m3fn, torch.bfloat16),
    ((8, 1, 128), 16, torch.float8_e4m3fn, torch.float16),
    ((28, 4, 128), 1, torch.float8_e4m3fn, torch.bfloat16),
]
# Of weights, products and outputs: fp8 holds K and V, and no product is of fewer than 8 bits.
EXACT = {torch.bfloat16: 4e-3, torch.float16: 6e-4}


@pytest.mark.parametrize(("heads", "page_size", "dtype", "q_dtype"), ON_CUDA)
@pytest.mark.parametrize("longest", [1, 4])
def test_trees_by_the_cuda_kernels_against_float64(heads, page_size, dtype, q_dtype, longest):
    """Random trees, NaN in the slots of others, and the same bits again."""
    for seed in range(6):
        paths, _ = random_paths(seed)
        rng = np.random.default_rng(seed)
        lengths = [sum(n for _, n in path) for path in paths]
        query_lens = [int(rng.integers(1, min(longest, n) + 1)) for n in lengths]
        batch = batch_of((paths, query_lens), heads, dtype, page_size, seed)
        batch.q = batch.q.to(q_dtype)
        expected = batch.exact()
        batch.spoil_the_rest()
        backend = backend_of("tree", batch)
        result = batch.run(backend)
        assert backend.explain().kernels == "cuda"
        assert difference(result, expected) < EXACT[q_dtype]
        apart = (result - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert apart.max() < 5 * EXACT[q_dtype]
        assert torch.equal(batch.run(backend), result)


@pytest.mark.parametrize(("heads", "page_size", "dtype", "q_dtype"), ON_CUDA)
def test_blocks_that_take_many_items_of_few_and_many_requests(heads, page_size, dtype, q_dtype):
    """More wide items than the card runs at once, in turn of one warpgroup's rows and of two's."""
    group = heads[0] // heads[1]
    paths = []
    for item in range(2 * 132 // heads[1] + 2):
        for _ in range(-(-(100 if item % 2 else 50) // group)):
            paths.append([(("shared", item), 256 + 64 * (item % 5)), (len(paths), 1 + item % 20)])
    batch = batch_of((paths, [1] * len(paths)), heads, dtype, page_size)
    batch.q = batch.q.to(q_dtype)
    expected = batch.exact()
    batch.spoil_the_rest()
    backend = backend_of("tree", batch)
    result = batch.run(backend)
    assert backend.explain().wide_items * heads[1] > 132
    assert difference(result, expected) < EXACT[q_dtype]
    for _ in range(3):
        assert torch.equal(batch.run(backend), result)


def test_queries_beyond_fp16_count_as_its_largest_number_over_fp8():
    batch = batch_of(shared((8, 512), own=40), HEADS[0], torch.float8_e4m3fn, 1)
    batch.q[0, :, 0] = 1e38
    result = batch.run(backend_of("tree", batch), scale=1e-6)
    batch.q[0, :, 0] = 65504
    assert difference(result, batch.exact(scale=1e-6)) < EXACT[torch.bfloat16]
    batch.q[0, 0, 0] = float("nan")
    result = batch.run(backend_of("tree", batch))
    assert result[0, 0].isnan().all()
    assert not result[0, 1:].isnan().any()


@pytest.mark.parametrize(("heads", "page_size", "dtype"), MATRIX)
@pytest.mark.parametrize("longest", [4, 8, 16])
def test_trees_of_several_new_tokens_a_request(longest, heads, page_size, dtype):
    """Each token of each request, with NaN in the slots of others."""
    for seed in range(3):
        paths, _ = random_paths(seed)
        rng = np.random.default_rng(seed)
        lengths = [sum(n for _, n in path) for path in paths]
        query_lens = [int(rng.integers(1, min(longest, n) + 1)) for n in lengths]
        batch = batch_of((paths, query_lens), heads, dtype, page_size, seed)
        expected = batch.expected()
        batch.spoil_the_rest()
        backend = backend_of("tree", batch)
        result = batch.run(backend)
        assert backend.explain().choice == "tree"
        assert difference(result, expected) < ROUNDING[dtype]
        apart = (result.float() - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert apart.max() < 5 * ROUNDING[dtype]


@pytest.mark.parametrize("paths", [shared((8, 512), (2, 256)), decode([3000, 1, 700])])
@pytest.mark.parametrize("name", BACKENDS)
def test_scores_that_rise_along_the_rows(name, paths):
    """From 0 to 20, so that every tile has a new top and what was summed before it shrinks."""
    batch = batch_of(paths, HEADS[0], torch.bfloat16, 1)
    along = torch.randn(128, device="cuda")
    along /= along.norm()
    for row in batch.rows:
        rising = torch.linspace(0, 20, len(row), device="cuda")[:, None, None]
        batch.pool.k(0)[torch.from_numpy(row).cuda()] += (rising * along).bfloat16()
    batch.q = (batch.q / 20 + along).bfloat16()
    found = batch.run(backend_of(name, batch), scale=1.0)
    assert difference(found, batch.expected(scale=1.0)) < 6e-3


@pytest.mark.parametrize(("heads", "page_size", "dtype"), MATRIX)
@pytest.mark.parametrize("name", BACKENDS)
def test_prompts_and_decodes_mixed(name, heads, page_size, dtype):
    lengths, query_lens = (700, 1, 1300, 300, 64), (1, 1, 513, 300, 7)
    paths = [[(i, n)] for i, n in enumerate(lengths)], query_lens
    batch = batch_of(paths, heads, dtype, page_size)
    assert difference(batch.run(backend_of(name, batch)), batch.expected()) < ROUNDING[dtype]


@pytest.mark.parametrize("paths", [RAGGED, shared((8, 512), (2, 256))])
@pytest.mark.parametrize("name", BACKENDS)
def test_fp8_with_scales(name, paths):
    batch = batch_of(paths, HEADS[0], torch.float8_e4m3fn, 1)
    backend = backend_of(name, batch, k_scale=0.5, v_scale=2.0)
    expected = batch.expected(scale=0.5 * 128**-0.5) * 2
    # Flat, FA3 rounds the queries and the weights, too.
    is_tree = name == "tree" and max(batch.query_lens) == 1
    rounding = EXACT[torch.bfloat16] if is_tree else ROUNDING[torch.float8_e4m3fn]
    assert difference(batch.run(backend), expected) < rounding


@pytest.mark.parametrize("features", [{"window": 100}, {"softcap": 3.0}, {"scale": 0.2}])
@pytest.mark.parametrize("paths", [RAGGED, shared((8, 512), (2, 256)), decode([3000, 1, 700])])
@pytest.mark.parametrize("name", BACKENDS)
def test_features_of_models(name, paths, features):
    batch = batch_of(paths, HEADS[0], torch.bfloat16, 1)
    found = batch.run(backend_of(name, batch), **features)
    assert difference(found, batch.expected(**features)) < 6e-3


@pytest.mark.parametrize("name", BACKENDS)
def test_sinks(name):
    batch = batch_of(shared((8, 512), (2, 256)), HEADS[0], torch.bfloat16, 1)
    sinks = torch.randn(32, device="cuda").bfloat16()
    found = batch.run(backend_of(name, batch), sinks=sinks)
    assert difference(found, batch.expected(sinks=sinks)) < 6e-3


@pytest.mark.parametrize("name", BACKENDS)
def test_the_same_bits_every_time(name):
    batch = batch_of(random_paths(3), HEADS[0], torch.bfloat16, 1)
    backend = backend_of(name, batch)
    first = batch.run(backend)
    for _ in range(20):
        assert torch.equal(batch.run(backend), first)


@pytest.mark.parametrize("name", BACKENDS)
def test_B20_slots_beyond_what_32_bits_address(name):
    """Element 2**31 of a layer lies in slot 2,097,152 here."""
    pool = MHATokenToKVPool(2_200_000, 1, 8, 128, torch.bfloat16, "cuda")
    k, v = (torch.randn(16, 8, 128, device="cuda").bfloat16() for _ in range(2))
    q = torch.randn(2, 32, 128, device="cuda").bfloat16()
    results = []
    for first in (100, 2_150_000):
        rows = [np.arange(first, first + 16, dtype=np.int32)] * 2
        options = {"mode": "tree", "q_heads": 32} if name == "tree" else {}
        backend = get_backend(name, pool, **options)
        backend.plan(AttentionBatch(rows[:1], [16]))
        backend.write(0, k, v)
        backend.plan(AttentionBatch(rows, [1, 1]))
        results.append(backend.run(q, 0))
        assert torch.equal(pool.k(0)[first : first + 16], k)
    assert torch.equal(*results)
    assert results[0].abs().max() > 0.1


@pytest.mark.parametrize("name", BACKENDS)
def test_B20_a_long_shared_prefix_beyond_what_32_bits_address(name):
    """What the kernel for many queries reads, as above for few."""
    pool = MHATokenToKVPool(2_200_000, 1, 8, 128, torch.bfloat16, "cuda")
    options = {"mode": "tree", "q_heads": 32} if name == "tree" else {}
    q = torch.randn(8, 32, 128, device="cuda").bfloat16()
    low = np.arange(100, 700, dtype=np.int32)
    high = low + 2_150_000
    for values in (pool.k(0), pool.v(0)):
        values[100:700] = torch.randn(600, 8, 128, device="cuda").bfloat16()
        values[high] = values[low]
    results = []
    for slots in (low, high):
        rows = [np.append(slots[:592], slots[592 + at]) for at in range(8)]
        backend = get_backend(name, pool, **options)
        backend.plan(AttentionBatch(rows, [1] * 8))
        results.append(backend.run(q, 0))
    assert torch.equal(*results)
    assert results[0].abs().max() > 0.1


def test_B20_slots_are_copied_beyond_what_32_bits_address():
    from radixkv.kernels.gpu.store import copy_slots

    pool = torch.zeros(2, 1, 2_200_000, 8, 128, dtype=torch.bfloat16, device="cuda")
    pool[:, :, 100:116] = torch.randn(2, 1, 16, 8, 128, device="cuda").bfloat16()
    source, target = (torch.arange(at, at + 16, device="cuda").int() for at in (100, 2_150_000))
    copy_slots(pool, source, target)
    assert torch.equal(pool[:, :, 100:116], pool[:, :, 2_150_000:2_150_016])


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("target", [[20, 21, 7], [5, 6, 4]])
def test_a_pool_copies_slots_that_overlap_or_not(target, page_size):
    pool = MHATokenToKVPool(32, 2, 3, 24, torch.bfloat16, "cuda", page_size=page_size)
    before = torch.randn(pool._kv.shape, device="cuda").bfloat16()
    source = [4, 5, 6]
    for as_slots in (np.array, lambda slots: torch.tensor(slots, device="cuda")):
        pool._kv.copy_(before)
        pool.copy(as_slots(source), as_slots(target))
        expected = before.clone()
        expected[:, :, target] = before[:, :, source]
        assert torch.equal(pool._kv, expected)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("query_len", [1, 4])
def test_B61_graphs_replayed_in_any_order(name, query_len):
    """One backend, graphs captured from the largest batch to the smallest, one memory pool each."""
    batches, graphs, expected = {}, {}, {}
    paths, _ = shared((5, 512), own=40, requests=5)
    batch = batch_of((paths, [query_len] * 5), HEADS[0], torch.bfloat16, 1)
    backend = backend_of(name, batch)
    backend.reserve(8, 1024)
    for n in (5, 4, 3, 2, 1):
        batches[n] = (
            AttentionBatch(batch.rows[:n], [query_len] * n),
            batch.q[: n * query_len].clone(),
        )
        asked, q = batches[n]
        backend.plan(asked)
        expected[n] = backend.run(q, 0).clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = backend.run(q, 0)
        graphs[n] = graph, result, backend.graph_key
    for order in itertools.permutations((5, 3, 1, 4, 2), 5):
        for n in order:
            backend.plan(batches[n][0])
            graph, result, key = graphs[n]
            assert backend.graph_key == key
            result.fill_(float("nan"))
            graph.replay()
            assert torch.equal(result, expected[n])


@pytest.mark.parametrize("name", BACKENDS)
def test_a_graph_serves_the_plans_of_later_steps(name):
    """Rows that grow, other slots, other requests and fewer of them."""
    batch = batch_of(shared((8, 512), (2, 256), own=40), HEADS[0], torch.bfloat16, 1)
    backend, q = backend_of(name, batch), torch.zeros_like(batch.q)
    backend.reserve(8, 1024)
    graphs, whole, given = {}, batch.rows, batch.q
    shuffled = np.random.default_rng(0).permutation(batch.pool.num_slots).astype(np.int32) + 1
    steps = [
        [row[:780] for row in whole],
        [row[:781] for row in whole],
        whole[:5],
        [shuffled[row - 1] for row in whole],
        [whole[at] for at in (6, 1, 7, 0)],
        [row[:790] for row in whole],
    ]
    for rows in steps:
        batch.rows, batch.query_lens, batch.q = rows, [1] * len(rows), given[: len(rows)]
        backend.plan(batch.asked, pad_to=8)
        q[: len(rows)] = batch.q
        key = backend.graph_key
        if key not in graphs:
            backend.run(q, 0)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = backend.run(q, 0)
            graphs[key] = graph, result
        graph, result = graphs[key]
        result.fill_(float("nan"))
        graph.replay()
        assert difference(result[: len(rows)], batch.expected()) < 6e-3
    assert len(graphs) < len(steps)


def random_rows(rng, requests, num_slots, longest=1500):
    """Each forks from one before it, or shares nothing; slots scattered."""
    rows, fresh, shuffled = [], 0, rng.permutation(num_slots).astype(np.int32) + 1
    for _ in range(requests):
        parent = rows[int(rng.integers(len(rows)))] if rows and rng.random() < 0.8 else []
        kept = int(rng.integers(0, len(parent) + 1))
        own = int(rng.integers(1, max(2, min(longest - kept, 400))))
        rows.append(np.append(parent[:kept], np.arange(fresh, fresh + own)).astype(np.int64))
        fresh += own
    return [shuffled[row] for row in rows]


@pytest.mark.parametrize(
    ("heads", "dtype"),
    [
        ((32, 8, 128), torch.bfloat16),
        ((16, 1, 128), torch.bfloat16),
        ((8, 8, 64), torch.bfloat16),
        ((16, 8, 256), torch.bfloat16),
        ((32, 8, 128), torch.float8_e4m3fn),
    ],
)
@pytest.mark.parametrize("query_len", [1, 4])
def test_what_is_captured_once_serves_every_later_plan(heads, dtype, query_len):
    """1,670 plans in all, from trees of every kind: no capture after the first plan's, and what is
    replayed is what runs without a graph."""
    requests, rng = 24, np.random.default_rng(query_len)
    pool = MHATokenToKVPool(24_000, 1, heads[1], heads[2], dtype, "cuda")
    for values in (pool.k(0), pool.v(0)):
        values.copy_(torch.randn(values.shape, device="cuda").to(dtype))
    # FA3 of some builds has no heads of 256.
    mode = "auto" if heads[2] <= 128 else "tree"
    backend = get_backend("tree", pool, q_heads=heads[0], mode=mode)
    backend.reserve(requests * query_len, 4096)
    q = torch.randn(requests * query_len, heads[0], heads[2], device="cuda").bfloat16()
    graphs, plans = {}, 0
    while plans < 167:  # under each of the ten parameters
        rows = random_rows(rng, requests, pool.num_slots)
        rows = [row if len(row) >= query_len else rows[-1] for row in rows]
        lens = [min(query_len, len(row)) for row in rows]
        if sum(lens) < len(q):
            continue
        backend.plan(AttentionBatch(rows, lens))
        if not graphs:
            backend.run(q, 0)
            flat = backend.step.key, backend.kernels.flat.key
            for key in backend.graph_keys():
                if mode == "tree" and key == flat:
                    continue
                graph = torch.cuda.CUDAGraph()
                with backend.as_if(key), torch.cuda.graph(graph):
                    graphs[key] = graph, backend.run(q, 0)
        graph, result = graphs[backend.graph_key]
        result.fill_(float("nan"))
        graph.replay()
        assert torch.equal(result, backend.run(q, 0))
        plans += 1


@pytest.mark.skipif(not HAS_FA3, reason="fa3 does not run here")
def test_what_fa3_does_not_serve_is_refused_with_what_works():
    for pool, named in (
        (MHATokenToKVPool(8, 1, 1, 64, "float32", "cuda"), "'triton'.*torch.float32"),
        (MHATokenToKVPool(8, 1, 1, 264, "bfloat16", "cuda"), "head_dim.*'triton'.*264"),
        (MHATokenToKVPool(8, 1, 1, 64, "bfloat16"), "must be on a CUDA device.*cpu"),
    ):
        with pytest.raises(InvalidArgumentError, match=named):
            get_backend("fa3", pool)
    pool = MHATokenToKVPool(8, 1, 1, 64, "bfloat16", "cuda")
    backend = get_backend("fa3", pool)
    backend.plan(AttentionBatch([np.array([1], np.int32)], [1]))
    with pytest.raises(InvalidArgumentError, match=r"; got torch\.float16"):
        backend.run(torch.zeros(1, 1, 64, device="cuda", dtype=torch.float16), 0)
