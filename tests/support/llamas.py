"""Tiny Llamas with random weights, and what they generate by themselves."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def llama(*, device: Any = "cpu", dtype: torch.dtype = torch.float32, **sizes: Any) -> Any:
    """Weights so large that the next token depends on the whole prompt; always the same ones."""
    config = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "initializer_range": 0.5,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**config | sizes)).to(device, dtype).eval()


def greedy(model: Any) -> Callable[[Sequence[int], int], list[int]]:
    """`alone(prompt, n)`: n greedy tokens of the model, each from a forward of its own."""
    known: dict[tuple[int, ...], int] = {}

    @torch.no_grad()
    def next_token(tokens: tuple[int, ...]) -> int:
        return int(model(torch.tensor([tokens], device=model.device)).logits[0, -1].argmax())

    def alone(prompt: Sequence[int], n: int) -> list[int]:
        tokens = tuple(prompt)
        while len(tokens) < len(prompt) + n:
            if tokens not in known:
                known[tokens] = next_token(tokens)
            tokens = *tokens, known[tokens]
        return list(tokens[len(prompt) :])

    return alone
