"""Backends are found by name, and what is missing is named."""

from importlib import import_module

import pytest

from radixkv.attention import backend_status, get_backend, register_backend, registry
from radixkv.attention.reference import ReferenceAttention
from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.memory.kv_pool import MHATokenToKVPool


@pytest.fixture
def pool():
    return MHATokenToKVPool(4, 1, 1, 8, "float32")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_LOADERS", dict(registry._LOADERS))


def test_the_reference_is_there(pool):
    backend = get_backend("reference", pool)
    assert isinstance(backend, ReferenceAttention)
    assert backend.pool is pool
    assert backend_status()["reference"] is None


def test_an_unknown_name_is_refused_with_the_known_ones(pool):
    with pytest.raises(InvalidArgumentError, match=r"one of .*reference.*; got 'fa9'"):
        get_backend("fa9", pool)


def test_a_missing_package_is_named(pool):
    register_backend("far", lambda: import_module("radixkv_no_such_package"))
    with pytest.raises(BackendUnavailableError, match="'radixkv_no_such_package'") as raised:
        get_backend("far", pool)
    assert raised.value.details == {"backend": "far", "package": "radixkv_no_such_package"}
    assert "radixkv_no_such_package" in backend_status()["far"]


def test_a_backend_of_ones_own_is_found(pool):
    class Own(ReferenceAttention):
        pass

    register_backend("own", lambda: Own)
    assert type(get_backend("own", pool)) is Own


def test_a_backend_that_needs_no_q_heads_takes_them():
    """One call serves any name."""
    pool = MHATokenToKVPool(8, 1, 2, 16, "float32")
    assert isinstance(get_backend("reference", pool, q_heads=8), ReferenceAttention)


def test_every_backend_explains_itself_to_a_reader():
    backend = get_backend("reference", MHATokenToKVPool(8, 1, 1, 8, "float32"))
    assert str(backend.explain()) == "ReferenceAttention has nothing to choose"
