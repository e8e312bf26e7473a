"""Both allocators under the same calls: the same slots, the same refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radixkv.memory import new_allocator
from tests.differential.pair import outcome, plain
from tests.support.trees import CORES

pytest.importorskip("radixkv.kernels._core", reason="the native core is not built here")

CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(-1, 9)),
        st.tuples(st.just("free"), st.lists(st.integers(-1, 18), max_size=6).map(sorted)),
        st.tuples(st.just("free back"), st.permutations(range(4))),
    ),
    max_size=30,
)
FORMS = (list, np.array, lambda slots: np.array(slots, np.int32))


def pair(num_slots, page_size=1):
    return [new_allocator(num_slots, page_size, core) for core in CORES]


@settings(max_examples=400, deadline=None)
@given(page_size=st.sampled_from((1, 2, 4)), calls=CALLS, form=st.sampled_from(FORMS))
def test_the_same_slots_and_errors(page_size, calls, form):
    both = pair(16, page_size)
    held = []
    for name, value in calls:
        if name == "free back":
            name, value = "free", [slot for at in value for slot in held[at : at + 1]]
        pages = form([slot for page in value for slot in page] if is_paged(value) else value) \
            if name == "free" else value  # fmt: skip
        python, native = (outcome(getattr(allocator, name), pages) for allocator in both)
        assert plain(python) == plain(native)
        if name == "allocate" and isinstance(python, np.ndarray):
            held += python.reshape(-1, page_size).tolist()
        assert both[0].free_size == both[1].free_size
        assert plain(both[0].free_slots()) == plain(both[1].free_slots())


def is_paged(value):
    return bool(value) and isinstance(value[0], list)


@pytest.mark.parametrize("slots", [None, "ab", [[1, 2]], [[0]], [1.7], 3, [2**40]])
def test_odd_arguments(slots):
    both = pair(16)
    for allocator in both:
        allocator.allocate(4)
    python, native = (outcome(allocator.free, slots) for allocator in both)
    assert plain(python) == plain(native)


@pytest.mark.parametrize("shape", [(0, 1), (16, 0), (3, 2), (2**31, 1), ("a", 1), (16, 1.0)])
def test_odd_pools(shape):
    python, native = (outcome(new_allocator, *shape, core) for core in CORES)
    assert plain(python) == plain(native)


def test_whole_pages_in_another_order_are_taken():
    allocator = new_allocator(8, 2, "native")
    allocator.allocate(8)
    allocator.free([4, 2, 5, 3])
    assert allocator.allocate(4).tolist() == [4, 5, 2, 3]
