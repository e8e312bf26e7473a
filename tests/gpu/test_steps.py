"""What a plan keeps on the device from step to step, and what it must not believe."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from radixkv.attention import AttentionBatch, device_table, get_backend
from radixkv.memory.kv_pool import MHATokenToKVPool
from tests.support.attention_batches import RAGGED, Batch, decode, difference, shared

BACKENDS = ["triton", "tree"]
TREE = shared((8, 132), (4, 92), own=7)


def batch_of(paths, device, **how):
    return Batch(*paths, heads=4, kv_heads=2, dim=16, device=device, **how)


def backend_of(name, pool):
    return get_backend(name, pool, **({"mode": "tree", "q_heads": 4} if name == "tree" else {}))


@pytest.mark.parametrize("paths", [RAGGED, TREE, decode([1, 40, 600])])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_nan_in_the_slots_of_others_reaches_no_row(device, name, page_size, paths):
    batch = batch_of(paths, device, page_size=page_size, spare=9)
    batch.spoil_the_rest()
    assert difference(batch.run(backend_of(name, batch.pool)), batch.expected()) < 1e-5


@pytest.mark.parametrize("name", BACKENDS)
def test_padding_sees_slot_0_and_not_what_was_there_before(device, name):
    batch = batch_of(TREE, device)
    backend = backend_of(name, batch.pool)
    backend.plan(batch.asked)
    assert backend.step.page_table[:8, 0].all()
    backend.plan(AttentionBatch(batch.rows[:5], [1] * 5), pad_to=8)
    assert not backend.step.page_table[5:8, 0].any()


@pytest.mark.parametrize("name", BACKENDS)
def test_rows_that_move_up_are_not_sent_again(device, name, monkeypatch):
    sent, write_rows = [], device_table.write_rows

    def counted(table, pieces, entries, longest):
        sent.append(len(entries))
        write_rows(table, pieces, entries, longest)

    monkeypatch.setattr(device_table, "write_rows", counted)
    batch = batch_of(TREE, device)
    backend = backend_of(name, batch.pool)
    whole, names = batch.rows, [*"abcdefgh"]
    batch.rows = [row[:-1] for row in whole]
    backend.plan(AttentionBatch(batch.rows, batch.query_lens, names))
    sent.clear()
    for kept in ([1, 2, 3, 4, 5, 6, 7], [7, 2, 5], [5, 7]):
        batch.rows, batch.query_lens = [whole[at] for at in kept], [1] * len(kept)
        batch.q = batch.q[: len(kept)]
        backend.plan(AttentionBatch(batch.rows, batch.query_lens, [names[at] for at in kept]))
        assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5
    # The last slot of each, once.
    assert sent == [7]


def test_a_plan_follows_the_names_it_was_given(device):
    """And not the list that the caller kept and changed, nor those of a step before the last."""
    batch = batch_of(TREE, device)
    backend = backend_of("tree", batch.pool)
    whole, names = batch.rows, [*range(8)]
    short = [row[:-1] for row in whole]
    backend.plan(AttentionBatch(short, batch.query_lens, names))
    # Others of the same lengths, whose names are in the list that the step before had.
    names[:] = [*range(8, 16)]
    batch.rows = [whole[at] for at in (0, 4, 1, 5, 2, 6, 3, 7)]
    backend.plan(AttentionBatch(batch.rows, batch.query_lens, names))
    assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5


@pytest.mark.parametrize("between", [RAGGED, decode([3, 2])])
def test_a_step_without_names_ends_what_names_promise(device, between):
    batch = batch_of(TREE, device)
    backend = backend_of("tree", batch.pool)
    whole, names = batch.rows, [*range(8)]
    backend.plan(AttentionBatch([row[:-1] for row in whole], batch.query_lens, names))
    rows = [whole[0][: len(row)] for row in batch_of(between, device).rows]
    backend.plan(AttentionBatch(rows, between[1]))
    batch.rows = [whole[at] for at in (0, 4, 1, 5, 2, 6, 3, 7)]
    backend.plan(AttentionBatch(batch.rows, batch.query_lens, names))
    assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_names_may_be_any_sequence(device, name, kind):
    batch = batch_of(TREE, device)
    backend = backend_of(name, batch.pool)
    whole = batch.rows
    for batch.rows in ([row[:-1] for row in whole], whole):
        backend.plan(AttentionBatch(batch.rows, batch.query_lens, kind([*"abcdefgh"])))
        assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("names", [[None] * 8, [*range(7), None]])
def test_a_row_without_a_version_is_sent_whole_with_those_that_have_one(device, name, names):
    """Although the step before had none at its place either."""
    batch = batch_of(TREE, device)
    backend = backend_of(name, batch.pool)
    whole = batch.rows
    batch.rows = [row[:-1] for row in whole[:7]] + [whole[0][:-1]]
    backend.plan(AttentionBatch(batch.rows, batch.query_lens, names))
    batch.rows = whole
    backend.plan(AttentionBatch(batch.rows, batch.query_lens, names))
    assert difference(backend.run(batch.q, 0), batch.expected()) < 1e-5


@pytest.mark.parametrize("name", BACKENDS)
def test_graphs_serve_no_batch_with_a_longer_query(device, name):
    batch = batch_of(decode([40] * 5), device)
    backend, keys = backend_of(name, batch.pool), []
    for query_lens in ([4] * 5, [1, 1, 1, 1, 16]):
        backend.plan(AttentionBatch(batch.rows, query_lens))
        keys.append(backend.step.key)
    assert keys[0] != keys[1]


def test_plans_of_as_many_tokens_differ_in_nothing_that_is_captured(device):
    """Their work lists are in the same place, and so are their results."""
    seen = []
    pool = MHATokenToKVPool(1200, 1, 2, 16, torch.float32, device)
    backend = backend_of("tree", pool)
    backend.reserve(8, 1024)
    for paths in (TREE, shared((8, 300), own=2), decode([600, 3, 40, 1, 1, 90, 200, 77])):
        batch = batch_of(paths, device)
        backend.plan(AttentionBatch(batch.rows, batch.query_lens))
        assert backend.graph_key in backend.graph_keys()
        partials = backend.kernels._on_device.partials
        trees = [key for key in backend.graph_keys() if key[1] != backend.kernels.flat.key]
        seen.append((trees, [each.data_ptr() for each in partials]))
    assert seen[0] == seen[1] == seen[2]


def test_a_graph_is_captured_as_of_another_kind(device):
    batch = batch_of(TREE, device)
    backend = backend_of("tree", batch.pool)
    backend.plan(batch.asked)
    key = backend.graph_key
    for other in backend.graph_keys():
        with backend.as_if(other):
            assert backend.graph_key == other
    assert backend.graph_key == key
