"""The planner of tree decode: every slot of every row once; the native one does the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.cost import cost_of
from radixkv.attention.shared_prefix.plan import MAX_ADVANCES, NO_ITEM, Shape
from radixkv.attention.shared_prefix.python_planner import plan_tree
from radixkv.errors import CoreUnavailableError, InvalidArgumentError

SMALL = Shape(
    group=4, kv_heads=2, wide_blocks=8, narrow_blocks=24,
    shortest_wide=8, shortest_narrow=8, longest_narrow=64, share=4,
)  # fmt: skip


@st.composite
def trees(draw):
    """Rows as a prefix cache makes them: rows that share a slot share all before it."""
    rows, fresh = [np.zeros(0, np.int32)], 1
    for _ in range(draw(st.integers(1, 12))):
        parent = rows[draw(st.integers(0, len(rows) - 1))]
        kept = draw(st.integers(0, len(parent)))
        own = draw(st.integers(0 if kept else 1, 150))
        rows.append(np.concatenate([parent[:kept], np.arange(fresh, fresh + own)]).astype(np.int32))
        fresh += own
    return rows[1:]


def read_by(plan, rows, request):
    """Slots that the items of a plan read for a request, and the parts they write for it."""
    slots, parts = [], []
    for row, start, end, first, count, limit, step, _ in np.concatenate([plan.wide, plan.narrow]):
        assert (limit, step) == (end, 0)
        for token, part in plan.q_indices[first : first + count]:
            if token == request:
                slots += rows[row][start:end].tolist()
                parts.append(part)
    return slots, parts


@settings(max_examples=60, deadline=None)
@given(trees())
def test_every_request_reads_each_of_its_slots_once(rows):
    plan = plan_tree(rows, SMALL)
    for request, row in enumerate(rows):
        slots, parts = read_by(plan, rows, request)
        assert sorted(slots) == sorted(row.tolist())
        assert sorted(parts) == [*range(plan.starts[request], plan.starts[request + 1])]
    assert plan.total == sum(map(len, rows))
    assert plan.unique <= plan.total
    assert all(plan.wide[:, 4] * SMALL.group <= SMALL.wide_rows)
    assert all(plan.narrow[:, 4] * SMALL.group <= SMALL.narrow_rows)


@pytest.fixture(scope="module")
def native():
    try:
        return new_planner("native")
    except CoreUnavailableError as error:
        pytest.skip(str(error))


def assert_same(one, other):
    for field in ("wide", "narrow", "q_indices", "starts", "runs", "growing"):
        assert np.array_equal(getattr(one, field), getattr(other, field)), field


@settings(max_examples=60, deadline=None)
@given(rows=trees())
def test_the_native_planner_gives_the_same(native, rows):
    assert_same(native(rows, SMALL), plan_tree(rows, SMALL))


def test_the_native_planner_reads_rows_however_they_lie(native):
    rows = rows_of(1000, 1000, 8)
    expected = native(rows, SMALL)
    strided = np.asfortranarray(np.stack(rows))
    for others in (list(strided), [row.astype(np.int64) for row in rows]):
        assert_same(native(others, SMALL), expected)


def test_the_core_is_chosen_as_in_every_room(native, monkeypatch):
    assert new_planner() is native
    assert new_planner("python") is plan_tree
    monkeypatch.setenv("RADIXKV_CORE", "python")
    assert new_planner() is plan_tree
    with pytest.raises(InvalidArgumentError, match="core"):
        new_planner("fortran")


@settings(max_examples=40, deadline=None)
@given(trees(), st.integers(1, 5))
def test_a_plan_that_advances_reads_what_was_added(rows, steps):
    plan = plan_tree(rows, SMALL)
    fresh = 1 + max(int(row.max()) for row in rows)
    grown = [
        np.concatenate([row, np.arange(fresh + i * steps, fresh + (i + 1) * steps)])
        for i, row in enumerate(rows)
    ]
    if (plan.growing == NO_ITEM).any():
        assert not plan.advance()
        return
    assert all(plan.advance() for _ in range(steps))
    for request, row in enumerate(grown):
        slots, _ = read_by(plan, grown, request)
        assert sorted(slots) == sorted(row.tolist())
    assert plan.total == sum(map(len, grown))


def test_a_plan_is_cut_anew_now_and_then():
    plan = plan_tree([np.arange(1, 50, dtype=np.int32)], SMALL)
    assert [plan.advance() for _ in range(MAX_ADVANCES + 1)] == [True] * MAX_ADVANCES + [False]


def rows_of(shared, own, requests):
    return [
        np.concatenate([np.arange(1, shared + 1), shared + 1 + i * own + np.arange(own)])
        .astype(np.int32)
        for i in range(requests)
    ]  # fmt: skip


def test_a_prefix_is_cut_into_as_many_blocks_as_the_card_runs_at_once():
    shape = Shape(group=4, kv_heads=8)
    plan = plan_tree(rows_of(16384, 256, 64), shape)
    assert len(plan.wide) * shape.kv_heads == 128
    assert plan.unique == 16384 + 64 * 256
    # The requests' own tokens are more work here: they get half of the card.
    assert len(plan_tree(rows_of(4096, 256, 64), shape).wide) * shape.kv_heads == 64


def test_tiles_that_fill_half_of_a_block_count_half():
    shape = Shape(group=4, kv_heads=8)
    groups = [rows_of(3000, 300, 8) for _ in range(8)]
    rows = [row + 10000 * i for i, group in enumerate(groups) for row in group]
    # Eight shared runs, each in one piece: more slots than the own ones, but half the work.
    assert len(plan_tree(rows, shape).wide) == 8


def test_a_short_shared_run_is_read_by_each():
    plan = plan_tree(rows_of(20, 100, 3), Shape(group=4, kv_heads=8))
    assert plan.runs.tolist() == [[0, 0, 120, 1], [1, 0, 120, 1], [2, 0, 120, 1]]


@pytest.mark.parametrize(("shared", "pays"), [(16384, True), (128, False)])
def test_what_pays_is_what_saves_more_than_it_costs(shared, pays):
    shape = Shape(group=4, kv_heads=8)
    plan = plan_tree(rows_of(shared, 256, 64 if pays else 4), shape)
    assert cost_of(plan, shape, head_dim=128, itemsize=2).tree_pays == pays
