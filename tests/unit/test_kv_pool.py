"""The KV pools: what is written at slots is what is read there, in every dtype."""

import numpy as np
import pytest
import torch

from radixkv.errors import InvalidArgumentError, InvalidSlotsError
from radixkv.memory.kv_pool import KV_DTYPES, MHATokenToKVPool, MLATokenToKVPool

LAYERS, HEADS, DIM = 3, 2, 8


def make(num_slots=16, dtype="float32", **options):
    return MHATokenToKVPool(num_slots, LAYERS, HEADS, DIM, dtype, **options)


def rows(n, seed=0):
    return torch.randn(2, n, HEADS, DIM, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_what_is_written_is_read_at_its_slots_and_nowhere_else(dtype):
    pool = make(dtype=dtype)
    k, v = rows(3)
    pool.write(1, np.array([5, 1, 16], np.int32), k, v)
    assert torch.equal(pool.k(1)[[5, 1, 16]].float(), k.to(KV_DTYPES[dtype]).float())
    assert torch.equal(pool.v(1)[[5, 1, 16]].float(), v.to(KV_DTYPES[dtype]).float())
    assert pool.k(1).float().count_nonzero(dim=(1, 2)).nonzero().flatten().tolist() == [1, 5, 16]
    assert not pool.k(0).float().any()
    assert not pool.v(2).float().any()


@pytest.mark.parametrize(
    "slots",
    [[3, 4], np.array([3, 4]), np.array([3, 4], np.int32), torch.tensor([3, 4], dtype=torch.int32)],
)
def test_slots_come_as_lists_arrays_or_tensors(slots):
    pool = make()
    k, v = rows(2)
    pool.write(0, slots, k, v)
    assert torch.equal(pool.k(0)[3:5], k)


def test_nothing_to_write_is_no_error():
    make().write(0, [], *rows(0))


def test_a_read_only_row_is_taken_without_a_warning():
    slots = np.array([1, 2], np.int32)
    slots.flags.writeable = False
    make().write(0, slots, *rows(2))


@pytest.mark.parametrize("page_size", [1, 4])
def test_shapes_have_one_page_of_padding(page_size):
    pool = make(page_size=page_size)
    assert pool.k(0).shape == pool.v(0).shape == (16 + page_size, HEADS, DIM)
    pool.write(0, [page_size, 15 + page_size], *rows(2))


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", 4), ("float16", 2), ("bfloat16", 2), ("fp8_e4m3", 1)]
)
def test_bytes_per_token_are_what_is_allocated(dtype, expected):
    pool = make(dtype=dtype)
    assert pool.bytes_per_token == 2 * LAYERS * HEADS * DIM * expected
    allocated = sum(
        tensor.numel() * tensor.element_size()
        for layer in range(LAYERS)
        for tensor in (pool.k(layer), pool.v(layer))
    )
    assert pool.bytes_per_token * (16 + 1) == allocated


def test_fp8_saturates():
    pool = make(dtype="fp8_e4m3")
    k = torch.full((1, HEADS, DIM), 1e6)
    pool.write(0, [1], k, -k)
    assert pool.k(0)[1].float().unique().tolist() == [448.0]
    assert pool.v(0)[1].float().unique().tolist() == [-448.0]


def test_copy_moves_all_layers_and_may_overlap():
    pool = make()
    for layer in range(LAYERS):
        pool.write(layer, [1, 2, 3], *rows(3, seed=layer))
    pool.copy([1, 2, 3], np.array([2, 3, 4], np.int32))
    for layer in range(LAYERS):
        k, v = rows(3, seed=layer)
        assert torch.equal(pool.k(layer)[1:5], torch.cat([k[:1], k]))
        assert torch.equal(pool.v(layer)[1:5], torch.cat([v[:1], v]))


def test_copy_takes_as_many_targets_as_sources():
    with pytest.raises(
        InvalidSlotsError, match="source and target must be equally long; got 2 and 1"
    ):
        make().copy([1, 2], [3])


@pytest.mark.parametrize(
    ("slots", "named"),
    [
        ([[1, 2]], r"shape \(1, 2\)"),
        (np.array([1.0, 2.0]), "must be int32 or int64; got torch.float64"),
        (torch.tensor([True, False]), "must be int32 or int64; got torch.bool"),
        ([4, 3], r"slots\[1\] must be from 4 to 19; got 3"),
        ([4, 20], r"slots\[1\] must be .* got 20"),
        ([4, -1], r"slots\[1\] must be .* got -1"),
        ("ab", "must be an array or tensor"),
    ],
)
def test_bad_slots_are_refused_by_name_and_nothing_is_written(slots, named):
    pool = make(page_size=4)
    with pytest.raises(InvalidSlotsError, match=named):
        pool.write(0, slots, *rows(2))
    assert not pool.k(0).any()


@pytest.mark.parametrize(
    ("k", "v", "named"),
    [
        (
            torch.ones(1, HEADS, DIM),
            torch.ones(2, HEADS, DIM),
            r"k must have shape .* got \(1, 2, 8\)",
        ),
        (
            torch.ones(2, HEADS, DIM),
            torch.ones(2, DIM, HEADS),
            r"v must have shape .* got \(2, 8, 2\)",
        ),
        (
            torch.ones(2, HEADS, DIM).int(),
            torch.ones(2, HEADS, DIM),
            "k must be floating point; got torch.int32",
        ),
    ],
)
def test_bad_keys_and_values_are_refused_and_nothing_is_written(k, v, named):
    pool = make()
    with pytest.raises(InvalidArgumentError, match=named):
        pool.write(0, [1, 2], k, v)
    assert not pool.k(0).any()


@pytest.mark.parametrize("layer", [-1, LAYERS])
def test_a_layer_that_is_not_there_is_refused(layer):
    with pytest.raises(InvalidArgumentError, match=f"layer must be from 0 to 2; got {layer}"):
        make().k(layer)


@pytest.mark.parametrize("dtype", ["int8", "float64", torch.int32, torch.float64])
def test_a_dtype_that_is_not_supported_is_refused(dtype):
    with pytest.raises(InvalidArgumentError, match="must be one of float32, float16, bfloat16"):
        make(dtype=dtype)


def test_sizes_are_checked():
    with pytest.raises(InvalidArgumentError, match=r"num_slots must be .* got 0"):
        make(0)
    with pytest.raises(
        InvalidArgumentError, match="num_slots must be a positive multiple of page size 4; got 10"
    ):
        make(10, page_size=4)
    with pytest.raises(InvalidArgumentError, match="page_size must be an int of at least 1; got 0"):
        make(page_size=0)


RANK, ROPE = 12, 4


def latents(num_slots=16, dtype="float32", **options):
    return MLATokenToKVPool(num_slots, LAYERS, RANK, ROPE, dtype, **options)


@pytest.mark.parametrize("dtype", KV_DTYPES)
def test_a_latent_and_its_rotary_key_are_one_row(dtype):
    pool = latents(dtype=dtype, page_size=4)
    assert pool.k(0).shape == (16 + 4, 1, RANK + ROPE)
    latent, rope = torch.randn(2, 1, RANK), torch.randn(2, 1, ROPE)
    pool.write(1, [5, 19], latent, rope)
    row = torch.cat([latent, rope], -1).to(KV_DTYPES[dtype])
    assert torch.equal(pool.k(1)[[5, 19]].float(), row.float())
    assert torch.equal(pool.v(1)[[5, 19]].float(), row[..., :RANK].float())
    assert pool.k(1).float().count_nonzero(dim=(1, 2)).nonzero().flatten().tolist() == [5, 19]
    assert not pool.k(0).float().any()


def test_values_of_latents_take_no_memory_of_their_own():
    pool = latents(dtype="bfloat16")
    assert pool.bytes_per_token == LAYERS * (RANK + ROPE) * 2
    assert pool.v(2).data_ptr() == pool.k(2).data_ptr()


def test_copies_of_latents_are_of_all_layers():
    pool = latents()
    for layer in range(LAYERS):
        pool.write(layer, [3, 4], torch.randn(2, 1, RANK), torch.randn(2, 1, ROPE))
    expected = [pool.k(layer)[[3, 4]].clone() for layer in range(LAYERS)]
    pool.copy([3, 4], [4, 9])
    for layer in range(LAYERS):
        assert torch.equal(pool.k(layer)[[4, 9]], expected[layer])


@pytest.mark.parametrize(
    ("latent", "rope", "named"),
    [
        ((2, 1, RANK), (2, 1, RANK), "rope must have shape"),
        ((2, HEADS, RANK), (2, 1, ROPE), "latent must have shape"),
    ],
)
def test_parts_of_another_shape_are_refused_by_name(latent, rope, named):
    with pytest.raises(InvalidArgumentError, match=named):
        latents().write(0, [1, 2], torch.zeros(latent), torch.zeros(rope))


@pytest.mark.parametrize(("sizes", "named"), [((0, 4), "kv_lora_rank"), ((12, 0), "qk_rope")])
def test_latents_have_both_parts(sizes, named):
    with pytest.raises(InvalidArgumentError, match=named):
        MLATokenToKVPool(16, 1, *sizes, "float32")
