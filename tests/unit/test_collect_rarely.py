"""A process that only serves walks all its objects less often."""

import gc

import pytest

from radixkv.rpc.process import collect_rarely


@pytest.fixture(autouse=True)
def thresholds():
    before, usual = gc.get_threshold(), (700, 10, 10)
    gc.set_threshold(*usual)  # another test of this process may have served
    yield usual
    gc.set_threshold(*before)


def full_collections(objects: int) -> int:
    """How many come while so many are made and kept."""
    before: int = gc.get_stats()[2]["collections"]
    kept: list[list[int]] = [[] for _ in range(objects)]
    assert len(kept) == objects
    after: int = gc.get_stats()[2]["collections"]
    return after - before


def test_what_is_made_and_kept_brings_fewer_walks_of_all(thresholds):
    # Against a walk now: Python skips those that would find little new.
    gc.freeze()
    try:
        gc.collect()
        usual = full_collections(150_000)
        gc.collect()
        collect_rarely()
        rare = full_collections(150_000)
    finally:
        gc.unfreeze()
    assert usual > rare == 0


def test_young_objects_are_collected_as_before(thresholds):
    collect_rarely()
    assert gc.get_threshold()[:2] == thresholds[:2]
