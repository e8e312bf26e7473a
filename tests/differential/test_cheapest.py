"""The cheapest worker in C++ and in NumPy: the same one, for the same reason."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from radixkv.errors import CoreUnavailableError
from radixkv.router import PickInput, RoutingChoice
from radixkv.router.cheapest import cheapest
from radixkv.router.factory import new_cheapest


@pytest.fixture(scope="module")
def native():
    try:
        return new_cheapest("native")
    except CoreUnavailableError:
        pytest.skip("the native core is not built here")


# Few values, so that costs are often equal; or any, so that both must round alike.
eighths = st.integers(0, 64).map(lambda n: n / 8)
any_load = st.floats(0, 1e12)
few = st.tuples(
    st.integers(0, 8), eighths, eighths, st.integers(0, 20).map(float), st.integers(0, 4)
)
many = st.tuples(st.integers(0, 8), any_load, any_load, any_load, st.integers(0, 4))
workers = st.one_of(*(st.lists(each, min_size=1, max_size=70) for each in (few, many)))


@given(workers, st.booleans(), st.integers(8, 16), *[st.sampled_from([0.0, 0.1, 0.5, 2.0])] * 2)
def test_both_choose_alike(native, workers, is_doubted, size, balance, most_delayed):
    lengths, loads, pending, work, turns = map(np.array, zip(*workers, strict=True))
    lengths = lengths / 8 if is_doubted else lengths.astype(np.int32)
    names = tuple(map(str, range(len(workers))))
    question = PickInput(names, lengths, loads, pending, work, turns, size, lambda: b"")
    choice = native(question, balance, most_delayed)
    assert choice == cheapest(question, balance, most_delayed)
    assert isinstance(choice, RoutingChoice)


def test_arrays_that_do_not_fit_are_refused(native):
    one = np.ones(1)
    turns = np.ones(1, np.int64)
    good = PickInput(("a",), np.ones(1, np.int32), one, one, one, turns, 5, lambda: b"")
    assert native(good, 0.1, 2.0).at == 0
    for wrong in (np.ones(0), np.ones(1, np.float32), [1.0], np.ones((1, 1))):
        for field in ("lengths", "loads", "pending", "recent_loads", "last_picked"):
            with pytest.raises(ValueError, match=field):
                native(good._replace(**{field: wrong}), 0.1, 2.0)
    with pytest.raises(ValueError, match="loads"):
        native(good._replace(lengths=np.ones(2)), 0.1, 2.0)
