"""SGLang where it is installed, else the stand-in for it; and a cache with what is around it."""

import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.integrations.sglang import standin

PLUGIN = "radixkv.integrations.sglang"
OF_SGLANG = ("sglang", PLUGIN, "tests.integrations.sglang.scheduler")


def _forget(*packages):
    for name in [*sys.modules]:
        if name.startswith(packages):
            del sys.modules[name]


@pytest.fixture(scope="session")
def real_sglang():
    """Whether SGLang itself is here."""
    return find_spec("sglang") is not None


@pytest.fixture(autouse=True)
def sglang(real_sglang):
    """What `import sglang` finds in each test; what was registered in one is gone in the next."""
    if real_sglang:
        from sglang.srt.mem_cache import registry

        kept = dict(registry._RADIX_CACHE_REGISTRY)
        yield
        registry._RADIX_CACHE_REGISTRY.clear()
        registry._RADIX_CACHE_REGISTRY.update(kept)
        return
    # What imports it may have been tried before, in vain; and holds what it imported.
    _forget(*OF_SGLANG)
    standin.install()
    yield
    _forget(*OF_SGLANG)


@pytest.fixture
def scheduler(monkeypatch):
    """`scheduler(...)`: see `scheduler.Scheduler`."""
    from tests.integrations.sglang.scheduler import Scheduler

    def make(core=None, numbers=None, **how):
        """core: of the tree. numbers: the class of what stands in it for slots."""
        if core is not None:
            monkeypatch.setenv("RADIXKV_CORE", core)
        if numbers is not None:
            cache, found = (import_module(f"{PLUGIN}.{room}") for room in ("cache", "numbers"))
            kind = getattr(found, numbers)
            how["make"] = lambda params: cache.RadixKVCache(params, kind)
        return Scheduler(**how)

    return make
