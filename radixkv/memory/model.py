"""What a model keeps of a token and computes for it, from its config.json.

Numbers are counted for the kinds of models in `KNOWN`; what is not known is refused by its name,
since a guess of K/V is wrong by factors (latents, windows, layers that keep a state).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from radixkv.arguments import at_least
from radixkv.errors import InvalidArgumentError
from radixkv.pages import ceil_div

Config: TypeAlias = Mapping[str, Any]

_DENSE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2",
          "granite", "smollm3", "seed_oss", "mimo")  # fmt: skip
_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "glm4_moe", "granitemoe", "minimax_m2",
            "qwen3_vl_text", "qwen3_vl_moe_text")  # fmt: skip
_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")
_HYBRID = ("qwen3_next", "granitemoehybrid", "nemotron_h", "qwen3_5_text", "qwen3_5_moe_text")
KNOWN = (*_DENSE, *_EXPERTS, *_LATENT, *_HYBRID)
_ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "deberta-v2",
             "mpnet", "modernbert", "nomic_bert", "albert", "camembert")  # fmt: skip
_WINDOWED = ("mistral", "phi3", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
_KINDS = {"full_attention": "full", "attention": "full", "sliding_attention": "window",
          "linear_attention": "state", "mamba": "state", "mamba2": "state"}  # fmt: skip
_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    kind: full, window, latent, state (which keeps no K/V of tokens), or none (no attention).
    kv_heads: over which K/V can be divided among ranks; head_values: numbers a head keeps of a
    token. heads, pair_values: query heads, and numbers that each multiplies with an earlier token.
    matrices: of numbers that one token is multiplied with; None: not counted.
    """

    kind: str
    kv_heads: int = 0
    head_values: int = 0
    heads: int = 0
    pair_values: int = 0
    matrices: int | None = None


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder. window: tokens back to which the layers of kind window attend."""

    name: str
    layers: tuple[Layer, ...]
    dtype: str = "bfloat16"
    window: int | None = None

    def count(self, kind: str) -> int:
        """Layers of a kind."""
        return sum(layer.kind == kind for layer in self.layers)

    def kv_values(self, ranks: int = 1) -> int:
        """Numbers that one token leaves in the K/V of each of `ranks` (tensor parallelism).

        K/V heads are divided, and repeated where there are fewer than ranks; latents are repeated.
        """
        at_least(1, ranks=ranks)
        return sum(ceil_div(layer.kv_heads, ranks) * layer.head_values for layer in self.layers)

    def window_values(self, ranks: int = 1) -> int:
        """Those of `kv_values` that no query needs once a window has passed."""
        windowed = tuple(layer for layer in self.layers if layer.kind == "window")
        return ModelShape(self.name, windowed).kv_values(ranks)

    @property
    def flops_per_token(self) -> int:
        """Of the matrices that a token passes, attention to others and the vocabulary apart.

        Raises InvalidArgumentError for layers that are not counted.
        """
        matrices = [layer.matrices for layer in self.layers]
        if None in matrices:
            raise InvalidArgumentError(
                f"model {self.name} has layers that keep a state; their operations are not counted",
                model=self.name,
            )
        return 2 * sum(each or 0 for each in matrices)

    def prefill_flops(self, start: ArrayLike, end: ArrayLike) -> Any:
        """Of the positions [start, end) of a prompt, each attending to all up to itself, or to a
        window. float64, since ints would not hold it.
        """
        first, last = np.asarray(start, np.float64), np.asarray(end, np.float64)
        found = self.flops_per_token * (last - first)
        for kind, attended in (
            ("full", _attended(first, last, None)),
            ("latent", _attended(first, last, None)),
            ("window", _attended(first, last, self.window)),
        ):
            pairs = sum(each.heads * each.pair_values for each in self.layers if each.kind == kind)
            found = found + 2 * pairs * attended
        return found


def _attended(first: Any, last: Any, window: int | None) -> Any:
    """Pairs of a position in [first, last) and one up to it that it sees."""
    return _pairs(last, window) - _pairs(first, window)


def _pairs(length: Any, window: int | None) -> Any:
    if window is None:
        return length * (length + 1) / 2
    inside = np.minimum(length, window)
    return inside * (inside + 1) / 2 + (length - inside) * window


# ---- reading ----


def read_model(path: str | Path) -> ModelShape:
    """The shape in a Hugging Face config.json, or in a folder with one.

    Raises InvalidArgumentError for what cannot be read, and by name for what is not known.
    """
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    try:
        config = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"model must be a config.json; {file}: {error}", model=str(path)
        ) from error
    if not isinstance(config, dict):
        raise InvalidArgumentError(
            f"{file} must be a JSON object; got {config!r:.40}", model=str(path)
        )
    own = file.parent.name if file.name == "config.json" else file.stem
    return shape_of(str(config.get("_name_or_path") or own or path), config)


def shape_of(name: str, config: Config) -> ModelShape:
    """As `read_model`, of a configuration in memory.

    >>> shape_of("m", {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
    ...                "num_attention_heads": 4, "intermediate_size": 128}).kv_values()
    256
    """
    inner = next((config[each] for each in _PARTS if isinstance(config.get(each), dict)), config)
    type = str(inner.get("model_type") or config.get("model_type"))
    if type in _ENCODERS:
        raise InvalidArgumentError(
            f"model must keep K/V; got {name}, which is an encoder ({type})", model=name
        )
    if type not in KNOWN:
        raise InvalidArgumentError(
            f"model type must be one of {', '.join(KNOWN)}; got {type!r} in {name}: give --layers, "
            "--kv-heads and --head-dim",
            model=name,
        )
    try:
        layers = tuple(_layers(type, inner))
    except (KeyError, TypeError) as error:
        raise InvalidArgumentError(
            f"config of {name} must have a usable {error}; got none", model=name
        ) from error
    dtype = inner.get("dtype") or inner.get("torch_dtype") or config.get("torch_dtype")
    window = inner.get("sliding_window") if any(e.kind == "window" for e in layers) else None
    return ModelShape(name, layers, str(dtype or "bfloat16"), window)


def _layers(type: str, config: Config) -> Iterator[Layer]:
    for at, kind in enumerate(_kinds(type, config)):
        ffn = _ffn(type, config, at)
        if kind == "none":
            yield Layer("none", matrices=ffn)
        elif kind == "state":
            yield Layer("state")
        elif type in _LATENT:
            yield _latent(config, ffn)
        else:
            yield _attention(kind, config, ffn)


def _attention(kind: str, config: Config, ffn: int) -> Layer:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    kv_heads = config.get("num_key_value_heads") or heads
    qk = config.get("head_dim") or config.get("attention_head_dim") or hidden // heads
    v = config.get("v_head_dim") or qk
    # A gate of the output, as Qwen3-Next has it, comes with the queries.
    queries = heads * qk * (2 if config.get("attn_output_gate") else 1)
    matrices = hidden * (queries + kv_heads * (qk + v) + heads * v)
    return Layer(kind, kv_heads, qk + v, heads, qk + v, matrices + ffn)


def _latent(config: Config, ffn: int) -> Layer:
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    latent, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    qk, v = config["qk_nope_head_dim"] + rope, config["v_head_dim"]
    rank = config.get("q_lora_rank")
    queries = rank * (hidden + heads * qk) if rank else hidden * heads * qk
    keys = hidden * (latent + rope) + latent * heads * (qk - rope + v)
    return Layer(
        "latent", 1, latent + rope, heads, qk + v, queries + keys + heads * v * hidden + ffn
    )


def _ffn(type: str, config: Config, at: int) -> int:
    """Numbers of the gated feed-forward matrices that one token passes in a layer."""
    hidden: int = config["hidden_size"]
    if type == "nemotron_h":
        return 2 * hidden * int(config["intermediate_size"])
    experts = config.get("num_experts_per_tok") or config.get("experts_per_token")
    if not experts or type in _DENSE or _is_dense(config, at):
        return 3 * hidden * int(config["intermediate_size"])
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    shared = (
        config.get("shared_expert_intermediate_size")
        or config.get("shared_intermediate_size")
        or width * (config.get("n_shared_experts") or 0)
    )
    return 3 * hidden * int(width * experts + shared)


def _is_dense(config: Config, at: int) -> bool:
    """Whether a layer of a model of experts is a dense one."""
    step = config.get("decoder_sparse_step") or 1
    return (
        at < (config.get("first_k_dense_replace") or 0)
        or at in (config.get("mlp_only_layers") or ())
        or (at + 1) % step != 0
    )


def _kinds(type: str, config: Config) -> list[str]:
    """The kind of each layer."""
    count = config["num_hidden_layers"]
    named = config.get("layer_types") or config.get("layers_block_type")
    if named:
        unknown = [each for each in named if each not in _KINDS]
        if unknown:
            raise InvalidArgumentError(
                f"layers must be of the kinds {', '.join(_KINDS)}; got {unknown[0]!r}"
            )
        return [_KINDS[each] for each in named]
    if type == "nemotron_h":
        marks = {"*": "full", "M": "state"}
        return [marks.get(each, "none") for each in config["hybrid_override_pattern"]]
    if type in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        every = config.get("full_attention_interval") or 4
        return ["full" if (at + 1) % every == 0 else "state" for at in range(count)]
    if type == "granitemoehybrid":
        raise KeyError("layer_types")
    if type == "gemma2":
        return ["full" if at % 2 else "window" for at in range(count)]
    if type == "gemma3_text":
        every = config.get("sliding_window_pattern") or 6
        return ["full" if (at + 1) % every == 0 else "window" for at in range(count)]
    return _by_window(type, config, count)


def _by_window(type: str, config: Config, count: int) -> list[str]:
    """One window for all layers, or for those from `max_window_layers` on."""
    has_window = type in _WINDOWED and config.get("sliding_window")
    if not has_window or config.get("use_sliding_window") is False:
        return ["full"] * count
    first = config.get("max_window_layers") or 0 if config.get("use_sliding_window") else 0
    return ["full"] * min(first, count) + ["window"] * max(count - first, 0)
