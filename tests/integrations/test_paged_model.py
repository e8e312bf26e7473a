"""Hugging Face decoders over the KV pool against the same models with their own cache."""

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from radixkv.attention import AttentionBatch
from radixkv.errors import InvalidArgumentError
from radixkv.integrations.transformers.paged_model import PagedCache, PagedModel, pool_for
from radixkv.integrations.transformers.refusals import IN_STEP
from tests.support.waiting import run_threads

TINY = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MLA = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}
WINDOWED = ["sliding_attention", "full_attention", "sliding_attention"]
SERVED = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {},
    "mixtral": {},
    "phi3": {"partial_rotary_factor": 0.5},
    "gemma": {"head_dim": 16},
    "olmo2": {},
    "granite": {"attention_multiplier": 0.3},
    "starcoder2": {"sliding_window": None},
    "gemma2": {"head_dim": 8, "sliding_window": 6, "attn_logit_softcapping": 2.0},
    "gemma3_text": {"head_dim": 8, "sliding_window": 6, "layer_types": WINDOWED},
    "gpt_oss": {"head_dim": 8, "sliding_window": 6, "layer_types": WINDOWED},
    "cohere": {},
    "gpt_neox": {"num_key_value_heads": None},
    "gpt2": {"num_key_value_heads": None},
    "deepseek_v2": MLA,
    "deepseek_v3": MLA,
}
REFUSED = {
    "bert": ({"num_key_value_heads": None}, "mask must be causal"),
    "stablelm": ({}, "StableLmForCausalLM is not served: the model must pass on"),
    "qwen3_next": ({"head_dim": 8}, "does not run over a KV pool"),
    "diffllama": ({}, "must hand its attention the K/V that it stores"),
    "biogpt": ({"num_key_value_heads": None}, "attention_mask must be None"),
    "deepseek_v32": (MLA, "does not run over a KV pool"),
    "bloom": ({"num_key_value_heads": None}, "AttentionInterface in layers"),
    "llama": (
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "rotary embedding must not depend on the length",
    ),
}


def tiny_model(kind, **options):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **TINY | options)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def own_logits(model, token_ids):
    """(n, vocabulary): `model` by itself, nothing cached."""
    with torch.no_grad():
        return model(torch.tensor([token_ids])).logits[0]


def in_chunks(paged, prompts, rows, chunk):
    """Logits after every token of `prompts`, computed side by side, `chunk` tokens a step each."""
    found = [[] for _ in prompts]
    for start in range(0, max(map(len, prompts)), chunk):
        now = [i for i, prompt in enumerate(prompts) if start < len(prompt)]
        news = [prompts[i][start : start + chunk] for i in now]
        lengths = [len(new) for new in news]
        batch = AttentionBatch(
            [rows[i][: start + n] for i, n in zip(now, lengths, strict=True)], lengths
        )
        tokens = np.concatenate(news)
        logits = paged.logits(tokens, batch, np.arange(len(tokens)))
        for i, part in zip(now, logits.split(lengths), strict=True):
            found[i].append(part)
    return [torch.cat(parts) for parts in found]


def scattered(lengths, page_size, seed=0):
    """Rows of slots, their pages in no order."""
    pages = np.random.default_rng(seed).permutation(100 // page_size) + 1
    rows, at = [], 0
    for length in lengths:
        count = -(-length // page_size)
        slots = pages[at : at + count, None] * page_size + np.arange(page_size)
        rows.append(slots.reshape(-1)[:length].astype(np.int32))
        at += count
    return rows


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("kind", SERVED)
def test_a_decoder_gives_the_logits_it_gives_by_itself(kind, page_size):
    model = tiny_model(kind, **SERVED[kind])
    pool = pool_for(model, 100, page_size=page_size)
    paged = PagedModel(model, pool)
    prompts = [[3, 5, 7, 11, 13, 17, 19], [23, 29], [31] * 20]
    rows = scattered([len(prompt) for prompt in prompts], page_size)
    for chunk in (1, 6, 20):
        for prompt, logits in zip(prompts, in_chunks(paged, prompts, rows, chunk), strict=True):
            assert (logits - own_logits(model, prompt)).abs().max() < 1e-5


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_that_would_come_out_wrong_is_refused(kind):
    options, reason = REFUSED[kind]
    model = tiny_model(kind, **options)
    with pytest.raises(InvalidArgumentError, match=reason):
        PagedModel(model, pool_for(model, 16))
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("name", "value"), [("position_bias", torch.ones(4)), ("is_causal", False), ("block_size", 8)]
)
def test_a_feature_of_attention_is_never_ignored(in_step, name, value):
    model = tiny_model("llama")
    paged = PagedModel(model, pool_for(model, 16))
    paged.backend.plan(AttentionBatch([np.array([1], np.int32)], [1]))
    model.set_attn_implementation("radixkv")
    with pytest.raises(InvalidArgumentError, match=f"{name} must not be set|must be causal"):
        model(
            torch.tensor([[1]]),
            position_ids=torch.tensor([[0]]),
            use_cache=False,
            radix=paged.backend,
            **{name: value},
        )


def test_a_model_in_training_mode_is_refused():
    model = tiny_model("llama").train()
    with pytest.raises(InvalidArgumentError, match=r"call model.eval\(\)"):
        PagedModel(model, pool_for(model, 16))


def test_a_model_without_a_head_is_refused():
    model = tiny_model("llama")
    with pytest.raises(InvalidArgumentError, match="takes logits_to_keep; got LlamaModel"):
        PagedModel(model.model, pool_for(model, 16))


@pytest.mark.parametrize("change", ["bias", "keys"])
def test_latents_that_become_keys_otherwise_are_refused(monkeypatch, change):
    model = tiny_model("deepseek_v3", **MLA)
    attention = model.model.layers[1].self_attn
    if change == "bias":
        attention.kv_b_proj.bias = torch.nn.Parameter(torch.zeros(4 * (12 + 10)))
        reason = "a linear layer without bias; got Linear"
    else:
        expand = attention.expand_kv
        monkeypatch.setattr(attention, "expand_kv", lambda *kv: [2 * each for each in expand(*kv)])
        reason = "the K/V that it stores"
    with pytest.raises(InvalidArgumentError, match=reason):
        PagedModel(model, pool_for(model, 16))


def test_attention_that_looks_ahead_is_refused():
    model = tiny_model("llama")
    model.model.layers[1].self_attn.is_causal = False
    with pytest.raises(InvalidArgumentError, match="attention must be causal"):
        PagedModel(model, pool_for(model, 16))


def test_a_pool_of_another_shape_is_refused():
    model = tiny_model("llama")
    with pytest.raises(InvalidArgumentError, match=r"k must have shape .* got \(1, 2, 8\)"):
        PagedModel(model, pool_for(tiny_model("llama", num_key_value_heads=4), 16))
    with pytest.raises(InvalidArgumentError, match=r"layers \(4 here\)"):
        PagedModel(model, pool_for(tiny_model("llama", num_hidden_layers=4), 16))


@pytest.fixture
def in_step():
    """This thread is in a step, as it is while a PagedModel computes."""
    token = IN_STEP.set(True)
    yield
    IN_STEP.reset(token)


def test_a_plain_call_in_another_thread_is_told_of_the_step():
    model = tiny_model("llama")
    paged = PagedModel(model, pool_for(model, 16))
    told = []

    def call(*_):
        for mask in (None, torch.tensor([[1, 1]])):
            with pytest.raises(InvalidArgumentError) as caught:
                model(torch.tensor([[1, 2]]), attention_mask=mask)
            told.append(str(caught.value))

    def meanwhile(*_):
        hook.remove()
        run_threads(call)

    hook = model.model.layers[0].register_forward_hook(meanwhile)
    batch = AttentionBatch([np.array([4], np.int32)], [1])
    found = paged.logits(np.array([1]), batch, np.array([0]))
    assert torch.allclose(found[0], own_logits(model, [1])[0], atol=1e-5)
    assert len(told) == 2
    assert all("while a Generator is in a step of it" in text for text in told)


def test_a_call_without_a_plan_or_with_a_mask_says_so(in_step):
    model = tiny_model("llama")
    paged = PagedModel(model, pool_for(model, 16))
    model.set_attn_implementation("radixkv")
    tokens = torch.tensor([[1, 2]])
    with pytest.raises(InvalidArgumentError, match=r"called with \(radix=backend\)"):
        model(tokens)
    with pytest.raises(InvalidArgumentError, match="attention_mask must be None"):
        model(tokens, attention_mask=torch.tensor([[0, 1]]), radix=paged.backend)
    with pytest.raises(InvalidArgumentError, match="must be one row; got 2"):
        model(tokens.expand(2, 2), use_cache=False, radix=paged.backend)


def test_the_model_stays_usable_on_its_own():
    model = tiny_model("llama")
    before = own_logits(model, [1, 2, 3])
    paged = PagedModel(model, pool_for(model, 16))
    batch = AttentionBatch([np.array([4], np.int32)], [1])
    paged.logits(np.array([1]), batch, np.array([0]))
    assert model.config._attn_implementation == "eager"
    assert torch.equal(own_logits(model, [1, 2, 3]), before)


def test_the_trial_leaves_the_pool_alone():
    model = tiny_model("llama")
    pool = pool_for(model, 16)
    PagedModel(model, pool)
    assert not any(pool.k(layer).any() or pool.v(layer).any() for layer in range(pool.num_layers))


def test_logits_come_only_where_they_are_kept():
    model = tiny_model("llama")
    paged = PagedModel(model, pool_for(model, 16))
    batch = AttentionBatch([np.array([4, 5, 6], np.int32)], [3])
    assert paged.logits(np.array([1, 2, 3]), batch, np.array([], np.int64)).shape == (0, 97)
    kept = paged.logits(np.array([1, 2, 3]), batch, batch.last_tokens)
    assert (kept[0] - own_logits(model, [1, 2, 3])[-1]).abs().max() < 1e-5


def test_the_cache_shows_transformers_no_tokens_of_its_own():
    model = tiny_model("llama")
    cache = PagedCache(PagedModel(model, pool_for(model, 16)).backend)
    assert len(cache) == 3
    assert cache.get_seq_length() == 0
    assert not any(cache.is_sliding), transformers.__version__
