"""Every causal model type of transformers, tiny and random: does it answer as it does by itself?"""

import copy
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from radixkv.errors import InvalidArgumentError
from radixkv.integrations.transformers import Generator

VOCABULARY, NEW_TOKENS = 97, 4
SHARED = [5, 9, 2, 14, 7, 3, 11, 60, 61, 62, 8, 4]
PROMPTS = [[*SHARED, 20, 40, 1], [*SHARED, 21], [*SHARED[:7], 33, 34, 35], [*SHARED, 20, 40, 1, 9]]

# What makes a configuration tiny, by the names that configurations have for it.
_TINY: dict[str, Any] = {
    **dict.fromkeys(["hidden_size", "n_embd", "d_model", "word_embed_proj_dim"], 32),
    **dict.fromkeys(["intermediate_size", "n_inner", "ffn_dim", "moe_intermediate_size"], 48),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "num_layers", "n_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "num_kv_heads"], 2),
    **dict.fromkeys(["head_dim", "rotary_dim"], 8),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "max_seq_len"], 256),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["num_experts_per_tok", "experts_per_token", "n_group", "topk_group"], 2),
    **dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id"]),
    **dict.fromkeys(["shared_expert_intermediate_size", "ffn_hidden_size"], 48),
    **dict.fromkeys(["q_lora_rank", "kv_lora_rank"], 16),
    **dict.fromkeys(["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"], 8),
    "qk_head_dim": 16,
    "first_k_dense_replace": 1,
    "sliding_window": 6,
    "vocab_size": VOCABULARY,
    "initializer_range": 0.5,
}

# Variants of the same type that attention or the head may be made of.
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "multi-head": {"num_key_value_heads": 4, "num_kv_heads": 4},
    "one K/V head": {"num_key_value_heads": 1, "num_kv_heads": 1},
    "tied": {"tie_word_embeddings": True},
}


class Verdict(NamedTuple):
    """outcome: "equal", "refused" (text: why, as a user reads it), "wrong", or "not made"."""

    outcome: str
    text: str = ""


def types() -> list[str]:
    """Of causal language models, as this version of transformers has them."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def tiny(model_type: str, variant: str = "grouped") -> Any:
    """A random model of that type, in float32. Raises whatever transformers raises."""
    config = AutoConfig.for_model(model_type)
    for each in _parts(config):
        for name, value in {**_TINY, **VARIANTS[variant]}.items():
            if hasattr(each, name) and not _is_layered(getattr(each, name)):
                _set(each, name, value)
        if getattr(each, "kv_lora_rank", None):  # of which every head has keys of its own
            _set(each, "num_key_value_heads", each.num_attention_heads)
        layers = getattr(each, "layer_types", None)
        if isinstance(layers, list):
            _set(each, "layer_types", layers[:2])
    with torch.device("meta"):  # which takes no memory
        size = sum(each.numel() for each in AutoModelForCausalLM.from_config(config).parameters())
    if size > 5_000_000:
        raise ValueError("it stays large: its sizes have other names")
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).float().eval()


def _parts(config: Any) -> Iterator[Any]:
    yield config
    text = config.get_text_config()
    if text is not config:
        yield text


def _set(config: Any, name: str, value: Any) -> None:
    # Properties that give another name to an attribute may not be set.
    with suppress(AttributeError):
        setattr(config, name, value)


def _is_layered(value: Any) -> bool:
    return isinstance(value, list | tuple | dict)


def judged(model: Any) -> Verdict:
    """Whether Generator gives the logits of the model alone, for prompts that share prefixes and
    for one that is cached, or refuses it in words of ours."""
    try:
        generator = Generator(model, num_slots=160, chunk_size=5)
    except InvalidArgumentError as error:
        return Verdict("refused", str(error))
    for prompt in [*PROMPTS, PROMPTS[0]]:
        generation = generator.submit(prompt, NEW_TOKENS, eos_ids=(), keep_logits=True)
        generator.run()
        tokens = [*prompt, *generation.tokens]
        expected = _alone(model, tokens)[len(prompt) - 1 : -1]
        found = torch.stack(generation.logits)
        scale = float(expected.abs().max())
        if not torch.allclose(found, expected, rtol=2e-3, atol=2e-3 * max(scale, 1e-3)):
            far = float((found - expected).abs().max()) / max(scale, 1e-3)
            return Verdict("wrong", f"logits differ by {far:.1%} of the largest")
    return Verdict("equal")


@torch.no_grad()
def _alone(model: Any, tokens: list[int]) -> torch.Tensor:
    """Logits after each token, of a copy that never met a Generator."""
    own = copy.deepcopy(model)
    logits: torch.Tensor = own(torch.tensor([tokens]), use_cache=False).logits[0].float()
    return logits


def verdict(model_type: str, variant: str = "grouped") -> Verdict:
    """Of a type that may not be possible to make tiny."""
    try:
        model = tiny(model_type, variant)
        _alone(model, PROMPTS[0])
    except Exception as error:  # whatever a model of its kind says
        line = str(error).splitlines()[0] if str(error) else ""
        return Verdict("not made", f"{type(error).__name__}: {line}")
    try:
        return judged(model)
    except Exception as error:
        line = str(error).splitlines()[0] if str(error) else ""
        return Verdict("wrong", f"{type(error).__name__}: {line}")
