"""Lists of ids read by the native core and by NumPy: the same arrays, the same refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixkv.tree import new_reader
from tests.differential.pair import outcome, plain

core = pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")

IDS = st.integers(0, 2**31 - 1) | st.sampled_from((0, 1, 2**30 - 1, 2**30, 2**31 - 1))
OTHERS = (
    st.sampled_from((True, None, 1.0, "1", -1, 2**31, 2**32 + 1, 2**64, -(2**30), np.int64(3)))
    | st.builds(object)
    | st.lists(st.integers(0, 2), max_size=2)
)
LISTS = st.lists(IDS, max_size=40)


def both(read, values):
    """The outcome with the native reader, after it was held against the one without."""
    native = outcome(getattr(new_reader("native"), read), values)
    assert plain(outcome(getattr(new_reader("python"), read), values)) == plain(native)
    return native


@given(read=st.sampled_from(("token_ids", "slots")), ids=LISTS, as_tuple=st.booleans())
def test_ids(read, ids, as_tuple):
    assert both(read, tuple(ids) if as_tuple else ids).tolist() == ids


@given(ids=LISTS, other=OTHERS, at=st.integers(0, 40))
def test_what_is_no_id(ids, other, at):
    ids.insert(at, other)
    both("token_ids", ids)


def test_the_native_reader_reads():
    ids = [*range(100), 2**31 - 1]
    assert core.read_ids(ids).tolist() == ids
    assert core.read_ids(tuple(ids)).dtype == np.int32
    assert core.read_ids([*ids, -1]) is None
    assert core.read_ids([*ids, True]) is None
    assert core.read_ids("ids") is None
    array = np.array(ids, np.int32)
    assert core.read_ids(array) is array
    assert core.read_ids(array.astype(np.int64)).dtype == np.int32
    assert core.read_ids(-array) is None
    assert core.read_ids(array.astype(np.int64) + 1) is None


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.int32)])
def test_the_native_reader_copies_with_room(kind):
    ids = [*range(100), 2**31 - 1]
    given = kind(ids)
    buffer, length = core.copy_ids(given)
    assert (buffer[:length].tolist(), len(buffer)) == (ids, 101 + 25 + 16)
    assert not np.shares_memory(buffer, given)
    assert core.copy_ids(kind([*ids, -1])) is None
    assert core.copy_ids(b"ids!") is None
