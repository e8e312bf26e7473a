"""Our attention in SGLang's engine, over its cache and over ours: equal answers.

The kernels are interpreted, and each decode step is a tree.
"""

import pytest

from tests.hosts.models import tiny_model
from tests.hosts.sglang.asked import answers, cached, num_answers, run

ON_A_TREE = {"TRITON_INTERPRET": "1", "RADIXKV_SGLANG_ATTENTION": "tree"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("page_size", "more"), [(1, {}), (16, {}), (1, {"SGLANG_TEST_RETRACT": "1"})]
)
def test_answers_are_those_of_sglangs_own_attention(model, tmp_path, page_size, more):
    """In chunks and in a pool that evicts."""
    theirs = run(model, tmp_path, "sglang", page_size, 1200, "chats", **more)["chats"]
    assert num_answers(theirs) > 12
    for backend in ("sglang+radixkv", "radixkv+radixkv"):
        ours = run(model, tmp_path, backend, page_size, 1200, "chats", **more, **ON_A_TREE)["chats"]
        assert answers(ours) == answers(theirs)
        assert cached(ours) > 2000


def test_what_is_not_served_ends_the_start_with_one_line(model, tmp_path):
    with pytest.raises(AssertionError, match="RADIXKV_SGLANG_ATTENTION must be auto, tree, flat"):
        run(
            model, tmp_path, "sglang+radixkv", 1, 1200, "chats", RADIXKV_SGLANG_ATTENTION="no",
        )  # fmt: skip
