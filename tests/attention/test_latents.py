"""The reference backend over latents (MLA) against float64."""

import pytest
import torch

from radixkv.attention import ScoreOptions, get_backend
from radixkv.errors import InvalidArgumentError
from tests.support.attention_batches import RAGGED, Batch, difference, random_tree, shared

PATHS = [RAGGED, shared((8, 72), (4, 92)), *(random_tree(seed) for seed in range(4))]


def batch_of(paths, **how):
    return Batch(*paths, heads=6, kv_heads=1, dim=16, rope=8, spare=7, **how)


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("paths", PATHS)
def test_latents_equal_float64_with_nan_in_the_slots_of_others(paths, page_size):
    batch = batch_of(paths, page_size=page_size)
    batch.spoil_the_rest()
    found = batch.run(get_backend("reference", batch.pool), scale=0.2)
    assert found.shape == (sum(batch.query_lens), 6, 16)
    assert difference(found, batch.exact(0.2)) < 1e-5


def test_what_is_written_is_a_latent_and_a_rotary_key():
    batch = batch_of(RAGGED)
    backend = get_backend("reference", batch.pool)
    backend.plan(batch.asked)
    n, before = batch.asked.num_tokens, batch.exact(0.2)
    backend.write(0, torch.randn(n, 1, 16), torch.randn(n, 1, 8))
    found = backend.run(batch.q, 0, ScoreOptions(0.2))
    assert difference(found, batch.exact(0.2)) < 1e-5
    assert difference(found, before) > 0.1


def test_the_scale_of_the_heads_must_be_given():
    batch = batch_of(RAGGED)
    with pytest.raises(InvalidArgumentError, match="scale must be given over latents"):
        batch.run(get_backend("reference", batch.pool))
