"""How SGLang finds the cache, and which error names what is missing."""

import importlib
import logging
from types import SimpleNamespace

import pytest

from radixkv.errors import BackendUnavailableError, InvalidArgumentError
from radixkv.tree import POLICIES


@pytest.fixture
def plugin():
    return importlib.import_module("radixkv.integrations.sglang.plugin")


@pytest.fixture
def surface(monkeypatch):
    found = importlib.import_module("radixkv.integrations.sglang.surface")
    monkeypatch.setattr(found, "host_version", lambda: found.TESTED_VERSIONS[0])
    return found


@pytest.fixture
def registry():
    return importlib.import_module("sglang.srt.mem_cache.registry")


@pytest.fixture
def context(scheduler):
    """`context(...)`: what SGLang gives a factory."""
    made = scheduler()

    def make(args=(), params=(), **kinds):
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams

        plain = {
            "is_hybrid_swa": False,
            "is_hybrid_ssm": False,
            "enable_hierarchical_cache": False,
            "disable_radix_cache": False,
            "tp_rank": 0,
        }
        return SimpleNamespace(
            server_args=SimpleNamespace(**dict.fromkeys(args, True)),
            params=CacheInitParams(
                disable=False,
                req_to_token_pool=made.rows,
                token_to_kv_pool_allocator=made.allocator,
                page_size=1,
                **dict(params),
            ),
            **plain | kinds,
        )

    return make


def test_the_package_names_its_plugin():
    from importlib.metadata import entry_points

    (found,) = (e for e in entry_points(group="sglang.srt.plugins") if e.name == "radixkv")
    assert found.value == "radixkv.integrations.sglang:register"
    assert found.load().__module__ == "radixkv.integrations.sglang.plugin"


def test_the_cache_is_offered_by_name_with_all_policies(plugin, registry, surface, context):
    from sglang.srt.arg_groups.choices import RADIX_EVICTION_POLICY_CHOICES

    plugin.register()
    factory = registry.get_radix_cache_factory("radixkv")
    assert type(factory(context())).__name__ == "RadixKVCache"
    assert set(POLICIES) <= set(RADIX_EVICTION_POLICY_CHOICES)
    assert len(set(RADIX_EVICTION_POLICY_CHOICES)) == len(RADIX_EVICTION_POLICY_CHOICES)


def test_a_second_registration_is_one_line_and_changes_nothing(plugin, registry, caplog):
    registry.register_radix_cache_backend("radixkv", who_was_first)
    plugin.register()
    (record,) = records_of(plugin, caplog)
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        f"the radix cache backend 'radixkv' is already registered, by {__name__}; it stays as it "
        "is: uninstall one of the packages that register it"
    )
    assert registry.get_radix_cache_factory("radixkv") is who_was_first


def records_of(plugin, caplog):
    """Those about the cache: attention, which SGLang keeps from test to test, has its own."""
    return [record for record in caplog.records if record.name == plugin.log.name]


def who_was_first(ctx):
    """A factory of somebody else's."""


def test_an_sglang_without_a_registry_is_one_line(plugin, registry, monkeypatch, caplog):
    monkeypatch.delattr(registry, "register_radix_cache_backend")
    plugin.register()
    (record,) = records_of(plugin, caplog)
    assert "has no registry of prefix caches that radixkv knows" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_each_missing_member_is_named(plugin, surface, context, monkeypatch):
    asked = context()
    for module_name, classes in surface.USED.items():
        module = importlib.import_module(module_name)
        for name, members in classes.items():
            for member in members.split():
                others = dict.fromkeys(set(members.split()) - {member})
                with monkeypatch.context() as patch:
                    patch.setattr(module, name, type(name, (), others))
                    with pytest.raises(BackendUnavailableError) as caught:
                        plugin.build(asked)
                assert caught.value.details["missing"] == [f"{name}.{member}"]
                assert "\n" not in str(caught.value)


def test_a_class_that_is_gone_is_named(plugin, surface, context, monkeypatch):
    asked = context()
    monkeypatch.delattr(
        importlib.import_module("sglang.srt.mem_cache.base_prefix_cache"), "TreeLock"
    )
    with pytest.raises(BackendUnavailableError, match=r"lacks .*base_prefix_cache\.TreeLock"):
        plugin.build(asked)


def test_what_sglang_asks_for_and_the_cache_lacks_is_named(plugin, surface, context, monkeypatch):
    cache = importlib.import_module("radixkv.integrations.sglang.cache")
    monkeypatch.setattr(cache.RadixKVCache, "__abstractmethods__", frozenset(["prefetch"]))
    with pytest.raises(BackendUnavailableError, match="asks a prefix cache for prefetch, which"):
        plugin.build(context())


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"is_hybrid_swa": True}, "models with sliding windows"),
        ({"is_hybrid_ssm": True}, "models with Mamba or other recurrent state"),
        ({"enable_hierarchical_cache": True}, "--enable-hierarchical-cache"),
        ({"args": ["enable_streaming_session"]}, "--enable-streaming-session"),
        ({"args": ["enable_session_radix_cache"]}, "--enable-session-radix-cache"),
        ({"args": ["enable_lmcache"]}, "--enable-lmcache"),
        ({"args": ["enable_flexkv"]}, "--enable-flexkv"),
        (
            {"args": ["enable_unified_cache_external_linker"]},
            "--enable-unified-cache-external-linker",
        ),
        ({"params": {"eviction_policy": "tlru"}}, r"--radix-eviction-policy tlru \(it serves lru"),
        ({"params": {"eviction_policy_config": {"x": 1}}}, "--radix-eviction-policy-config"),
    ],
)
def test_what_is_not_served_is_refused_by_name(plugin, surface, context, asked, named):
    with pytest.raises(InvalidArgumentError, match=f"radixkv does not serve {named}") as caught:
        plugin.build(context(**asked))
    assert "\n" not in str(caught.value)


def test_all_that_is_refused_is_named_at_once(plugin, surface, context):
    with pytest.raises(InvalidArgumentError) as caught:
        plugin.build(context(is_hybrid_swa=True, enable_hierarchical_cache=True))
    assert caught.value.details["refused"] == [
        "models with sliding windows",
        "--enable-hierarchical-cache",
    ]


def test_only_an_untested_version_is_warned_of(plugin, surface, context, monkeypatch, caplog):
    plugin.build(context())
    assert not caplog.records
    monkeypatch.setattr(surface, "host_version", lambda: "9.9.9")
    plugin.build(context())
    (record,) = caplog.records
    assert record.getMessage() == (
        "radixkv is not tested with SGLang 9.9.9, but with 0.5.22, 0.5.23; it has what is used of "
        "it"
    )


def test_a_cache_that_is_off_is_sglangs_own(plugin, registry, surface, context, monkeypatch):
    monkeypatch.setattr(registry, "default_radix_cache_factory", lambda ctx: ("own", ctx))
    off = context(disable_radix_cache=True)
    assert plugin.build(off) == ("own", off)


def test_metrics_are_counted_where_they_are_asked_for(scheduler, monkeypatch):
    from sglang.srt.mem_cache.base_prefix_cache import BasePrefixCache

    counted = []
    monkeypatch.setattr(BasePrefixCache, "init_metrics_collector", lambda self: None)
    monkeypatch.setattr(
        BasePrefixCache, "update_eviction_metrics", lambda self, n, start: counted.append(n)
    )
    host = scheduler(enable_metrics=True, num_slots=16)
    host.run(range(10))
    host.run(range(20, 30))
    assert sum(counted) == host.evicted == 4


def test_a_share_is_kept_for_its_tenant_and_what_is_beyond_a_cap_goes(
    plugin, surface, context, monkeypatch, tmp_path
):
    """Through the factory: the file that RADIXKV_SGLANG_SHARES names."""
    file = tmp_path / "shares.toml"
    file.write_text('[[share]]\nsalt = "b"\nreserve = 60\n[[share]]\nsalt = "a"\ncap = 40\n')
    monkeypatch.setenv("RADIXKV_SGLANG_SHARES", str(file))
    cache = plugin.build(context())
    assert {salt: (share.reserve, share.cap) for salt, share in cache.tree.shares.items()} == {
        "b": (60, None),
        "a": (0, 40),
    }


def test_reserves_hold_and_caps_evict_in_the_life_of_requests(scheduler):
    from radixkv.integrations.sglang.cache import RadixKVCache
    from radixkv.tree.shares import Share

    shares = {"b": Share(reserve=60), "a": Share(cap=40)}
    host = scheduler(num_slots=200, make=lambda params: RadixKVCache(params, shares=shares))
    host.run(range(60), cache_salt="b")
    for start in range(1000, 4000, 50):
        host.run(range(start, start + 50), cache_salt="a")
        host.run(range(start, start + 50), cache_salt="c")
    assert host.cache.tree.share_sizes()["a"].evictable <= 40
    assert host.run(range(61), cache_salt="b") == 60
    total = host.cache.evictable_size() + host.cache.protected_size()
    assert total == host.cache.total_size()
