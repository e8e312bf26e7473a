"""SGLang's engine over a decoder with random weights, as the scripts beside this start it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Of what SGLang draws where there are no weights, from -0.001 to 0.001: its standard deviation.
WEIGHT = 0.001 / 3**0.5
# Starts that many tokens after the last special one, so that no token ends or changes anything.
FIRST_TOKEN = 100


@dataclass(frozen=True)
class Model:
    """The shape of a Granite decoder; `hidden` need not be heads x head_dim, as in a shard of a
    larger model."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int = 128
    vocab: int = 49152
    context: int = 32768

    @property
    def config(self) -> dict[str, Any]:
        """What stands in its config.json."""
        return {
            "architectures": ["GraniteForCausalLM"],
            "model_type": "granite",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "initializer_range": 0.02,
            "attention_bias": False,
            "mlp_bias": False,
            **self._multipliers,
        }

    @property
    def _multipliers(self) -> dict[str, float]:
        """Of Granite, which undo that SGLang's random weights are tiny: scores of a spread of 2,
        layers that add a fifth of what they read, logits of a spread of 3. Else no answer would
        depend on attention."""
        projected = self.hidden**0.5 * WEIGHT * WEIGHT  # of what a norm gives, with such weights
        added = (self.heads * self.head_dim) ** 0.5 * WEIGHT * projected / 8
        embedding = 1000.0
        return {
            "embedding_multiplier": embedding,
            "attention_multiplier": 2 / (self.head_dim**0.5 * projected**2),
            "residual_multiplier": embedding * WEIGHT / 5 / added,
            "logits_scaling": projected / 3,
        }


TINY = Model(layers=4, hidden=512, intermediate=1024, heads=8, kv_heads=4, head_dim=64)
ON_CPU = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "disable_overlap_schedule": True,
    "disable_cuda_graph": True,
}


@contextmanager
def engine(model: Model, **flags: Any) -> Iterator[Any]:
    """SGLang's `Engine` with `flags`, over random weights and without a tokenizer."""
    from sglang.srt.entrypoints.engine import Engine

    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(model.config))
        started = Engine(
            **{
                "model_path": folder,
                "load_format": "dummy",
                "skip_tokenizer_init": True,
                "sampling_backend": "pytorch",
                "dtype": "bfloat16",
                "page_size": 1,
                "skip_server_warmup": True,
                "log_level": "warning",
                **flags,
            }
        )
        try:
            yield started
        finally:
            started.shutdown()


def greedy(new_tokens: int) -> dict[str, Any]:
    """Sampling parameters of an answer of just so many tokens."""
    return {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
