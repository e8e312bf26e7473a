"""How SGLang finds the attention backend, and what it refuses by name."""

import importlib
import logging
from types import SimpleNamespace

import pytest
import torch

from radixkv.errors import BackendUnavailableError, InvalidArgumentError

ROOM = "radixkv.integrations.sglang.attention"
REGISTRY = "sglang.srt.layers.attention.attention_registry"


@pytest.fixture(autouse=True)
def stands_in(real_sglang):
    if real_sglang:
        pytest.skip("the engine itself is asked, see tests/hosts")


@pytest.fixture
def offer(monkeypatch):
    found = importlib.import_module(f"{ROOM}.offer")
    monkeypatch.setattr(found.surface, "host_version", lambda: found.TESTED_VERSIONS[0])
    return found


@pytest.fixture
def runner():
    """`runner(...)`: what SGLang gives a factory, for three layers of which one has a window."""
    from tests.support.sglang_attention import RadixAttention, new_runner

    def make(windows=(-1, 15, -1), args=(), **others):
        layers = [RadixAttention(4, 16, 0.25, 2, at, window) for at, window in enumerate(windows)]
        made = new_runner(torch.zeros((5, 32), dtype=torch.int32), layers, slots=40)
        vars(made).update(others, server_args=SimpleNamespace(**dict(args)))
        return made

    return make


def test_the_backend_is_offered_by_name(offer, runner):
    from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES

    importlib.import_module("radixkv.integrations.sglang").register()
    built = importlib.import_module(REGISTRY).ATTENTION_BACKENDS["radixkv"](runner())
    assert type(built).__name__ == "RadixKVAttention"
    assert ATTENTION_BACKEND_CHOICES.count("radixkv") == 1


def test_a_second_registration_is_one_line_and_changes_nothing(offer, caplog):
    backends = importlib.import_module(REGISTRY).ATTENTION_BACKENDS
    backends["radixkv"] = who_was_first
    offer.offer()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        f"the attention backend 'radixkv' is already registered, by {__name__}; it stays as it is: "
        "uninstall one of the packages that register it"
    )
    assert backends["radixkv"] is who_was_first


def who_was_first(runner):
    """A factory of somebody else's."""


def test_an_sglang_without_a_registry_is_one_line_and_leaves_the_cache(offer, monkeypatch, caplog):
    monkeypatch.delattr(importlib.import_module(REGISTRY), "register_attention_backend")
    importlib.import_module("radixkv.integrations.sglang").register()
    (record,) = caplog.records
    assert "has no registry of attention backends that radixkv knows" in record.getMessage()
    assert "\n" not in record.getMessage()
    registry = importlib.import_module("sglang.srt.mem_cache.registry")
    assert registry.registered_radix_cache_backends() == ["radixkv"]


def test_each_missing_member_is_named(offer, runner, monkeypatch):
    asked = runner()
    for module_name, classes in offer.USED.items():
        module = importlib.import_module(module_name)
        for name, members in classes.items():
            for member in members.split():
                others = dict.fromkeys(set(members.split()) - {member})
                with monkeypatch.context() as patch:
                    patch.setattr(module, name, type(name, (), others))
                    with pytest.raises(BackendUnavailableError) as caught:
                        offer.build(asked)
                assert caught.value.details["missing"] == [f"{name}.{member}"]
                assert str(caught.value).startswith("--attention-backend radixkv: SGLang")


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"is_draft_worker": True}, "speculative decoding"),
        ({"prefill_attention_backend_str": "fa3"}, "another --prefill-attention-backend or"),
        ({"args": {"disaggregation_mode": "decode"}}, "--disaggregation-mode"),
        ({"args": {"dcp_size": 2}}, "--dcp-size"),
        ({"args": {"attn_cp_size": 2}}, "--attn-cp-size"),
        ({"args": {"dllm_algorithm": "x"}}, "--dllm-algorithm"),
        ({"args": {"enable_mixed_chunk": True}}, "--enable-mixed-chunk"),
        ({"args": {"enable_two_batch_overlap": True}}, "--enable-two-batch-overlap"),
        ({"args": {"enable_pdmux": True}}, "--enable-pdmux"),
        ({"args": {"enable_hisparse": True}}, "--enable-hisparse"),
        ({"use_mla_backend": True}, r"models with latent attention \(MLA\)"),
        ({"is_hybrid_swa": True}, "models whose windows have a KV pool of their own"),
        ({"model_config": SimpleNamespace(is_encoder_decoder=True)}, "models with an encoder"),
        ({"kv_cache_dtype": torch.float8_e4m3fn}, "--kv-cache-dtype torch.float8_e4m3fn"),
        (
            {"token_to_kv_pool": SimpleNamespace(kv_cache_layout="hnd")},
            r"a KV pool laid out as hnd \(it serves nhd\)",
        ),
        (
            {"kv_index_translator": SimpleNamespace(is_translating=True)},
            "slots that are translated",
        ),
        ({"windows": (7, 7)}, "models of which each layer has a window or is not causal"),
    ],
)
def test_what_is_not_served_is_refused_by_name(offer, runner, asked, named):
    with pytest.raises(
        InvalidArgumentError, match=f"attention-backend radixkv .*{named}"
    ) as caught:
        offer.build(runner(**asked))
    assert "\n" not in str(caught.value)


def test_a_mode_that_there_is_not_is_refused(offer, runner, monkeypatch):
    monkeypatch.setenv("RADIXKV_SGLANG_ATTENTION", "always")
    named = "RADIXKV_SGLANG_ATTENTION must be auto, tree, flat; got 'always'"
    with pytest.raises(InvalidArgumentError, match=named):
        offer.build(runner())


def test_models_with_recurrent_state_are_refused(offer, runner, monkeypatch):
    hybrid = importlib.import_module("sglang.srt.configs.hybrid_arch")
    monkeypatch.setattr(hybrid, "mambaish_config", lambda config: "mamba")
    with pytest.raises(InvalidArgumentError, match="models with Mamba or other recurrent state"):
        offer.build(runner())


def test_decode_graphs_are_captured_under_our_labels_where_the_backend_is_ours(offer, runner):
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import (
        create_dsv41_candidate_graph_variants as variants,
    )

    served = runner()
    served.attn_backend = offer.build(served)
    assert variants(served, ForwardMode.DECODE).capture_labels[0] == "flat"
    assert variants(served, ForwardMode.EXTEND) is None
    served.attn_backend = object()
    assert variants(served, ForwardMode.DECODE) is None
