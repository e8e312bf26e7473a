"""What the host knows of SGLang's rows, and when it may believe it."""

import numpy as np
import pytest
import torch

from radixkv.attention.factory import new_planner
from radixkv.attention.shared_prefix.plan import Shape
from radixkv.integrations.sglang.attention import rows as rows_module
from radixkv.integrations.sglang.attention.rows import SETTLED, HostRows

WIDTH = 64


@pytest.fixture
def table():
    """Each row with slots of its own."""
    return torch.arange(1, 1 + 8 * WIDTH, dtype=torch.int32).view(8, WIDTH).clone()


def places(*of):
    return torch.tensor(of)


def shared(rows):
    """Slots that the first two of them have in common, as the planner sees it."""
    runs = new_planner(rows, [1] * len(rows)).cut(Shape(1, 1, share=1)).runs
    return max((end for _, start, end, requests in runs.tolist() if requests > 1), default=0)


def steps(rows, rids, at, length, count):
    """So many decode steps, `length` with the first new token; the rows of the last one."""
    for step in range(count):
        found, versions = rows.of(rids, at, [length + step] * len(rids))
    return found, versions


@pytest.mark.parametrize(("page_size", "known"), [(1, 22), (4, 20)])
def test_what_was_cached_is_known_from_the_first_step(table, page_size, known):
    table[2, :22] = table[1, :22]
    rows = HostRows(table, page_size)
    rows.begin(["a", "b"], places(1, 2), [22, 22])
    found, _ = rows.of(["a", "b"], places(1, 2), [30, 31])
    assert [len(row) for row in found] == [30, 31]
    assert shared(found) == known
    assert np.array_equal(found[0][:known], table[1, :known])


def test_what_was_computed_side_by_side_is_known_a_few_steps_later(table):
    rows = HostRows(table, 1)
    rows.begin(["a", "b"], places(1, 2), [0, 0])
    table[2, :20] = table[1, :20]  # as the cache replaces them once the prompts are stored
    for step in range(SETTLED + 1):
        found, _ = rows.of(["a", "b"], places(1, 2), [30 + step, 30 + step])
        assert shared(found) == (20 if step >= SETTLED else 0)


def test_slots_that_the_cache_replaced_and_gave_to_another_are_not_shared(table):
    """With overlap, that is when the first decode step is under way."""
    rows = HostRows(table, 1)
    rows.begin(["a"], places(1), [0])
    rows.of(["a"], places(1), [30])
    freed = table[1, :20].clone()
    table[1, :20] = table[3, :20]
    table[2, :20] = freed
    rows.begin(["b"], places(2), [20])
    for step in range(2 * SETTLED):
        found, _ = rows.of(["a", "b"], places(1, 2), [31 + step, 31 + step])
        assert shared(found) == 0


def test_a_request_that_begins_again_has_another_row(table):
    table[2, :20] = table[1, :20]
    rows = HostRows(table, 1)
    rows.begin(["a", "b"], places(1, 2), [20, 20])
    _, before = steps(rows, ["a", "b"], places(1, 2), 30, SETTLED + 1)
    rows.begin(["b"], places(4), [0])
    found, after = rows.of(["a", "b"], places(1, 4), [34, 34])
    assert shared(found) == 0
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("length", [30, 32, 60])
def test_another_request_of_the_same_name_has_another_row(table, length):
    """Should it begin unseen."""
    table[2, :20] = table[1, :20]
    rows = HostRows(table, 1)
    rows.begin(["a", "b"], places(1, 2), [20, 20])
    rows.of(["a", "b"], places(1, 2), [30, 30])
    found, _ = rows.of(["a", "b"], places(1, 4), [31, length])
    assert shared(found) == 0


def test_padding_behind_the_requests_is_not_kept(table):
    rows = HostRows(table, 1)
    rows.begin(["a"], places(1, 0, 0), [20, 0, 0])
    assert len(rows) == 1


def test_a_version_changes_when_more_is_known_and_not_before(table):
    rows = HostRows(table, 1)
    rows.begin(["a"], places(1), [20])
    versions = [steps(rows, ["a"], places(1), 30 + step, 1)[1][0] for step in range(SETTLED + 3)]
    assert len({*versions}) == 2
    assert versions[SETTLED - 1] != versions[SETTLED]


def test_rows_that_nothing_is_known_of_share_nothing(table):
    rows = HostRows(table, 1)
    found, _ = rows.of(["a", "b", "c"], places(1, 1, 1), [30, 40, 40])
    assert shared(found) == 0


def test_a_copy_that_has_not_arrived_is_not_waited_for(table, monkeypatch):
    table[2, :20] = table[1, :20]
    is_here = False
    monkeypatch.setattr(rows_module.Arriving, "is_here", property(lambda self: is_here))
    rows = HostRows(table, 1)
    rows.begin(["a", "b"], places(1, 2), [20, 20])
    found, before = rows.of(["a", "b"], places(1, 2), [30, 30])
    assert shared(found) == 0
    is_here = True
    found, after = rows.of(["a", "b"], places(1, 2), [31, 31])
    assert shared(found) == 20
    assert before != after


def test_requests_that_join_in_the_middle_are_copied_from_their_own_places(table):
    rows = HostRows(table, 1)
    rows.begin(["a"], places(1), [9])
    rows.begin(["b", "c"], places(5, 2), [9, 12])
    found, _ = rows.of(["c", "a", "b"], places(2, 1, 5), [20, 20, 20])
    assert [row[:9].tolist() for row in found] == [table[at, :9].tolist() for at in (2, 1, 5)]
    found, _ = steps(rows, ["c", "d", "a", "b"], places(2, 3, 1, 5), 21, SETTLED + 1)
    assert [row[:19].tolist() for row in found] == [table[at, :19].tolist() for at in (2, 3, 1, 5)]


def test_no_more_rows_are_kept_than_requests_can_run(table):
    rows = HostRows(table, 1)
    for request in range(100):
        rows.begin([str(request)], places(1), [4])
        rows.of([str(request)], places(1), [9])
    assert len(rows) == len(table)
