"""The planner of steps that share prefixes: each token reads each slot it sees once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixkv.attention import AttentionBatch
from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix import kept_plan
from radixkv.attention.shared_prefix.cost import Model, costs
from radixkv.attention.shared_prefix.cuts import candidates
from radixkv.attention.shared_prefix.kept_plan import KeptPlan
from radixkv.attention.shared_prefix.plan import MAX_ADVANCES, NO_ITEM, SURVEY, Shape
from radixkv.attention.shared_prefix.python_planner import PythonPlanner
from radixkv.errors import CoreUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import MHATokenToKVPool

SMALL = Shape(
    group=4, kv_heads=2, wide_blocks=8, narrow_blocks=24,
    shortest_wide=8, shortest_narrow=8, longest_narrow=64, share=4,
)  # fmt: skip
SHAPES = [
    SMALL,
    replace(SMALL, share=30, longest_narrow=32),
    replace(SMALL, wide_rows=64, narrow_rows=32),
    replace(SMALL, group=16, narrow_rows=64, wide_rows=64),
]


@st.composite
def trees(draw, max_query=1):
    """Rows as a prefix cache makes them: rows that share a slot share all before it; and how many
    tokens of each are new."""
    rows, fresh = [np.zeros(0, np.int32)], 1
    for _ in range(draw(st.integers(1, 12))):
        parent = rows[draw(st.integers(0, len(rows) - 1))]
        kept = draw(st.integers(0, len(parent)))
        own = draw(st.integers(0 if kept else 1, 150))
        rows.append(np.concatenate([parent[:kept], np.arange(fresh, fresh + own)]).astype(np.int32))
        fresh += own
    query_lens = [draw(st.integers(1, min(max_query, len(row)))) for row in rows[1:]]
    return rows[1:], query_lens


def plan_tree(rows, shape, query_lens=None):
    return PythonPlanner(rows, query_lens or [1] * len(rows)).cut(shape)


def read_by(plan, rows, token):
    """Slots that the items of a plan read for a token, and the parts they write for it."""
    slots, parts = [], []
    for row, start, end, first, count, limit, step, _ in np.concatenate([plan.wide, plan.narrow]):
        for at, (other, part) in enumerate(plan.q_indices[first : first + count]):
            if other == token:
                slots += rows[row][start : min(end, limit + at * step)].tolist()
                parts.append(part)
    return slots, parts


@settings(max_examples=150, deadline=None)
@given(trees(max_query=9), st.sampled_from(SHAPES))
def test_every_token_reads_each_slot_that_it_sees_once(batch, shape):
    rows, query_lens = batch
    plan, token = plan_tree(rows, shape, query_lens), 0
    for row, query_len in zip(rows, query_lens, strict=True):
        for at in range(query_len):
            slots, parts = read_by(plan, rows, token)
            assert sorted(slots) == sorted(row[: len(row) - query_len + at + 1].tolist())
            assert sorted(parts) == [*range(plan.merge_indptr[token], plan.merge_indptr[token + 1])]
            token += 1
    assert len(plan.merge_indptr) == token + 1
    assert plan.total == sum(map(len, rows))
    assert plan.unique <= plan.total
    # The wide kernels know of no token that does not see all of a run.
    assert (plan.wide[:, 5] >= plan.wide[:, 2]).all()
    assert all(plan.wide[:, 4] * shape.group <= shape.wide_rows)
    assert all(plan.narrow[:, 4] * shape.group <= shape.narrow_rows)


@settings(max_examples=100, deadline=None)
@given(trees(max_query=9))
def test_a_survey_counts_what_cutting_gives(batch):
    rows, query_lens = batch
    planner = PythonPlanner(rows, query_lens)
    for shape, found in zip(SHAPES, planner.survey(SHAPES), strict=True):
        plan, survey = planner.cut(shape), dict(zip(SURVEY, found, strict=True))
        for kind, items in (("wide", plan.wide), ("narrow", plan.narrow)):
            lengths = items[:, 2] - items[:, 1]
            assert survey[f"{kind}_items"] == len(items)
            assert survey[f"{kind}_slots"] == lengths.sum()
            assert survey[f"{kind}_longest"] == lengths.max(initial=0)
        assert survey["wide_slots"] <= survey["wide_halves"] <= 2 * survey["wide_slots"]
        assert survey["parts"] == plan.merge_indptr[-1]
        assert survey["most_parts"] == np.diff(plan.merge_indptr).max()
        assert (survey["unique"], survey["total"]) == (plan.unique, plan.total)
        assert survey["shared"] == (plan.runs[:, 3] > 1).sum()


@pytest.fixture(scope="module")
def native():
    try:
        return type(new_planner([np.ones(1, np.int32)], [1], "native"))
    except CoreUnavailableError as error:
        pytest.skip(str(error))


def assert_same(one, other):
    for field in ("wide", "narrow", "q_indices", "merge_indptr", "runs", "growing"):
        assert np.array_equal(getattr(one, field), getattr(other, field)), field


@settings(max_examples=150, deadline=None)
@given(batch=trees(max_query=9), shape=st.sampled_from(SHAPES))
def test_the_native_planner_gives_the_same(native, batch, shape):
    one, other = native(*batch), PythonPlanner(*batch)
    assert_same(one.cut(shape), other.cut(shape))
    assert np.array_equal(one.survey(SHAPES), other.survey(SHAPES))


def test_the_native_planner_reads_rows_however_they_lie(native):
    rows, query_lens = rows_of(1000, 1000, 8), [1] * 8
    expected = native(rows, query_lens).cut(SMALL)
    strided = np.asfortranarray(np.stack(rows))
    for others in (list(strided), [row.astype(np.int64) for row in rows]):
        assert_same(native(others, np.array(query_lens)).cut(SMALL), expected)


def test_the_core_is_chosen_as_in_every_room(native, monkeypatch):
    batch = [np.ones(1, np.int32)], [1]
    assert type(new_planner(*batch)) is native
    assert type(new_planner(*batch, "python")) is PythonPlanner
    monkeypatch.setenv("RADIXKV_CORE", "python")
    assert type(new_planner(*batch)) is PythonPlanner
    with pytest.raises(InvalidArgumentError, match="core"):
        new_planner(*batch, "fortran")


@settings(max_examples=40, deadline=None)
@given(trees(), st.integers(1, 5))
def test_a_plan_that_advances_reads_what_was_added(batch, steps):
    rows, _ = batch
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


def test_a_plan_of_several_tokens_a_request_does_not_advance():
    assert not plan_tree([np.arange(1, 50, dtype=np.int32)], SMALL, [2]).advance()


def test_a_plan_is_cut_again_now_and_then():
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


def test_the_tokens_of_a_request_read_its_own_slots_together():
    """Four tokens under four heads fill a tile of 16 rows."""
    plan = plan_tree(rows_of(1000, 100, 8), Shape(group=4, kv_heads=8), [4] * 8)
    assert plan.narrow[:, 4].tolist() == [4] * 8
    assert plan.wide[:, 4].tolist() == [32] * len(plan.wide)


MODEL = Model(heads=32, kv_heads=8, head_dim=128, itemsize=2)


def estimated(rows, query_len=1):
    shapes = candidates(Shape(group=4, kv_heads=8), query_len)
    survey = PythonPlanner(rows, [query_len] * len(rows)).survey(shapes)
    return costs(survey, query_len, MODEL)


@pytest.mark.parametrize("query_len", [1, 4])
def test_a_tree_is_estimated_to_pay_where_much_is_shared(query_len):
    much = estimated(rows_of(16384, 256, 64), query_len)
    assert much.tree_us.min() < much.flat_us / 3
    little = estimated(rows_of(128, 8192, 64), query_len)
    assert little.tree_us.min() > little.flat_us * 0.9


@pytest.mark.parametrize(
    ("lengths", "choice", "reason"),
    [
        ([16640], "tree", "short pieces are estimated to be faster, with nothing shared"),
        ([4096] * 64, "flat", "no shared run is long enough"),
    ],
)
def test_with_nothing_shared_pieces_must_be_clearly_faster(lengths, choice, reason):
    kept = KeptPlan(MHATokenToKVPool(8, 1, 8, 128, "bfloat16"), None)
    kept.reshape(Shape(group=4, kv_heads=8))
    kept.follow(AttentionBatch(rows_alone(lengths), [1] * len(lengths)))
    found = kept.explained("auto", tree="cuda", flat="fa3")
    assert (found.choice, found.reason) == (choice, reason)


def rows_alone(lengths):
    return np.split(np.arange(1, sum(lengths) + 1, dtype=np.int32), np.cumsum(lengths)[:-1])


def test_few_blocks_are_cut_shorter():
    """One KV head and 64 requests: as many blocks as the card runs at once, not one a request."""
    shapes = candidates(replace(SMALL, group=8, kv_heads=1, wide_blocks=132, narrow_blocks=792), 1)
    survey = PythonPlanner(rows_of(8192, 512, 64), [1] * 64).survey(shapes)
    best = int(costs(survey, 1, Model(8, 1, 128, 2)).tree_us.argmin())
    assert survey[best][SURVEY.index("narrow_items")] > 128


@pytest.mark.parametrize(("max_query", "rows"), [(8, 32), (9, 64), (16, 64)])
def test_a_tile_is_the_smallest_that_holds_all_tokens_of_a_request(max_query, rows):
    """With a group of four: 32 and 64 rows fit exactly, 36 take the next power of two."""
    shape = Shape(group=4, kv_heads=8)
    assert {cut.narrow_rows for cut in candidates(shape, max_query)} == {rows}


@pytest.mark.parametrize("room", [64, 70, 200, 1000])
def test_a_plan_has_no_more_parts_than_there_is_room_for(monkeypatch, room):
    monkeypatch.setattr(kept_plan, "parts_at_most", lambda tokens: room)
    kept = KeptPlan(MHATokenToKVPool(8, 1, 8, 128, "bfloat16"), None)
    kept.reshape(Shape(group=4, kv_heads=8))
    kept.follow(AttentionBatch(rows_of(4096, 256, 64), [1] * 64))
    assert 64 <= kept.plan.merge_indptr[-1] <= room


@pytest.mark.parametrize("begin", [0, 40])
@pytest.mark.parametrize("requests", [2, 3, 5])
def test_a_run_is_read_once_where_that_saves_its_share(requests, begin):
    """Read once, n tokens save n x (requests - 1) reads, of which each request takes `share`."""
    common = np.arange(1, begin + 1, dtype=np.int32)
    for tokens in range(1, 13):
        shared = np.concatenate([common, np.arange(100, 100 + tokens, dtype=np.int32)])
        rows = [
            np.concatenate([shared, np.arange(at, at + 20, dtype=np.int32)])
            for at in range(1000, 1000 + 100 * requests, 100)
        ]
        # A row beside them that shares their beginning alone.
        rows.append(np.concatenate([common, np.arange(500, 540, dtype=np.int32)]))
        plan = plan_tree(rows, replace(SMALL, share=4))
        items = np.concatenate([plan.wide, plan.narrow])
        num_reads = sum((rows[row][start:end] == 100).sum() for row, start, end, *_ in items)
        pays = tokens * (requests - 1) >= 4 * requests
        assert num_reads == (1 if pays else requests), tokens


LATENTS = Shape(16, 1, narrow_rows=64, wide_rows=64, wide_blocks=132, narrow_blocks=132)


def latent_estimate(rows, heads=16):
    survey = PythonPlanner(rows, [1] * len(rows)).survey(candidates(LATENTS, 1))
    return costs(survey, 1, Model(heads, 1, 576, 2, rope_dim=64))


def test_latents_are_estimated_by_the_tiles_that_their_kernels_fill():
    """Sixteen heads take a fourth of a flat tile, and as many tokens share one of a tree."""
    much = latent_estimate(rows_of(8192, 256, 64))
    assert much.tree_us.min() < 0.7 * much.flat_us
    assert latent_estimate(rows_of(8192, 256, 64), 64).flat_us == much.flat_us
    little = latent_estimate(rows_of(64, 8192, 64))
    assert little.tree_us.min() > little.flat_us * 0.7


@pytest.mark.parametrize("query_lens", [[1] * 8, [2] * 8])
def test_a_joined_plan_has_all_items_in_one_list(query_lens):
    plan = plan_tree(rows_of(1000, 100, 8), LATENTS, query_lens)
    joined = plan.joined()
    assert len(plan.wide) > 0 == len(joined.wide)
    assert np.array_equal(joined.narrow, np.concatenate([plan.wide, plan.narrow]))
    assert joined.advance() == plan.advance() == (query_lens[0] == 1)
    assert np.array_equal(joined.narrow[len(plan.wide) :], plan.narrow)


@pytest.mark.parametrize(("rows", "query_len"), [(16, 5), (16, 16), (64, 9)])
def test_a_tile_of_latents_is_never_larger_than_its_kernel_has(rows, query_len):
    shape = Shape(4, 1, narrow_rows=rows, wide_rows=rows)
    cuts = candidates(shape, query_len)
    assert {cut.narrow_rows for cut in cuts} | {cut.wide_rows for cut in cuts} == {rows}
