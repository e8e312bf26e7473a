"""Models for the integrations: tiny ones with random weights, and SmolLM2 where it is installed."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from radixkv.errors import BackendUnavailableError
from radixkv.integrations.transformers import find_smollm2, load_model, load_tokenizer

# Threads that wait for one another come to a standstill where others use the cores too.
torch.set_num_threads(1)

TINY_LLAMA = LlamaConfig(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    bos_token_id=None,
    eos_token_id=None,
    initializer_range=0.5,
)


@pytest.fixture(scope="session")
def tiny_llama():
    """Random weights that are large enough for the next token to depend on the whole prompt."""
    torch.manual_seed(0)
    return LlamaForCausalLM(TINY_LLAMA).eval()


@pytest.fixture(scope="session")
def alone(tiny_llama):
    """`alone(prompt, n)`: n greedy tokens of tiny_llama, each from a forward of its own."""
    known = {}

    def generate(prompt, n):
        tokens = list(prompt)
        while len(tokens) < len(prompt) + n:
            key = tuple(tokens)
            if key not in known:
                with torch.no_grad():
                    known[key] = int(tiny_llama(torch.tensor([tokens])).logits[0, -1].argmax())
            tokens.append(known[key])
        return tokens[len(prompt) :]

    return generate


@pytest.fixture(scope="session")
def smollm2_path():
    try:
        return find_smollm2()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    return load_model(smollm2_path)


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path):
    return load_tokenizer(smollm2_path)
