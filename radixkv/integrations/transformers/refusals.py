"""Models that ask for what radixkv does not serve: refused, because results would be wrong."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from radixkv.errors import InvalidArgumentError

# What models pass to every attention function and what changes no result.
HARMLESS = {"cache_position", "is_causal", "output_hidden_states", "position_ids", "use_cache"}


def refuse_model(model: PreTrainedModel, parameters: Mapping[str, Any]) -> None:
    if model.training:
        raise InvalidArgumentError(
            "the model must be in evaluation mode; got one in training: call model.eval() first"
        )
    if "logits_to_keep" not in parameters:
        raise InvalidArgumentError(
            f"the model must be a causal language model, whose forward takes logits_to_keep; "
            f"got {type(model).__name__}"
        )
    config: Any = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    # K/V of one token would differ with the length of whatever is computed beside it.
    if any(kind in str(rope) for kind in ("dynamic", "longrope")):
        raise InvalidArgumentError(
            "the model's rotary embedding must not depend on the length of the sequence, or keys "
            f"cannot be shared between sequences; got {rope}",
            rope_parameters=rope,
        )


def refuse_features(module: nn.Module, **features: Any) -> None:
    if features.pop("is_causal", None) is False or getattr(module, "is_causal", True) is False:
        raise InvalidArgumentError("the model's attention must be causal; got is_causal=False")
    for name, value in features.items():
        if name not in HARMLESS and value is not None and value is not False:
            raise InvalidArgumentError(
                f"{name} must not be set for the model's attention, because radixkv does not serve "
                f"it and results would be wrong; got {value!r}",
                feature=name,
            )
