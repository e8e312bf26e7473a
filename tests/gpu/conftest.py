"""Triton kernels run on the card, or where `TRITON_INTERPRET=1` is set, interpreted on the CPU.

The interpreter is chosen when kernels are imported; `test_interpreted.py` gives it a process.
"""

import os

import pytest
import torch


@pytest.fixture(scope="session")
def device():
    if torch.cuda.is_available():
        return "cuda"
    if "TRITON_INTERPRET" in os.environ:
        return "cpu"
    pytest.skip("no CUDA device, and TRITON_INTERPRET is not set")
