"""What a token's prefill costs a model, and so what a cached one saves."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from radixkv.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder with gated feed-forward layers.

    intermediate: width of the feed-forward layers that one token passes, all its experts together.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int

    @property
    def flops_per_token(self) -> int:
        """Of the matrices that a token passes, attention to others and the vocabulary apart."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        return 2 * self.layers * (attention + 3 * self.hidden * self.intermediate)

    def prefill_flops(self, start: ArrayLike, end: ArrayLike) -> Any:
        """Of the positions [start, end) of a prompt, each attending to all up to itself.

        Whole numbers would not hold it: float64.
        """
        first, last = np.asarray(start, np.float64), np.asarray(end, np.float64)
        attended = (last * (last + 1) - first * (first + 1)) / 2
        pairs = 4 * self.layers * self.heads * self.head_dim
        return self.flops_per_token * (last - first) + pairs * attended


SHAPES = {
    shape.name: shape
    for shape in (
        ModelShape("smollm2-135m", 30, 576, 9, 3, 64, 1536),
        ModelShape("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944),
        ModelShape("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336),
        ModelShape("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672),
    )
}


def shape_named(name: str) -> ModelShape:
    """A shape of `SHAPES`, or that of a Hugging Face config.json.

    Raises InvalidArgumentError.

    >>> shape_named("llama-3.1-8b").flops_per_token // 10**9
    13
    """
    if name in SHAPES:
        return SHAPES[name]
    try:
        return _of_config(name, json.loads(Path(name).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(
            f"model must be one of {', '.join(SHAPES)} or a readable config.json; got {name!r} "
            f"({type(error).__name__}: {error})",
            model=name,
        ) from error


def _of_config(name: str, config: dict[str, Any]) -> ModelShape:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    return ModelShape(
        name=name,
        layers=config["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        intermediate=width * (config.get("num_experts_per_tok") or 1),
    )
