"""Models that ask for what radixkv does not serve: refused, for their results would be wrong."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from radixkv.errors import InvalidArgumentError

# What models hand to every attention function, and what changes no result.
HARMLESS = {"cache_position", "is_causal", "output_hidden_states", "position_ids", "use_cache"}


def refuse_model(model: PreTrainedModel, parameters: Mapping[str, Any]) -> None:
    if model.training:
        raise InvalidArgumentError("the model is in training mode; call model.eval() first")
    if "logits_to_keep" not in parameters:
        raise InvalidArgumentError(
            f"{type(model).__name__} takes no logits_to_keep; radixkv serves causal language models"
        )
    config: Any = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    # K/V of one token would differ with the length of whatever is computed beside it.
    if any(kind in str(rope) for kind in ("dynamic", "longrope")):
        raise InvalidArgumentError(
            "the model's rotary embedding depends on the length of the sequence; "
            "its keys cannot be shared between sequences",
            rope_parameters=rope,
        )


def refuse_features(module: nn.Module, **features: Any) -> None:
    if features.pop("is_causal", None) is False or getattr(module, "is_causal", True) is False:
        raise InvalidArgumentError("the model's attention is not causal; radixkv serves decoders")
    for name, value in features.items():
        if name not in HARMLESS and value is not None and value is not False:
            raise InvalidArgumentError(
                f"the model's attention asks for {name}, which radixkv does not serve: its results "
                "would be wrong",
                feature=name,
            )
