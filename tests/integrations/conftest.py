"""Models for the integrations: tiny ones with random weights, and SmolLM2 where it is installed."""

import pytest
import torch

from radixkv.errors import BackendUnavailableError
from radixkv.integrations.transformers import find_smollm2, load_model, load_tokenizer
from tests.support.llamas import greedy, llama

# Threads that wait for one another come to a standstill where others use the cores too.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_llama():
    return llama()


@pytest.fixture(scope="session")
def alone(tiny_llama):
    """`alone(prompt, n)`: see `greedy`."""
    return greedy(tiny_llama)


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
