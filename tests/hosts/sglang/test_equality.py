"""The same requests to SGLang's own cache and to ours: equal answers, and as much cached.

SGLang checks between steps that no slot is lost or held twice, and raises.
"""

import pytest

from tests.hosts.models import tiny_model
from tests.hosts.sglang.asked import answers, cached, computed, num_answers, run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("more", [{}, {"SGLANG_TEST_RETRACT": "1"}], ids=["", "retracted"])
def test_answers_and_cached_tokens_are_equal(model, tmp_path, page_size, more):
    """In chunks and in a pool that evicts."""
    ours, theirs = (
        run(model, tmp_path, backend, page_size, 1200, "chats+tenants", **more)
        for backend in ("radixkv", "sglang")
    )
    assert ours["chats"] == theirs["chats"]
    assert len(ours["chats"]) == 24
    assert cached(ours["chats"]) > 2000
    assert num_answers(ours["chats"]) > 12
    # Of tenants who evict each other ours keeps more: it evicts to the token, not whole leaves.
    assert answers(ours["tenants"]) == answers(theirs["tenants"])
    assert num_answers(ours["tenants"]) > 12
    assert computed(ours["tenants"]) > 2 * 1200
    assert cached(ours["tenants"]) >= cached(theirs["tenants"]) > 2000


@pytest.mark.parametrize("page_size", [1, 16])
def test_tenants_find_as_much_where_the_pool_holds_them_all(model, tmp_path, page_size):
    ours, theirs = (
        run(model, tmp_path, backend, page_size, 8192, "tenants")["tenants"]
        for backend in ("radixkv", "sglang")
    )
    assert ours == theirs
    assert len(ours) == 200
    assert computed(ours) < 8192
