"""A part of `python -m bench.model_types`, which asks every type that transformers has."""

import functools

import pytest

from radixkv.errors import InvalidArgumentError
from radixkv.integrations.transformers.masks import check_windows
from tests.support.model_types import VARIANTS, judged, tiny

SERVED = [
    "llama",
    "mistral",
    "gemma2",
    "gemma3_text",
    "gpt_oss",
    "qwen2",
    "qwen3_moe",
    "gpt2",
    "phi",
    "deepseek_v2",
    "deepseek_v3",
    "glm4_moe_lite",
]
REFUSED = {
    "stablelm": "StableLmForCausalLM is not served: the model must pass on",
    "bloom": "BloomForCausalLM caches K/V in layers",
    "jetmoe": "a model must hand its attention the K/V that it stores; got 4 heads of 2",
    "mamba": "its configuration must have num_attention_heads",
    "hrm_text": "does not run over a KV pool",
    "bert": "the model's mask must be causal, with or without a sliding window",
}


@pytest.mark.parametrize("model_type", SERVED)
def test_a_type_that_is_served_answers_as_it_does_by_itself(model_type):
    assert judged(tiny(model_type)).outcome == "equal"


@pytest.mark.parametrize("variant", VARIANTS)
def test_so_do_its_variants(variant):
    assert judged(tiny("qwen2", variant)).outcome == "equal"


@pytest.mark.parametrize("model_type", REFUSED)
def test_a_type_that_is_not_served_is_refused_in_words_for_a_user(model_type):
    outcome, text = judged(tiny(model_type))
    assert outcome == "refused"
    assert REFUSED[model_type] in text


def test_logits_that_are_another_models_are_noticed(monkeypatch):
    """What judges them all would see it."""
    model = tiny("llama")
    layer = model.model.layers[0].self_attn
    generating = type(model).forward

    @functools.wraps(generating)
    def forward(self, *args, **how):
        scaling = layer.scaling
        layer.scaling = scaling * 3 if "radix" in how else scaling
        try:
            return generating(self, *args, **how)
        finally:
            layer.scaling = scaling

    monkeypatch.setattr(type(model), "forward", forward)
    assert judged(model).outcome == "wrong"


class Config:
    def __init__(self, layer_types=None, sliding_window=None):
        self.layer_types, self.sliding_window = layer_types, sliding_window


BOTH = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("config", "asked", "attended"),
    [
        (Config(), {8}, [None, None]),
        (Config(), {None}, [8, 8]),
        (Config(), {None, 8}, [None, None]),
        (Config(BOTH, 8), {None, 8}, [None, 8]),
        (Config(BOTH, 8), {None, 8}, [8, 8]),
        (Config(BOTH, 8), {None}, [8, None]),
        (Config(["chunked_attention"] * 2, 8), {None, 8}, [None, None]),
    ],
)
def test_a_window_that_attention_is_not_told_is_refused(config, asked, attended):
    """A model that hides tokens by its mask alone would see them here."""
    with pytest.raises(InvalidArgumentError, match="window of its mask in each layer"):
        check_windows(config, asked, attended)


@pytest.mark.parametrize(
    ("config", "asked", "attended"),
    [
        (Config(), {None}, [None, None]),
        (Config(), {8}, [8, 8]),
        (Config(BOTH, 8), {None, 8}, [8, None]),
        (Config(["full_attention"] * 2, 8), {None, 8}, [None, None]),
    ],
)
def test_windows_that_agree_are_served(config, asked, attended):
    check_windows(config, asked, attended)
