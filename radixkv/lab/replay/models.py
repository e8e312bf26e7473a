"""The models whose prefill the lab counts: some by name, others by their config.json."""

from pathlib import Path
from typing import Any

from radixkv.errors import InvalidArgumentError
from radixkv.memory.model import ModelShape, read_model, shape_of


def _llama(layers: int, hidden: int, heads: int, kv_heads: int, width: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
    }


SHAPES = {
    name: shape_of(name, config)
    for name, config in {
        "smollm2-135m": _llama(30, 576, 9, 3, 1536),
        "qwen2.5-7b": _llama(28, 3584, 28, 4, 18944),
        "llama-3.1-8b": _llama(32, 4096, 32, 8, 14336),
        "llama-3.1-70b": _llama(80, 8192, 64, 8, 28672),
    }.items()
}


def shape_named(name: str) -> ModelShape:
    """A shape of `SHAPES`, or that of a Hugging Face config.json or a folder with one.

    Raises InvalidArgumentError.

    >>> shape_named("llama-3.1-8b").flops_per_token // 10**9
    13
    """
    if name in SHAPES:
        return SHAPES[name]
    if not Path(name).exists():
        raise InvalidArgumentError(
            f"model must be one of {', '.join(SHAPES)}, a config.json or a folder with one; "
            f"got {name!r}",
            model=name,
        )
    return read_model(name)
